//! The loop: feed queues, give turns, count.

use super::kswapd::Kswapd;
use super::process::{LifeState, Process, Thread, WaitReason};
use super::queue::{Item, Op, Work};
use super::report::{ImageReport, MeasuredTimes, ModelledTimes, NamedCounts, ReplayReport, SkippedCall};
use super::source::EventSource;
use super::tasks::Progress;
use super::{CaptureReplayError, ReplayConfig, TraceInconsistency};
use crate::trace::{AccessOrigin, AccessRun, AccessStream, CapturedFile, MappingSource, TaskEvent, TraceEvent};
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_mm::file::FileObject;
use pagewright_mm::{FaultError, MmSetting, MmSettings, Space};
use pagewright_sim::sched::{Scheduler, ThreadId, Turn};
use pagewright_sim::{Cost, MachineEvent, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, Counter, CpuId, CpuMask, VirtAddr};
use std::collections::BTreeMap;
use std::time::Instant;

/// Items in all queues below which more of the capture is read.
const WINDOW: usize = 1 << 14;

/// [`super::replay`] on the instruction set `I`.
pub(super) fn replay_on<I: Isa>(
    source: &mut dyn EventSource,
    config: &ReplayConfig,
) -> Result<ReplayReport, CaptureReplayError> {
    let began = Instant::now();
    let settings = MmSettings::default();
    // What was promised to the program when it was recorded is promised again, however small the
    // machine is.
    settings.set(MmSetting::OvercommitMemory, 1)?;
    for (setting, value) in &config.settings {
        settings.set(*setting, *value)?;
    }
    let lab = Lab::<I>::new(config.machine.clone(), settings)?;
    if config.swap_slots > 0 {
        lab.swap_on(config.swap_slots)?;
    }
    let mut engine = Engine::new(&lab, config);
    engine.run(source)?;
    engine.end()?;
    Ok(engine.report(source, config, began))
}

/// A replay under way.
pub(super) struct Engine<'l, I: Isa> {
    pub(super) lab: &'l Lab<I>,
    pub(super) sched: Scheduler,
    pub(super) kswapd: Vec<Kswapd>,
    cpus: u16,
    /// By the capture's numbers; slot 0 is never used.
    pub(super) processes: Vec<Option<Process<I>>>,
    pub(super) threads: Vec<Option<Thread>>,
    files: Vec<Option<Arc<FileObject<Sim<I>>>>>,
    /// The thread whose events are being fed.
    feeding: u32,
    queued: usize,
    /// The thread that had nothing left at the end of its turn.
    starving: Option<u32>,
    /// Threads that wait for a phase or a child.
    waiting: Vec<u32>,
    pub(super) events: u64,
    accesses: u64,
    pub(super) images: Vec<ImageReport>,
    pub(super) not_replayed: BTreeMap<String, u64>,
    pub(super) diverged: Vec<String>,
}

impl<'l, I: Isa> Engine<'l, I> {
    fn new(lab: &'l Lab<I>, config: &ReplayConfig) -> Self {
        let machine = &config.machine;
        Self {
            lab,
            sched: Scheduler::new(machine.cpus, config.slice, config.lookahead, machine.seed),
            kswapd: Kswapd::all(lab.sim()),
            cpus: machine.cpus,
            processes: Vec::new(),
            threads: Vec::new(),
            files: Vec::new(),
            feeding: 0,
            queued: 0,
            starving: None,
            waiting: Vec::new(),
            events: 0,
            accesses: 0,
            images: Vec::new(),
            not_replayed: BTreeMap::new(),
            diverged: Vec::new(),
        }
    }

    fn run(&mut self, source: &mut dyn EventSource) -> Result<(), CaptureReplayError> {
        let mut batch = Vec::new();
        let mut more = true;
        loop {
            while more && self.queued < WINDOW {
                more = self.feed_batch(source, &mut batch)?;
            }
            self.rest_if_starving()?;
            let lab = self.lab;
            match self.sched.next(|cpu| lab.sim().clock(cpu)) {
                Some(turn) => self.turn(turn)?,
                None if more => more = self.feed_batch(source, &mut batch)?,
                None if self.queued == 0 => return Ok(()),
                None => return Err(self.inconsistent(self.stuck())),
            }
        }
    }

    /// A thread that ran out of fed work keeps its CPU if there is more by now: that the window
    /// ended is no event of the program.
    fn rest_if_starving(&mut self) -> Result<(), CaptureReplayError> {
        let Some(tid) = self.starving.take() else { return Ok(()) };
        let thread = self.thread(tid)?;
        if thread.waits == WaitReason::Nothing && thread.queue.is_empty() {
            thread.waits = WaitReason::Feed;
            self.sched.block(ThreadId::new(tid));
        }
        Ok(())
    }

    /// Why nothing can go on although something is left to do.
    fn stuck(&self) -> TraceInconsistency {
        let ended = |thread: &Thread| thread.waits == WaitReason::Ended && !thread.queue.is_empty();
        let ended = self.threads.iter().position(|thread| thread.as_ref().is_some_and(ended));
        ended.map_or(TraceInconsistency::Deadlock, |tid| TraceInconsistency::AfterExit(tid as u32))
    }

    fn feed_batch(
        &mut self,
        source: &mut dyn EventSource,
        batch: &mut Vec<TraceEvent>,
    ) -> Result<bool, CaptureReplayError> {
        let more = source.next_batch(batch)?;
        if more {
            for event in batch.drain(..) {
                self.feed(event)?;
            }
        }
        Ok(more)
    }

    fn feed(&mut self, event: TraceEvent) -> Result<(), CaptureReplayError> {
        match event {
            TraceEvent::Run(run) => self.push(Work::Run(run)),
            TraceEvent::Switch { tid, .. } => {
                self.thread(tid.0)?;
                self.feeding = tid.0;
                Ok(())
            }
            TraceEvent::Call(call) => self.push(Work::Op(Op::Call(call))),
            TraceEvent::File(file) => self.introduce(&file),
            TraceEvent::Task(task) => self.feed_task(task),
        }
    }

    /// Threads and processes exist from the moment they are fed, so that what follows can be queued
    /// for them.
    fn feed_task(&mut self, task: Box<TaskEvent>) -> Result<(), CaptureReplayError> {
        match &*task {
            TaskEvent::Begin { pid, tid } => {
                self.conceive(pid.0, tid.0, None)?;
                self.feeding = tid.0;
                return self.begin(pid.0, tid.0);
            }
            TaskEvent::Fork { child, tid, .. } => {
                let parent = self.thread(self.feeding)?.process;
                self.conceive(child.0, tid.0, Some(parent))?;
            }
            TaskEvent::CloneThread { tid } => {
                let pid = self.thread(self.feeding)?.process;
                self.process(pid)?.phases.several();
                self.conceive_thread(tid.0, pid)?;
            }
            TaskEvent::Exec { .. }
            | TaskEvent::ExitThread {}
            | TaskEvent::ExitProcess { .. }
            | TaskEvent::Reaped { .. } => {}
        }
        self.push(Work::Op(Op::Task(task)))
    }

    /// Queues work for the thread that is being fed.
    fn push(&mut self, work: Work) -> Result<(), CaptureReplayError> {
        let inconsistent = |what| CaptureReplayError::Inconsistent { events: self.events, what };
        let index = self.feeding as usize;
        let Some(thread) = self.threads.get_mut(index).and_then(Option::as_mut) else {
            return Err(inconsistent(TraceInconsistency::UnknownThread(self.feeding)));
        };
        let Some(process) = self.processes.get_mut(thread.process as usize).and_then(Option::as_mut) else {
            return Err(inconsistent(TraceInconsistency::UnknownProcess(thread.process)));
        };
        let phase = match &work {
            Work::Run(_) => process.phases.access(),
            Work::Op(_) => process.phases.alone(),
        };
        thread.queue.push_back(Item { phase, work });
        self.queued += 1;
        if thread.waits == WaitReason::Feed {
            thread.waits = WaitReason::Nothing;
            self.sched.wake(ThreadId::new(self.feeding), thread.stopped);
        }
        Ok(())
    }

    fn introduce(&mut self, file: &CapturedFile) -> Result<(), CaptureReplayError> {
        // Nobody has number 0.
        self.files.resize_with(self.files.len().max(1), || None);
        if file.id.0 as usize != self.files.len() {
            return Err(self.inconsistent(TraceInconsistency::FileOutOfOrder(file.id.0)));
        }
        let kind = pagewright_mm::file::FileKind::File(Box::new(super::file::Contentless));
        // A file that was gone by the end of the capture is as long as anybody maps it.
        let size = file.size.unwrap_or(1 << 40);
        let known = self.lab.on(CpuId::new(0), |mm| mm.add_file(&file.path, kind, size));
        let object = known.map_err(|error| CaptureReplayError::OutOfMemory { pid: 0, events: self.events, error })?;
        self.files.push(Some(object));
        Ok(())
    }

    pub(super) fn file(&self, id: u32) -> Result<Arc<FileObject<Sim<I>>>, CaptureReplayError> {
        let known = self.files.get(id as usize).and_then(Clone::clone);
        known.ok_or_else(|| self.inconsistent(TraceInconsistency::UnknownFile(id)))
    }

    /// Lets a thread run on a CPU until its turn is over or it stops.
    fn turn(&mut self, turn: Turn) -> Result<(), CaptureReplayError> {
        let (cpu, tid) = (turn.cpu, turn.thread.raw());
        let sim = self.lab.sim();
        sim.idle_until(cpu, turn.start);
        if turn.switched {
            sim.charge(cpu, Cost::ContextSwitch, 1);
        }
        let pid = self.thread(tid)?.process;
        let mut space = self.space_of(pid)?;
        self.lab.run(cpu, &space);
        let mut loading = self.process(pid)?.loading;
        let mut queue = std::mem::take(&mut self.thread(tid)?.queue);
        let stop = loop {
            self.wake_kswapd(cpu, &space);
            let Some(item) = queue.front() else { break Some(WaitReason::Feed) };
            if !self.process(pid)?.phases.is_due(item.phase) {
                break Some(WaitReason::Phase);
            }
            let Some(item) = queue.pop_front() else { break Some(WaitReason::Feed) };
            self.queued -= 1;
            self.events += 1;
            match item.work {
                Work::Run(run) if loading => loading = self.load_run(cpu, pid, &space, &run)?,
                Work::Run(run) => self.make_run(cpu, pid, &space, &run)?,
                Work::Op(op) => {
                    let next = self.operate(cpu, pid, tid, op)?;
                    if self.process(pid)?.phases.done(item.phase) {
                        self.wake_phase(pid, cpu);
                    }
                    match next {
                        Progress::Stop => break None,
                        Progress::Continue => {}
                    }
                    // The process may have a new image.
                    space = self.space_of(pid)?;
                    loading = self.process(pid)?.loading;
                    self.lab.run(cpu, &space);
                    continue;
                }
            }
            if item.phase != 0 && self.process(pid)?.phases.done(item.phase) {
                self.wake_phase(pid, cpu);
            }
            if sim.clock(cpu) >= turn.until {
                break Some(WaitReason::Nothing);
            }
        };
        let now = sim.clock(cpu);
        let thread = self.thread(tid)?;
        thread.queue = queue;
        thread.stopped = now;
        if let Some(waits) = stop {
            thread.waits = waits;
        }
        self.leave_cpu(cpu, tid, now)
    }

    /// Tells the scheduler what became of a thread whose turn is over.
    fn leave_cpu(&mut self, cpu: CpuId, tid: u32, now: Picos) -> Result<(), CaptureReplayError> {
        match self.thread(tid)?.waits {
            WaitReason::Nothing => self.sched.put_back(ThreadId::new(tid), now),
            WaitReason::Ended => {
                self.thread(tid)?.end();
                self.sched.exit(ThreadId::new(tid));
            }
            // It stands still so that the capture's order is kept; the program would have gone on,
            // so its CPU is as busy as before and must be told of shootdowns.
            WaitReason::Phase => {
                self.waiting.push(tid);
                self.sched.block(ThreadId::new(tid));
            }
            // It sleeps in the kernel.
            WaitReason::Child(_) | WaitReason::Vfork(_) | WaitReason::Birth => {
                self.waiting.push(tid);
                self.sched.block(ThreadId::new(tid));
                self.lab.idle(cpu);
            }
            WaitReason::Feed => {
                self.thread(tid)?.waits = WaitReason::Nothing;
                self.sched.put_back(ThreadId::new(tid), now);
                self.starving = Some(tid);
            }
        }
        Ok(())
    }

    fn operate(&mut self, cpu: CpuId, pid: u32, tid: u32, op: Op) -> Result<Progress, CaptureReplayError> {
        self.lab.sim().charge(cpu, Cost::Syscall, 1);
        match op {
            Op::Call(call) => self.call(cpu, pid, &call).map(|()| Progress::Continue),
            Op::Task(task) => self.task(cpu, pid, tid, *task),
        }
    }

    /// A run before the image's first access to its data: those of the kernel belong to `execve`,
    /// which Linux counts for the image that called it. Returns whether that goes on.
    fn load_run(
        &mut self,
        cpu: CpuId,
        pid: u32,
        space: &Space<Sim<I>>,
        run: &AccessRun,
    ) -> Result<bool, CaptureReplayError> {
        let before = (space.minor_faults(), space.major_faults());
        self.make_run(cpu, pid, space, run)?;
        match (run.origin, run.stream) {
            (AccessOrigin::Kernel, _) => {
                let (minor, major) = (space.minor_faults() - before.0, space.major_faults() - before.1);
                self.count_for_replaced(pid, minor, major)?;
                Ok(true)
            }
            (AccessOrigin::User, AccessStream::Fetch) => Ok(true),
            (AccessOrigin::User, AccessStream::Data) => {
                self.process(pid)?.loading = false;
                Ok(false)
            }
        }
    }

    #[inline]
    fn make_run(
        &mut self,
        cpu: CpuId,
        pid: u32,
        space: &Space<Sim<I>>,
        run: &AccessRun,
    ) -> Result<(), CaptureReplayError> {
        let va = VirtAddr::from_page_index(run.page.0);
        self.accesses += run.accesses();
        let (reads, writes) = (u64::from(run.reads), u64::from(run.writes));
        let read = if run.stream == AccessStream::Fetch { Access::Exec } else { Access::Read };
        // At most two looks at the TLB: the first access decides which fault the page takes.
        let order = if run.write_first {
            [(Access::Write, writes), (read, reads)]
        } else {
            [(read, reads), (Access::Write, writes)]
        };
        for (access, times) in order {
            if times > 0 {
                self.touch(cpu, pid, space, va, access, times)?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn touch(
        &mut self,
        cpu: CpuId,
        pid: u32,
        space: &Space<Sim<I>>,
        va: VirtAddr,
        access: Access,
        times: u64,
    ) -> Result<(), CaptureReplayError> {
        let events = self.events;
        self.lab.touch(cpu, space, va, access, times).map_err(|error| match error {
            FaultError::OutOfMemory(error) => CaptureReplayError::OutOfMemory { pid, events, error },
            error => CaptureReplayError::Refused { pid, events, error },
        })
    }

    /// Wakes the threads of a process that waited for its next phase.
    fn wake_phase(&mut self, pid: u32, cpu: CpuId) {
        let now = self.lab.sim().clock(cpu);
        self.wake(now, |thread| thread.process == pid && thread.waits == WaitReason::Phase);
    }

    /// Wakes every thread for which `ready` holds.
    pub(super) fn wake(&mut self, now: Picos, ready: impl Fn(&Thread) -> bool) {
        self.waiting.retain(|&tid| {
            let Some(thread) = self.threads[tid as usize].as_mut() else { return false };
            if ready(thread) {
                thread.waits = WaitReason::Nothing;
                // The clock of who wakes it may be behind that of its own CPU; nobody goes on
                // before he stopped.
                self.sched.wake(ThreadId::new(tid), now.max(thread.stopped));
            }
            matches!(thread.waits, WaitReason::Phase | WaitReason::Child(_) | WaitReason::Vfork(_))
        });
    }

    /// Lets a born thread compete for CPUs.
    pub(super) fn schedule(&mut self, tid: u32, ready: Picos) -> Result<(), CaptureReplayError> {
        let cpus = self.cpus;
        let thread = self.thread(tid)?;
        thread.waits = WaitReason::Nothing;
        thread.stopped = ready;
        self.sched.add(ThreadId::new(tid), CpuMask::first(usize::from(cpus)), ready);
        Ok(())
    }

    /// A process whose birth has been fed.
    ///
    /// It has the number of its first thread.
    fn conceive(&mut self, pid: u32, tid: u32, parent: Option<u32>) -> Result<(), CaptureReplayError> {
        if pid != tid {
            return Err(self.inconsistent(TraceInconsistency::ThreadOutOfOrder(pid)));
        }
        self.conceive_thread(tid, pid)?;
        self.processes.resize_with(pid as usize, || None);
        self.processes.push(Some(Process::conceived(parent)));
        Ok(())
    }

    fn conceive_thread(&mut self, tid: u32, pid: u32) -> Result<(), CaptureReplayError> {
        // Nobody has number 0.
        self.threads.resize_with(self.threads.len().max(1), || None);
        if tid as usize != self.threads.len() {
            return Err(self.inconsistent(TraceInconsistency::ThreadOutOfOrder(tid)));
        }
        self.threads.push(Some(Thread::conceived(pid)));
        Ok(())
    }

    pub(super) fn thread(&mut self, tid: u32) -> Result<&mut Thread, CaptureReplayError> {
        let events = self.events;
        let thread = self.threads.get_mut(tid as usize).and_then(Option::as_mut);
        thread.ok_or(CaptureReplayError::Inconsistent { events, what: TraceInconsistency::UnknownThread(tid) })
    }

    pub(super) fn process(&mut self, pid: u32) -> Result<&mut Process<I>, CaptureReplayError> {
        let events = self.events;
        let process = self.processes.get_mut(pid as usize).and_then(Option::as_mut);
        process.ok_or(CaptureReplayError::Inconsistent { events, what: TraceInconsistency::UnknownProcess(pid) })
    }

    pub(super) fn space_of(&mut self, pid: u32) -> Result<Arc<Space<Sim<I>>>, CaptureReplayError> {
        let events = self.events;
        let space = self.process(pid)?.space.clone();
        space.ok_or(CaptureReplayError::Inconsistent { events, what: TraceInconsistency::UnknownProcess(pid) })
    }

    pub(super) fn inconsistent(&self, what: TraceInconsistency) -> CaptureReplayError {
        CaptureReplayError::Inconsistent { events: self.events, what }
    }

    /// Notes that the memory manager answered otherwise than Linux did.
    pub(super) fn diverge(&mut self, pid: u32, what: impl std::fmt::Display) {
        if self.diverged.len() < ReplayReport::DIVERGED {
            self.diverged.push(format!("process {pid}, event {}: {what}", self.events));
        }
    }

    /// Ends what the capture left running.
    fn end(&mut self) -> Result<(), CaptureReplayError> {
        for pid in 0..self.processes.len() as u32 {
            if self.processes[pid as usize].as_ref().is_some_and(|process| process.life == LifeState::Alive) {
                self.end_process(CpuId::new(0), pid)?;
            }
        }
        Ok(())
    }

    fn report(self, source: &dyn EventSource, config: &ReplayConfig, began: Instant) -> ReplayReport {
        let header = source.header();
        let sim = self.lab.sim();
        let machine = MachineEvent::ALL.iter().map(|event| (event.name(), sim.total(*event)));
        let kernel = Counter::ALL.iter().map(|counter| (counter.name(), self.lab.mm().counter(*counter)));
        let seconds = began.elapsed().as_secs_f64();
        let mut images = self.images;
        images.sort_by(|a, b| (&a.process, a.image).cmp(&(&b.process, b.image)));
        ReplayReport {
            command: header.command.clone(),
            isa: I::KIND.name(),
            config: config.counts(),
            profile: config.machine.profile.name().to_owned(),
            mappings_inferred: header.mappings == MappingSource::Premapped,
            counters: NamedCounts(
                [("pw_events", self.events), ("pw_accesses", self.accesses)]
                    .into_iter()
                    .chain(machine)
                    .chain(kernel)
                    .collect(),
            ),
            modelled: ModelledTimes {
                elapsed_ns: sim.elapsed().raw() / 1000,
                walk_ns: sim.total(MachineEvent::WalkTime) / 1000,
            },
            images,
            not_replayed: self.not_replayed.into_iter().map(|(call, times)| SkippedCall { call, times }).collect(),
            diverged: self.diverged,
            native: header.native.as_ref().map(|native| native.images.clone()).unwrap_or_default(),
            measured: MeasuredTimes {
                seconds,
                events_per_second: self.events as f64 / seconds,
                accesses_per_second: self.accesses as f64 / seconds,
            },
        }
    }
}
