//! The order that a replay keeps, and the events that may overlap.
//!
//! Small traces are replayed on one CPU and on several, with many seeds.

use pagewright_capture::replay::{
    CaptureReplayError, EventSource, ReplayConfig, ReplayReport, TraceInconsistency, replay,
};
use pagewright_capture::trace::{
    AccessOrigin, AccessRun, AccessStream, AddressLayout, CapturedFile, ExecImage, FileId, ImageBacking, ImageMapping,
    MappingSource, MemCall, MemOp, PAGE_SIZE, PageNo, Pid, Prot, RawMapFlags, TaskEvent, Tid, TraceError, TraceEvent,
    TraceHeader, UserAddr,
};
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;

const HEAP: u64 = 0x7000_0000_0000;
const SEEDS: u64 = 8;

/// A trace in memory, in which process 1 has begun, with a stack of one page.
struct TraceBuilder {
    header: TraceHeader,
    events: Vec<TraceEvent>,
}

impl EventSource for TraceBuilder {
    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        batch.clear();
        batch.append(&mut self.events);
        Ok(!batch.is_empty())
    }
}

impl TraceBuilder {
    fn new() -> Self {
        let header = TraceHeader {
            command: vec!["trace".to_owned()],
            tool: "hand-written".to_owned(),
            isa: IsaKind::X86_64,
            page_size: PAGE_SIZE,
            mappings: MappingSource::SystemCalls,
            layout: AddressLayout::Linux,
            native: None,
        };
        let mut trace = Self { header, events: Vec::new() };
        let program = CapturedFile { id: FileId(1), path: "/bin/trace".to_owned(), size: Some(PAGE_SIZE) };
        trace.events.push(TraceEvent::File(Box::new(program)));
        trace.task(TaskEvent::Begin { pid: Pid(1), tid: Tid(1) }).exec()
    }

    fn task(mut self, task: TaskEvent) -> Self {
        self.events.push(TraceEvent::Task(Box::new(task)));
        self
    }

    fn exec(self) -> Self {
        let top = 0x7fff_ffff_f000;
        let backing = ImageBacking::Stack {};
        let stack = ImageMapping { start: UserAddr(top - PAGE_SIZE), len: PAGE_SIZE, prot: Prot(3), backing };
        let image = ExecImage {
            executable: FileId(1),
            args: vec!["trace".to_owned()],
            mappings: vec![stack],
            brk: UserAddr(0x50_0000),
            stack_top: UserAddr(top),
            stack_limit: 8 << 20,
        };
        self.task(TaskEvent::Exec { image })
    }

    fn thread(self, tid: u32) -> Self {
        self.task(TaskEvent::CloneThread { tid: Tid(tid) })
    }

    fn fork(self, child: u32, vfork: bool) -> Self {
        self.task(TaskEvent::Fork { child: Pid(child), tid: Tid(child), vfork })
    }

    fn exit(self) -> Self {
        self.task(TaskEvent::ExitProcess { status: 0 })
    }

    fn on(mut self, pid: u32, tid: u32) -> Self {
        self.events.push(TraceEvent::Switch { pid: Pid(pid), tid: Tid(tid) });
        self
    }

    fn call(mut self, op: MemOp, result: u64) -> Self {
        self.events.push(TraceEvent::Call(Box::new(MemCall { op, result: Ok(result) })));
        self
    }

    fn map(self, page: u64, pages: u64) -> Self {
        let at = HEAP + page * PAGE_SIZE;
        let (addr, len) = (UserAddr(0), pages * PAGE_SIZE);
        let op = MemOp::Mmap { addr, len, prot: Prot(3), flags: RawMapFlags(0x22), file: None, offset: 0 };
        self.call(op, at)
    }

    fn unmap(self, page: u64, pages: u64) -> Self {
        self.call(MemOp::Munmap { addr: UserAddr(HEAP + page * PAGE_SIZE), len: pages * PAGE_SIZE }, 0)
    }

    fn protect(self, page: u64, pages: u64, prot: u32) -> Self {
        let addr = UserAddr(HEAP + page * PAGE_SIZE);
        self.call(MemOp::Mprotect { addr, len: pages * PAGE_SIZE, prot: Prot(prot) }, 0)
    }

    fn touch(mut self, page: u64, reads: u32, writes: u32, origin: AccessOrigin) -> Self {
        let page = PageNo(HEAP / PAGE_SIZE + page);
        let run = AccessRun { page, reads, writes, stream: AccessStream::Data, origin, write_first: writes > 0 };
        self.events.push(TraceEvent::Run(run));
        self
    }

    fn store(self, page: u64) -> Self {
        self.touch(page, 0, 1, AccessOrigin::User)
    }

    fn load(self, page: u64) -> Self {
        self.touch(page, 1, 0, AccessOrigin::User)
    }

    /// Loads from a page for so long that every other CPU has a turn.
    fn work(mut self, page: u64) -> Self {
        for _ in 0..200 {
            self = self.touch(page, 10_000, 0, AccessOrigin::User);
        }
        self
    }

    fn replay_on(&self, isa: IsaKind, cpus: u16, seed: u64) -> Result<ReplayReport, CaptureReplayError> {
        let mut source = Self { header: self.header.clone(), events: self.events.clone() };
        let profile = Profile::named(Profile::default_for(isa)).unwrap();
        let mut config = ReplayConfig::new(MachineConfig { cpus, seed, ..MachineConfig::new(profile) });
        config.machine.nodes[0].bytes = 64 << 20;
        replay(isa, &mut source, &config)
    }

    fn replay(&self, cpus: u16) -> ReplayReport {
        self.replay_on(IsaKind::X86_64, cpus, 0).unwrap()
    }

    /// Checks the reports on both instruction sets, on 1 to 8 CPUs, with several seeds.
    fn check_everywhere(&self, check: impl Fn(&ReplayReport)) {
        for isa in IsaKind::ALL {
            for (cpus, seed) in [1, 2, 8].into_iter().flat_map(|cpus| (0..SEEDS).map(move |seed| (cpus, seed))) {
                let report = self.replay_on(isa, cpus, seed);
                let report = report.unwrap_or_else(|error| panic!("{isa}, {cpus} CPUs, seed {seed}: {error}"));
                assert_eq!(report.diverged, [""; 0], "{isa}, {cpus} CPUs, seed {seed}");
                check(&report);
            }
        }
    }
}

fn count(report: &ReplayReport, name: &str) -> u64 {
    report.counters.get(name).unwrap_or_else(|| panic!("{name} is not counted"))
}

#[test]
fn accesses_stay_on_their_side_of_a_call_of_another_thread() {
    // An access on the wrong side of mmap or munmap would be refused and end the replay.
    let mut trace = TraceBuilder::new().map(0, 4).store(0).thread(2).thread(3);
    for round in 0..20 {
        let page = 100 + round * 10;
        trace = trace.on(1, 1).work(0).map(page, 4).on(1, 2).store(page).store(page + 1).on(1, 3).load(page);
        trace = trace.on(1, 2).store(page + 2).unmap(page, 4).on(1, 3).load(0);
    }
    let trace = trace.on(1, 1).exit();
    // Switches, files and the start of the root are not counted as events.
    let events =
        trace.events.iter().filter(|event| !matches!(event, TraceEvent::Switch { .. } | TraceEvent::File(_))).count()
            - 1;
    trace.check_everywhere(|report| {
        assert_eq!(count(report, "pw_events"), events as u64, "every event is replayed");
    });
}

#[test]
fn a_child_has_the_pages_of_its_parent_at_the_fork_only() {
    let trace = TraceBuilder::new().map(0, 8).store(0).store(1).fork(2, false).store(2).work(0).on(2, 2);
    // The child's stores copy pages 0 and 1; the parent stored to page 2 after the fork.
    let trace = trace.store(0).store(1).store(2).exit().on(1, 1).task(TaskEvent::Reaped { child: Pid(2) }).exit();
    trace.check_everywhere(|report| {
        assert_eq!((count(report, "pw_fork_entries"), count(report, "pw_table_copied_mapping")), (0, 0));
        assert_eq!(count(report, "pw_cow_copy"), 2);
        assert_eq!(count(report, "pw_pages_zeroed"), 4, "pages 0 to 2 of the parent, page 2 of the child");
        assert_eq!(report.images.iter().map(|image| image.minor_faults).collect::<Vec<_>>(), [3, 3]);
    });
}

#[test]
fn a_reap_follows_the_exit_of_the_child() {
    let build = |reap: bool| {
        let mut trace = TraceBuilder::new().map(0, 4).store(0).fork(2, false).on(2, 2).work(0).exit().on(1, 1);
        if reap {
            trace = trace.task(TaskEvent::Reaped { child: Pid(2) });
        }
        trace.work(0).exit()
    };
    let (together, after) = (build(false).replay(2).modelled, build(true).replay(2).modelled);
    assert!(after.elapsed_ns > together.elapsed_ns * 18 / 10, "{after:?} is twice {together:?}");
    build(true).check_everywhere(|report| assert_eq!(report.images.len(), 2));
}

#[test]
fn a_vfork_parent_sleeps_until_the_exec_of_its_child() {
    let build = |vfork: bool| {
        let trace = TraceBuilder::new().map(0, 4).store(0).fork(2, vfork).on(2, 2).work(0).store(1).exec();
        trace.on(2, 2).exit().on(1, 1).work(0).store(1).exit()
    };
    let (forked, slept) = (build(false).replay(2).modelled, build(true).replay(2).modelled);
    assert!(slept.elapsed_ns > forked.elapsed_ns * 18 / 10, "{slept:?} is twice {forked:?}");
    build(true).check_everywhere(|report| {
        assert_eq!(count(report, "pw_fork"), 0, "no space is copied");
        assert_eq!(count(report, "pw_pages_zeroed"), 2, "the child and the parent share page 1");
        let faults: Vec<_> = report.images.iter().map(|image| (image.process.len(), image.minor_faults)).collect();
        assert_eq!(faults, [(0, 1), (1, 1), (1, 0)], "the fault on page 1 is the child's");
    });
}

#[test]
fn accesses_of_threads_overlap_between_calls() {
    let mut trace = TraceBuilder::new().map(0, 4).store(0).thread(2).thread(3).thread(4);
    for tid in 1..=4 {
        trace = trace.on(1, tid).work(0);
    }
    let trace = trace.on(1, 1).exit();
    let (one, four) = (trace.replay(1).modelled, trace.replay(4).modelled);
    assert!(four.elapsed_ns * 3 < one.elapsed_ns, "{four:?} on four CPUs, {one:?} on one");
}

#[test]
fn shootdowns_interrupt_a_thread_that_waits_for_its_phase_and_not_one_that_sleeps() {
    let received = |trace: TraceBuilder| count(&trace.replay(4), "nr_tlb_remote_flush_received");
    // Both threads have the page in their TLB; the second has nothing to do before the call.
    let threads = |prot| {
        let trace = TraceBuilder::new().map(0, 4).store(0).thread(2).on(1, 2).load(0).work(0).on(1, 1).load(0).work(0);
        trace.protect(0, 1, prot).on(1, 2).load(0).on(1, 1).exit()
    };
    assert_eq!(received(threads(1)), received(threads(3)) + 1, "a revoked right costs one IPI");
    // The first thread sleeps until its child exits, or runs. Meanwhile the second thread stores to
    // a page shared with the child, so every CPU that runs the process must flush.
    let build = |sleeps: bool| {
        let mut trace = TraceBuilder::new().map(0, 4).store(0).thread(2).load(0).fork(3, false);
        if sleeps {
            trace = trace.task(TaskEvent::Reaped { child: Pid(3) });
        }
        trace.work(0).on(1, 2).load(0).store(0).work(0).on(3, 3).work(0).work(0).exit().on(1, 1).exit()
    };
    assert!(received(build(true)) < received(build(false)), "the CPU of a sleeping thread is lazy and gets no IPI");
}

#[test]
fn faults_inside_execve_count_for_the_image_that_called_it() {
    let trace = TraceBuilder::new().map(0, 4).fork(2, false).on(2, 2).store(0).exec().map(0, 4);
    let trace = trace.touch(0, 0, 1, AccessOrigin::Kernel).store(1).touch(2, 0, 1, AccessOrigin::Kernel).exit();
    trace.on(1, 1).task(TaskEvent::Reaped { child: Pid(2) }).exit().check_everywhere(|report| {
        let faults: Vec<_> = report.images.iter().map(|image| (image.image, image.minor_faults)).collect();
        assert_eq!(faults, [(1, 0), (0, 2), (1, 2)], "execve faults page 0 of the new image in");
    });
}

#[test]
fn inconsistent_traces_are_refused() {
    let refused = |trace: TraceBuilder| match trace.replay_on(IsaKind::X86_64, 2, 0) {
        Err(CaptureReplayError::Inconsistent { what, .. }) => what,
        other => panic!("{:?}", other.map(|report| report.images)),
    };
    assert_eq!(refused(TraceBuilder::new().on(1, 9).exit()), TraceInconsistency::UnknownThread(9));
    assert_eq!(
        refused(TraceBuilder::new().thread(1)),
        TraceInconsistency::ThreadOutOfOrder(1),
        "the thread is created twice"
    );
    assert_eq!(refused(TraceBuilder::new().thread(u32::MAX)), TraceInconsistency::ThreadOutOfOrder(u32::MAX));
    assert_eq!(refused(TraceBuilder::new().fork(3, false)), TraceInconsistency::ThreadOutOfOrder(3));
    assert_eq!(refused(TraceBuilder::new().exit().map(0, 1)), TraceInconsistency::AfterExit(1));
    let waits = TraceBuilder::new().fork(2, false).task(TaskEvent::Reaped { child: Pid(2) }).fork(3, false).on(2, 2);
    assert_eq!(refused(waits.task(TaskEvent::Reaped { child: Pid(3) }).exit()), TraceInconsistency::Deadlock);
    let mut twice = TraceBuilder::new();
    let again = CapturedFile { id: FileId(7), path: "/x".to_owned(), size: None };
    twice.events.push(TraceEvent::File(Box::new(again)));
    assert_eq!(refused(twice), TraceInconsistency::FileOutOfOrder(7));
}

#[test]
fn exhausted_memory_and_refused_accesses_are_errors() {
    let mut trace = TraceBuilder::new().map(0, 1 << 15);
    for page in 0..1 << 15 {
        trace = trace.store(page);
    }
    assert!(matches!(trace.replay_on(IsaKind::X86_64, 1, 0), Err(CaptureReplayError::OutOfMemory { pid: 1, .. })));
    let lost = TraceBuilder::new().store(5).replay_on(IsaKind::Aarch64, 1, 0);
    assert!(matches!(lost, Err(CaptureReplayError::Refused { pid: 1, .. })));
}

#[test]
fn a_refused_access_names_the_call_that_went_wrong() {
    // The new place overlaps the old one, which Linux never returns.
    let op = MemOp::Mremap {
        addr: UserAddr(HEAP + 4 * PAGE_SIZE),
        old_len: PAGE_SIZE,
        new_len: 3 * PAGE_SIZE,
        flags: 1,
        new_addr: UserAddr(0),
    };
    let trace = TraceBuilder::new().map(4, 1).call(op, HEAP + 2 * PAGE_SIZE).store(4).store(2);
    let error = trace.replay_on(IsaKind::X86_64, 1, 0).unwrap_err();
    let CaptureReplayError::CallFailed { call, .. } = &error else { panic!("{error}") };
    assert_eq!((call.position, call.pid), (5, 1));
    let text = error.to_string();
    let named = "event 5, process 1: mremap(0x700000004000, 4096, 12288, 0x1, 0x0) returned 0x700000002000 on Linux and fails here: ";
    assert!(text.starts_with(named), "{text}");
    assert!(text.contains("the program cannot continue: ") && text.contains("0x700000002000"), "{text}");

    // A place that Linux chose is not in use.
    let trace = TraceBuilder::new().map(4, 2).map(5, 2).store(6);
    let error = trace.replay_on(IsaKind::X86_64, 1, 0).unwrap_err();
    assert!(matches!(&error, CaptureReplayError::CallFailed { call, .. } if call.position == 5), "{error}");
}

/// Appends changes of rights that succeeded on Linux, of memory that is not mapped here.
///
/// They diverge and do no harm, because the program does not access the memory.
fn diverge_harmlessly(mut trace: TraceBuilder, pages: std::ops::Range<u64>) -> TraceBuilder {
    for page in pages {
        trace = trace.protect(page, 1, 1);
    }
    trace
}

/// The position of the call and the process that the error of the replay names.
fn named_call(trace: TraceBuilder) -> (u64, u32) {
    match trace.replay_on(IsaKind::X86_64, 2, 0).unwrap_err() {
        CaptureReplayError::CallFailed { call, .. } => (call.position, call.pid),
        other => panic!("{other}"),
    }
}

#[test]
fn the_call_that_went_wrong_is_named_however_many_others_diverge() {
    const OTHERS: u64 = 2 * ReplayReport::DIVERGED as u64;
    let others = diverge_harmlessly(TraceBuilder::new(), 1000..1000 + OTHERS);
    assert_eq!(others.replay(1).diverged.len(), ReplayReport::DIVERGED, "more calls diverge than are reported");

    // The second mapping is refused, because Linux never chooses an address that is in use.
    let before = diverge_harmlessly(TraceBuilder::new(), 1000..1000 + OTHERS);
    let failing = before.map(4, 2).map(5, 2);
    assert_eq!(named_call(failing.store(6)), (3 + OTHERS + 2, 1), "others diverge before it");

    let failing = diverge_harmlessly(TraceBuilder::new().map(4, 2).map(5, 2), 1000..1000 + OTHERS);
    assert_eq!(named_call(failing.store(6)), (5, 1), "others diverge after it");
}

#[test]
fn the_call_that_went_wrong_is_named_in_each_space_that_has_its_memory() {
    let lost = || TraceBuilder::new().map(4, 2).map(5, 2);
    let child = lost().fork(2, false).on(2, 2).store(6);
    assert_eq!(named_call(child), (5, 1), "the parent's call, at an access of the child");

    let vfork = TraceBuilder::new().fork(2, true).on(2, 2).map(4, 2).map(5, 2).exit().on(1, 1).store(6);
    assert_eq!(named_call(vfork), (7, 2), "the call of a vfork child, at an access of its parent");
}

#[test]
fn a_call_that_went_wrong_follows_its_memory() {
    // Page 8 stays read-only, because the call that makes it writable fails at page 7.
    let read_only = || TraceBuilder::new().map(8, 2).protect(8, 2, 1).protect(7, 2, 3);
    assert_eq!(named_call(read_only().store(8)), (6, 1));

    let (addr, new_addr) = (UserAddr(HEAP + 8 * PAGE_SIZE), UserAddr(0));
    let op = MemOp::Mremap { addr, old_len: 2 * PAGE_SIZE, new_len: 4 * PAGE_SIZE, flags: 1, new_addr };
    let moved = read_only().call(op, HEAP + 20 * PAGE_SIZE);
    assert_eq!(named_call(moved.store(20)), (6, 1), "the page has moved");

    let replaced = read_only().unmap(8, 2).map(8, 2).protect(8, 2, 1).store(8);
    let error = replaced.replay_on(IsaKind::X86_64, 1, 0).unwrap_err();
    assert!(matches!(error, CaptureReplayError::Refused { pid: 1, .. }), "the call concerned other memory: {error}");
}
