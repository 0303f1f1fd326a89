//! Invariants that random programs (`fuzz/tests/random_calls.rs`) do not reach, one at a time.

use pagewright_arch::on_both;
use pagewright_arch::{Isa, X86_64};
use pagewright_lab::Lab;
use pagewright_lab::harness::recount;
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::{Gauge, RssKind};
use pagewright_mm::file::{FileKind, FileObject, FileOps};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, FaultError, MapFlags, MapRequest, MmError, MmSetting, MmSettings, Space};
use pagewright_sim::{AllocationFailure, MachineConfig, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;

on_both! {
    a_failed_call_has_changed_nothing,
    other_cpus_see_the_copy_and_not_the_original,
    an_exclusive_page_is_reused_and_a_referenced_one_is_not,
    a_fault_that_lost_changes_nothing,
    a_page_is_not_mapped_past_an_end_that_came_meanwhile,
    a_space_that_ended_has_no_children,
}

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);

struct Process<I: Isa> {
    lab: Rc<Lab<I>>,
    space: Arc<Space<Sim<I>>>,
}

impl<I: Isa> Process<I> {
    fn new(lab: &Rc<Lab<I>>) -> Self {
        let space = lab.on(CPU, |mm| mm.new_space()).expect("memory for a space");
        Self { lab: lab.clone(), space }
    }

    fn anon(&self, pages: u64) -> VirtAddr {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let len = pages * PAGE_SIZE;
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: None };
        self.lab.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room")
    }

    fn map_file(&self, file: &Arc<FileObject<Sim<I>>>, flags: MapFlags) -> VirtAddr {
        let mapping = FileMapping { file, offset: 0, opened: Rights::RW };
        let len = file.size();
        let request = MapRequest { addr: VirtAddr::ZERO, len, rights: Rights::RW, flags, file: Some(mapping) };
        self.lab.on(CPU, |mm| mm.mmap(&self.space, &request)).expect("room")
    }

    fn touch(&self, cpu: CpuId, va: VirtAddr, access: Access) -> Result<(), FaultError> {
        self.lab.run(cpu, &self.space);
        self.lab.touch(cpu, &self.space, va, access, 1)
    }

    /// The word at `va`, by what `cpu` has in its TLB.
    fn word<T>(
        &self,
        cpu: CpuId,
        va: VirtAddr,
        access: Access,
        use_it: impl FnOnce(&std::sync::atomic::AtomicU64) -> T,
    ) -> T {
        self.touch(cpu, va, access).expect("it can be had");
        let pfn = self.lab.sim().access(cpu, va, access, 1).expect("just touched").pfn;
        use_it(&self.lab.sim().ram()[pfn.base().raw() as usize / 8])
    }

    fn write(&self, cpu: CpuId, va: VirtAddr, value: u64) {
        self.word(cpu, va, Access::Write, |word| word.store(value, Ordering::Relaxed));
    }

    fn read(&self, cpu: CpuId, va: VirtAddr) -> u64 {
        self.word(cpu, va, Access::Read, |word| word.load(Ordering::Relaxed))
    }

    fn fork(&self) -> Self {
        let space = self.lab.on(CPU, |mm| mm.fork(&self.space)).expect("memory for a child");
        Self { lab: self.lab.clone(), space }
    }

    fn end(&self) {
        for cpu in [CPU, OTHER] {
            self.lab.on(cpu, |mm| mm.tlb().leave_space());
        }
        self.lab.on(CPU, |mm| mm.end_space(&self.space));
    }
}

fn lab<I: Isa>() -> Rc<Lab<I>> {
    let config = MachineConfig::default_for(I::KIND).expect("a shipped profile");
    Rc::new(Lab::new(config, MmSettings::default()).expect("a possible machine"))
}

fn levels<I: Isa>(lab: &Lab<I>) -> Vec<u64> {
    lab.on(CPU, |mm| Gauge::ALL.iter().map(|gauge| mm.gauge(*gauge)).collect())
}

/// INV-MM-COMMIT: each allocation of each call is made to fail.
fn a_failed_call_has_changed_nothing<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let base = process.anon(64);
    process.write(CPU, base.add(9 * PAGE_SIZE), 1);
    let maps = || -> Vec<(u64, u64, Rights)> {
        process.space.map().read().iter().map(|(start, vma)| (start, vma.end(), vma.rights())).collect()
    };
    let page = |index: u64| base.add(index * PAGE_SIZE);
    type Call<'a, I> = Box<dyn Fn(&pagewright_mm::Mm<Sim<I>>) -> Result<(), MmError> + 'a>;
    let calls: [Call<'_, I>; 4] = [
        Box::new(|mm| mm.munmap(&process.space, page(8), 4 * PAGE_SIZE)),
        Box::new(|mm| mm.mprotect(&process.space, page(20), 4 * PAGE_SIZE, Rights::READ)),
        Box::new(|mm| {
            let flags = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED;
            let request = MapRequest { addr: page(30), len: PAGE_SIZE, rights: Rights::RW, flags, file: None };
            mm.mmap(&process.space, &request).map(drop)
        }),
        Box::new(|mm| mm.fork(&process.space).map(|child| mm.end_space(&child))),
    ];
    for (number, call) in calls.iter().enumerate() {
        let before = (maps(), levels(&lab));
        for depth in 0.. {
            let refused = lab.sim().refused_allocations();
            lab.sim().fail_allocation_after(depth, AllocationFailure::One);
            let outcome = lab.on(CPU, call);
            lab.sim().permit_allocations();
            if outcome.is_ok() {
                assert_eq!(
                    lab.sim().refused_allocations(),
                    refused,
                    "call {number} succeeds without what it was refused"
                );
                break;
            }
            assert_eq!((maps(), levels(&lab)), before, "call {number} failed at depth {depth}: {outcome:?}");
            if number == 0 {
                assert_eq!(process.read(CPU, page(9)), 1, "a page that was not unmapped is still there");
            }
        }
    }
    process.end();
}

/// INV-COW-ORDER: once one CPU has stored to the copy, no other reads the original.
fn other_cpus_see_the_copy_and_not_the_original<I: Isa>() {
    let lab = lab::<I>();
    let process = Process::new(&lab);
    let base = process.anon(2);
    assert_eq!(process.read(OTHER, base), 0, "the zero page is in the other CPU's TLB");
    process.write(CPU, base, 5);
    assert_eq!(process.read(OTHER, base), 5);
    let child = process.fork();
    // INV-FORK-FLUSHED: both CPUs could store a moment ago.
    for cpu in [CPU, OTHER] {
        assert!(lab.sim().access(cpu, base, Access::Write, 1).is_err(), "CPU {cpu} stores to what the child has");
    }
    assert_eq!(process.read(OTHER, base), 5, "the shared page is in the other CPU's TLB");
    process.write(CPU, base, 6);
    assert_eq!(process.read(OTHER, base), 6);
    assert_eq!(child.read(OTHER, base), 5);
    child.end();
    process.end();
}

/// INV-COW-REUSE: a reference forbids reuse even if no other entry maps the page (CVE-2020-29374).
fn an_exclusive_page_is_reused_and_a_referenced_one_is_not<I: Isa>() {
    let lab = lab::<I>();
    lab.mm().settings().set(MmSetting::CowPageTables, 0).expect("never");
    let process = Process::new(&lab);
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let leaf = |process: &Process<I>| lab.on(CPU, |mm| recount::leaf(mm, &process.space, base)).expect("mapped");
    let first = leaf(&process);
    assert!(first.is_exclusive());
    let grab = || lab.on(CPU, |mm| mm.tlb().frames().folio(leaf(&process).pfn()).get());
    let give_up = |folio| {
        lab.on(CPU, |mm| {
            if let Some(block) = mm.tlb().frames().put(folio) {
                mm.tlb().free(block);
            }
        });
    };
    // The page is exclusive, so a store reaches the frame on which a reference is held.
    let held = grab();
    let protect = |rights| lab.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, rights)).expect("mapped");
    protect(Rights::READ);
    protect(Rights::RW);
    process.write(CPU, base, 2);
    assert_eq!(leaf(&process).pfn(), first.pfn());
    // Fork clears exclusivity, and the end of the child does not set it again.
    let child = process.fork();
    child.end();
    process.write(CPU, base, 3);
    assert_ne!(leaf(&process).pfn(), first.pfn(), "a page with another reference is not taken over");
    assert_eq!(lab.mm().counter(Counter::PwCowCopy), 1);
    give_up(held);
    let second = leaf(&process);
    process.fork().end();
    process.write(CPU, base, 4);
    assert_eq!(leaf(&process).pfn(), second.pfn(), "alone with it: reused");
    process.end();
}

#[cfg(feature = "planted")]
fn still_reused<I: Isa>(_seed: u64) -> bool {
    an_exclusive_page_is_reused_and_a_referenced_one_is_not::<I>();
    true
}

planted_bugs_are_found! {
    1;
    ReusedByMapcount => still_reused,
}

/// What happens during the next read of an [`Interrupted`] file on this thread.
///
/// A file must be fit to be read from any CPU, so it can't hold it.
type Hook = RefCell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    static HOOK: Hook = const { RefCell::new(None) };
}

/// A file during whose first read something else happens.
struct Interrupted;

impl FileOps for Interrupted {
    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno> {
        let hook = HOOK.take();
        if let Some(hook) = hook {
            hook();
        }
        put(0, &(index + 7).to_le_bytes());
        Ok(())
    }
}

type File<I> = Arc<FileObject<Sim<I>>>;

/// A lab without fault-around, and a file of four pages during whose first read `Hook` runs.
fn with_file<I: Isa>() -> (Rc<Lab<I>>, File<I>) {
    let lab = lab::<I>();
    lab.mm().settings().set(MmSetting::FaultAroundBytes, PAGE_SIZE).expect("a power of two");
    let kind = FileKind::File(Box::new(Interrupted));
    let file = lab.on(CPU, |mm| mm.add_file("/interrupted", kind, 4 * PAGE_SIZE)).expect("memory");
    (lab, file)
}

/// INV-FAULT-RETRY: another fault on the same page is served while this one reads.
fn a_fault_that_lost_changes_nothing<I: Isa>() {
    for (flags, access) in [
        (MapFlags::SHARED, Access::Read),
        (MapFlags::SHARED, Access::Write),
        (MapFlags::PRIVATE, Access::Read),
        (MapFlags::PRIVATE, Access::Write),
    ] {
        let (lab, file) = with_file::<I>();
        let before = levels(&lab);
        let process = Process::new(&lab);
        let base = process.map_file(&file, flags);
        let (other, space) = (lab.clone(), process.space.clone());
        HOOK.set(Some(Box::new(move || {
            other.on(CPU, |mm| mm.fault(&space, base, access)).expect("the other fault is served");
        })));
        assert_eq!(process.touch(CPU, base, access), Ok(()));
        assert!(HOOK.with_borrow(Option::is_none), "the other fault happened");
        let kind = if flags == MapFlags::PRIVATE && access == Access::Write { RssKind::Anon } else { RssKind::File };
        assert_eq!((process.space.rss().of(kind), process.space.rss().pages()), (1, 1), "{flags:?} {access}");
        lab.on(CPU, |mm| recount_pages(mm, &process.space));
        assert_eq!(process.read(CPU, base), 7);
        process.end();
        lab.on(CPU, |mm| mm.forget_file(&file));
        assert_eq!(levels(&lab), before);
    }
}

/// One page is mapped once and nothing else holds it but its cache.
fn recount_pages<I: Isa>(mm: &pagewright_mm::Mm<Sim<I>>, space: &Space<Sim<I>>) {
    let map = space.map().read();
    let (start, vma) = map.iter().next().expect("one mapping");
    let leaf = recount::leaf(mm, space, vma.range(start).start()).expect("its first page");
    let folio = mm.tlb().frames().folio(leaf.pfn());
    assert_eq!((folio.mapcount(), folio.refs()), (1, 1 + u32::from(!folio.is_anon())));
}

/// INV-FILE-REMOVED: the file ends before the page that is being read.
fn a_page_is_not_mapped_past_an_end_that_came_meanwhile<I: Isa>() {
    for (flags, access) in
        [(MapFlags::SHARED, Access::Read), (MapFlags::SHARED, Access::Write), (MapFlags::PRIVATE, Access::Write)]
    {
        let (lab, file) = with_file::<I>();
        let before = levels(&lab);
        let process = Process::new(&lab);
        let base = process.map_file(&file, flags);
        let va = base.add(2 * PAGE_SIZE);
        let (other, truncated) = (lab.clone(), file.clone());
        let truncate = move || other.on(OTHER, |mm| mm.truncate(&truncated, 2 * PAGE_SIZE)).expect("not sealed");
        HOOK.set(Some(Box::new(truncate)));
        // Either way it is SIGBUS: the page was read, and when it was to be kept the file had
        // ended.
        let refused = process.touch(CPU, va, access);
        let sigbus = matches!(refused, Err(FaultError::PastEnd { .. } | FaultError::Device { index: 2, .. }));
        assert!(sigbus, "{flags:?} {access}: {refused:?}");
        assert_eq!(process.touch(CPU, va, access), Err(FaultError::PastEnd { va }));
        assert_eq!(process.space.rss().pages(), 0);
        assert_eq!(lab.mm().gauge(Gauge::FilePages), 0, "nor is it in the cache");
        process.end();
        assert_eq!(levels(&lab), before);
        lab.on(CPU, |mm| mm.forget_file(&file));
    }
}

/// INV-RMAP-SUPERSET: a space that has ended gets no children.
///
/// The reverse map would look for the pages of a child below a freed node in the wrong place.
fn a_space_that_ended_has_no_children<I: Isa>() {
    let lab = lab::<I>();
    let before = levels(&lab);
    let ended = Process::new(&lab);
    ended.end();
    for _ in 0..2 {
        let refused = lab.on(CPU, |mm| mm.fork(&ended.space).map(drop));
        assert_eq!(refused, Err(MmError::SpaceEnded));
    }
    // Spaces made now have nodes of their own: each finds its pages, and both can end.
    let (one, two) = (Process::new(&lab), Process::new(&lab));
    for process in [&one, &two] {
        let base = process.anon(1);
        process.write(CPU, base, 1);
    }
    lab.on(CPU, |mm| recount::check(mm, &[one.space.clone(), two.space.clone()]));
    let children = [one.fork(), two.fork()];
    children.iter().chain([&one, &two]).for_each(Process::end);
    assert_eq!(levels(&lab), before);
}

/// Does `call` on a process that runs on two CPUs, and tries `taken` at each IPI.
///
/// Returns each interrupted CPU, and whether `taken` failed there because the lock was held.
fn is_held_when_told(
    taken: impl Fn(&Space<Sim<X86_64>>) + 'static,
    call: impl FnOnce(&Process<X86_64>, VirtAddr),
) -> Vec<(CpuId, bool)> {
    let lab = lab::<X86_64>();
    let process = Process::new(&lab);
    let base = process.anon(1);
    for cpu in [CPU, OTHER] {
        process.write(cpu, base, 1);
    }
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (log, handler, space) = (seen.clone(), Rc::downgrade(&lab), process.space.clone());
    lab.sim().bind_ipi_handler(Rc::new(move |cpu| {
        // On this machine waiting for a lock is a deadlock, and says so.
        let held = catch_unwind(AssertUnwindSafe(|| taken(&space))).is_err();
        log.borrow_mut().push((cpu, held));
        handler.upgrade().expect("the lab is there").mm().tlb().handle_ipi();
    }));
    call(&process, base);
    lab.sim().unbind_ipi_handler();
    seen.take()
}

/// INV-FORK-ALONE: fork holds the parent's map exclusively while it interrupts other CPUs.
#[test]
fn fork_holds_the_map_while_cpus_are_told() {
    let held = is_held_when_told(|space| drop(space.map().read()), |process, _| drop(process.fork()));
    assert_eq!(held, [(OTHER, true)]);
}

/// INV-TLB-RACE: mappings change only after the flush of a discarded page is complete.
#[test]
fn dropping_pages_holds_the_map_while_cpus_are_told() {
    let call = |process: &Process<X86_64>, base| {
        process.lab.on(CPU, |mm| mm.madvise(&process.space, base, PAGE_SIZE, Advice::DontNeed)).expect("mapped");
    };
    assert_eq!(is_held_when_told(|space| drop(space.map().write()), call), [(OTHER, true)]);
}
