//! The main loop of a replay: feed the queues, run threads in turns on the CPUs, and count.

use super::diverged::DivergedRanges;
use super::error::DivergedCall;
use super::faults::{FaultLog, FaultPair};
use super::kswapd::Kswapd;
use super::process::{LifeState, Process, Thread, WaitReason};
use super::queue::{Op, Work};

use super::forks::ForkLog;
use super::report::{MeasuredTimes, ModelledTimes, NamedCounts, OracleReport, ReplayReport, SkippedCall};
use super::settles::SettleReport;
use super::source::EventSource;
use super::tasks::Progress;
use super::timeline::CpuLog;
use super::turnover::{self, TierReport};
use super::{CaptureReplayError, ReplayConfig, TraceInconsistency};
use crate::ImageCounts;
use crate::trace::{AccessOrigin, AccessRun, AccessStream, MappingSource};
use pagewright_arch::Isa;
use pagewright_check::{CheckFinding, Testbench};
use pagewright_lab::{Lab, LabError};
use pagewright_mm::file::FileObject;
use pagewright_mm::{FaultError, MmSetting, MmSettings, Space};
use pagewright_sim::sched::{Scheduler, ThreadId, Turn};
use pagewright_sim::{Cost, MachineEvent, NodeAccesses, Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, CpuMask, VirtAddr};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// Number of items in all queues below which more of the capture is fed.
const WINDOW: usize = 1 << 14;

/// [`super::replay`] on the instruction set `I`.
pub(super) fn replay_on<I: Isa>(
    source: &mut dyn EventSource,
    config: &ReplayConfig,
) -> Result<ReplayReport, CaptureReplayError> {
    let began = Instant::now();
    let settings = MmSettings::default();
    // Linux granted the program's mappings when it was recorded, so a small machine must not refuse
    // them: overcommit always.
    settings.set(MmSetting::OvercommitMemory, 1)?;
    for (setting, value) in &config.settings {
        settings.set(*setting, *value)?;
    }
    let bench = if config.oracle {
        Some(Testbench::<I>::new(config.machine.clone()).map_err(LabError::Machine)?)
    } else {
        None
    };
    let lab = match &bench {
        Some(bench) => Lab::over(bench.sim().clone(), settings)?,
        None => Lab::new(config.machine.clone(), settings)?,
    };
    if config.swap_slots > 0 {
        lab.swap_on(config.swap_slots)?;
    }
    let mut engine = Engine::new(&lab, config);
    engine.run(source)?;
    engine.exit_remaining()?;
    let oracle = bench.as_ref().map(|bench| OracleReport {
        judged: NamedCounts(bench.oracle().tally().iter().map(|(what, times)| (what.name(), times)).collect()),
        findings: bench.findings().iter().map(CheckFinding::to_string).collect(),
    });
    Ok(ReplayReport { oracle, ..engine.report(source, config, began) })
}

/// The state of a replay.
pub(super) struct Engine<'l, I: Isa> {
    pub(super) lab: &'l Lab<I>,
    pub(super) sched: Scheduler,
    pub(super) kswapd: Vec<Kswapd>,
    cpus: u16,
    /// When the next tick of each CPU is due.
    pub(super) next_tick: Vec<Picos>,
    /// Indexed by the numbers of the trace; index 0 is unused.
    pub(super) processes: Vec<Option<Process<I>>>,
    /// Indexed as the processes.
    pub(super) threads: Vec<Option<Thread>>,
    /// Indexed as the processes.
    pub(super) files: Vec<Option<Arc<FileObject<Sim<I>>>>>,
    /// The thread to which the next event of the capture belongs.
    pub(super) fed_thread: u32,
    /// Number of events fed so far, which is the position of the latest one in the capture.
    pub(super) fed: u64,
    /// Number of items in all queues.
    pub(super) queued: usize,
    /// The thread whose queue was empty at the end of the latest turn.
    out_of_work: Option<u32>,
    /// The threads that wait for a phase or a child.
    waiting: Vec<u32>,
    pub(super) events: u64,
    accesses: u64,
    pub(super) images: Vec<ImageCounts>,
    faults: FaultLog,
    pub(super) over_time: CpuLog,
    pub(super) forks: ForkLog,
    pub(super) tiers: TierReport,
    pub(super) settles: SettleReport,
    pub(super) not_replayed: BTreeMap<String, u64>,
    /// The calls whose results are not Linux's, the first [`ReplayReport::DIVERGED`].
    pub(super) diverged: Vec<Rc<DivergedCall>>,
}

impl<'l, I: Isa> Engine<'l, I> {
    fn new(lab: &'l Lab<I>, config: &ReplayConfig) -> Self {
        let machine = &config.machine;
        Self {
            lab,
            sched: Scheduler::new(machine.cpus, config.slice, config.lookahead, machine.seed),
            kswapd: Kswapd::all(lab.sim()),
            cpus: machine.cpus,
            next_tick: vec![Picos::ZERO; usize::from(machine.cpus)],
            processes: Vec::new(),
            threads: Vec::new(),
            files: Vec::new(),
            fed_thread: 0,
            fed: 0,
            queued: 0,
            out_of_work: None,
            waiting: Vec::new(),
            events: 0,
            accesses: 0,
            images: Vec::new(),
            faults: FaultLog::new(lab),
            over_time: CpuLog::new(machine.cpus),
            forks: ForkLog::default(),
            tiers: TierReport::new(lab),
            settles: SettleReport::default(),
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
            self.block_if_out_of_work()?;
            let lab = self.lab;
            match self.sched.next(|cpu| lab.sim().clock(cpu)) {
                Some(turn) => self.turn(turn)?,
                None if more => more = self.feed_batch(source, &mut batch)?,
                None if self.queued == 0 => return Ok(()),
                None => return Err(self.inconsistent(self.stuck())),
            }
        }
    }

    /// Blocks the thread whose queue was empty at the end of its turn.
    ///
    /// If it has been fed since, it keeps its CPU, because the end of the window is not an event of
    /// the program.
    fn block_if_out_of_work(&mut self) -> Result<(), CaptureReplayError> {
        let Some(tid) = self.out_of_work.take() else { return Ok(()) };
        let thread = self.thread(tid)?;
        if thread.wait == WaitReason::Nothing && thread.queue.is_empty() {
            thread.wait = WaitReason::Events;
            self.sched.block(ThreadId::new(tid));
        }
        Ok(())
    }

    /// The reason why no thread can run although items are queued.
    fn stuck(&self) -> TraceInconsistency {
        let ended = |thread: &Thread| thread.wait == WaitReason::Exited && !thread.queue.is_empty();
        let ended = self.threads.iter().position(|thread| thread.as_ref().is_some_and(ended));
        ended.map_or(TraceInconsistency::Deadlock, |tid| TraceInconsistency::AfterExit(tid as u32))
    }

    pub(super) fn file(&self, id: u32) -> Result<Arc<FileObject<Sim<I>>>, CaptureReplayError> {
        let known = self.files.get(id as usize).and_then(Clone::clone);
        known.ok_or_else(|| self.inconsistent(TraceInconsistency::UnknownFile(id)))
    }

    /// Runs a thread on a CPU until its time is up or it stops.
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
            self.tick(cpu, &space);
            self.wake_kswapd(cpu, &space);
            let Some(item) = queue.front() else { break Some(WaitReason::Events) };
            if !self.process(pid)?.phases.is_due(item.phase) {
                break Some(WaitReason::Phase);
            }
            let Some(item) = queue.pop_front() else { break Some(WaitReason::Events) };
            self.queued -= 1;
            self.events += 1;
            match item.work {
                Work::Run(run) if loading => loading = self.execute_early_run(cpu, pid, &space, &run)?,
                Work::Run(run) => self.execute_run(cpu, pid, &space, &run)?,
                Work::Op(op) => {
                    let progress = self.execute_op(cpu, pid, tid, op)?;
                    self.over_time.note(self.lab, cpu);
                    if self.process(pid)?.phases.complete(item.phase) {
                        self.wake_phase(pid, cpu);
                    }
                    match progress {
                        Progress::Stop => break None,
                        Progress::Continue => {}
                    }
                    // An exec gives the process a new space.
                    space = self.space_of(pid)?;
                    loading = self.process(pid)?.loading;
                    self.lab.run(cpu, &space);
                    continue;
                }
            }
            if item.phase != 0 && self.process(pid)?.phases.complete(item.phase) {
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
        if let Some(wait) = stop {
            thread.wait = wait;
        }
        self.leave_cpu(cpu, tid, now)
    }

    /// Tells the scheduler the state of a thread whose turn is over.
    fn leave_cpu(&mut self, cpu: CpuId, tid: u32, now: Picos) -> Result<(), CaptureReplayError> {
        match self.thread(tid)?.wait {
            WaitReason::Nothing => self.sched.put_back(ThreadId::new(tid), now),
            WaitReason::Exited => {
                self.thread(tid)?.exit();
                self.sched.exit(ThreadId::new(tid));
            }
            // In the real program the thread was running; it waits only to keep the capture's
            // order. So its CPU is not idle, and shootdowns interrupt it.
            WaitReason::Phase => {
                self.waiting.push(tid);
                self.sched.block(ThreadId::new(tid));
            }
            // The thread sleeps in the kernel.
            WaitReason::Child(_) | WaitReason::Vfork(_) | WaitReason::Start => {
                self.waiting.push(tid);
                self.sched.block(ThreadId::new(tid));
                self.lab.idle(cpu);
            }
            WaitReason::Events => {
                self.thread(tid)?.wait = WaitReason::Nothing;
                self.sched.put_back(ThreadId::new(tid), now);
                self.out_of_work = Some(tid);
            }
        }
        Ok(())
    }

    fn execute_op(&mut self, cpu: CpuId, pid: u32, tid: u32, op: Op) -> Result<Progress, CaptureReplayError> {
        self.lab.sim().charge(cpu, Cost::Syscall, 1);
        match op {
            Op::Call(call, position) => {
                let mark = self.mark_settles(cpu);
                self.call(cpu, pid, position, &call)?;
                self.note_settle(cpu, mark);
                Ok(Progress::Continue)
            }
            Op::Task(task) => self.task(cpu, pid, tid, *task),
        }
    }

    /// Executes a run that precedes the image's first data access.
    ///
    /// Runs of the kernel are then those of `execve`, whose faults Linux counts for the image that
    /// called it. Returns whether the next run is also an early one.
    fn execute_early_run(
        &mut self,
        cpu: CpuId,
        pid: u32,
        space: &Space<Sim<I>>,
        run: &AccessRun,
    ) -> Result<bool, CaptureReplayError> {
        let before = (space.minor_faults(), space.major_faults());
        self.execute_run(cpu, pid, space, run)?;
        match (run.origin, run.stream) {
            (AccessOrigin::Kernel, _) => {
                let (minor, major) = (space.minor_faults() - before.0, space.major_faults() - before.1);
                self.count_for_previous_image(pid, minor, major)?;
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
    fn execute_run(
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
        // At most two TLB look-ups; the first access decides the type of the fault.
        let mut order = [(read, reads), (Access::Write, writes)];
        order.rotate_left(usize::from(run.write_first));
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
        let faults = || FaultPair { minor: space.minor_faults(), major: space.major_faults() };
        let (before, mark) = (faults(), self.mark_settles(cpu));
        let touched = self.lab.touch(cpu, space, va, access, times);
        let after = faults();
        self.note_settle(cpu, mark);
        if after != before {
            let new = FaultPair { minor: after.minor - before.minor, major: after.major - before.major };
            self.faults.note(self.lab, cpu, space, va, new);
            self.over_time.note(self.lab, cpu);
        }
        touched.map_err(|error| self.access_error(pid, va, error))
    }

    /// The error of an access, with the call that went wrong before, if one concerns its address.
    #[cold]
    fn access_error(&mut self, pid: u32, va: VirtAddr, error: FaultError) -> CaptureReplayError {
        let events = self.events;
        if let FaultError::OutOfMemory(error) = error {
            return CaptureReplayError::OutOfMemory { pid, events, error };
        }
        match self.diverged_ranges(pid).map(|ranges| ranges.at(va.raw())) {
            Ok(Some(call)) => CaptureReplayError::CallFailed { call: Box::new(call.clone()), error },
            Ok(None) | Err(_) => CaptureReplayError::Refused { pid, events, error },
        }
    }

    /// Wakes the threads of a process that wait for its next phase.
    fn wake_phase(&mut self, pid: u32, cpu: CpuId) {
        let now = self.lab.sim().clock(cpu);
        self.wake(now, |thread| thread.process == pid && thread.wait == WaitReason::Phase);
    }

    /// Wakes every thread for which `ready` holds.
    pub(super) fn wake(&mut self, now: Picos, ready: impl Fn(&Thread) -> bool) {
        self.waiting.retain(|&tid| {
            let Some(thread) = self.threads[tid as usize].as_mut() else { return false };
            if ready(thread) {
                thread.wait = WaitReason::Nothing;
                // The clock of the waking CPU may be behind the time when the thread stopped.
                self.sched.wake(ThreadId::new(tid), now.max(thread.stopped));
            }
            matches!(thread.wait, WaitReason::Phase | WaitReason::Child(_) | WaitReason::Vfork(_))
        });
    }

    /// Adds a new thread to the scheduler, runnable from the time `ready`.
    pub(super) fn schedule(&mut self, tid: u32, ready: Picos) -> Result<(), CaptureReplayError> {
        let cpus = self.cpus;
        let thread = self.thread(tid)?;
        thread.wait = WaitReason::Nothing;
        thread.stopped = ready;
        self.sched.add(ThreadId::new(tid), CpuMask::first(usize::from(cpus)), ready);
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

    /// Records that a result of the memory manager is not that of Linux.
    pub(super) fn diverge(&mut self, call: DivergedCall) -> Result<(), CaptureReplayError> {
        let call = Rc::new(call);
        self.diverged_ranges(call.pid)?.remember(&call);
        if self.diverged.len() < ReplayReport::DIVERGED {
            self.diverged.push(call);
        }
        Ok(())
    }

    /// The diverged calls of the space of a process, which may be its parent's.
    pub(super) fn diverged_ranges(&mut self, pid: u32) -> Result<&mut DivergedRanges, CaptureReplayError> {
        let mut owner = pid;
        while let (true, Some(parent)) = (self.process(owner)?.borrowed, self.process(owner)?.parent) {
            owner = parent;
        }
        Ok(&mut self.process(owner)?.diverged)
    }

    /// Ends the processes that have no exit in the capture.
    fn exit_remaining(&mut self) -> Result<(), CaptureReplayError> {
        for pid in 0..self.processes.len() as u32 {
            if self.processes[pid as usize].as_ref().is_some_and(|process| process.life == LifeState::Alive) {
                self.exit_process(CpuId::new(0), pid)?;
            }
        }
        Ok(())
    }

    fn report(self, source: &dyn EventSource, config: &ReplayConfig, began: Instant) -> ReplayReport {
        let header = source.header();
        let sim = self.lab.sim();
        let seconds = began.elapsed().as_secs_f64();
        let accesses = sim.node_accesses();
        let memory_ns = |latency: fn(&NodeAccesses) -> Picos| {
            let time = |pair: &NodeAccesses| latency(pair).raw() * (pair.loads + pair.stores);
            accesses.iter().map(time).sum::<u64>() / 1000
        };
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
                    .chain(turnover::counters(self.lab))
                    .collect(),
            ),
            modelled: ModelledTimes {
                elapsed_ns: sim.elapsed().raw() / 1000,
                walk_ns: sim.total(MachineEvent::WalkTime) / 1000,
                flush_wait_ns: sim.total(MachineEvent::FlushWaitTime) / 1000,
                memory_ns: memory_ns(|pair| pair.latency),
                memory_ns_band: [memory_ns(|pair| pair.band[0]), memory_ns(|pair| pair.band[1])],
            },
            forks: self.forks.report(),
            images,
            faults_by_mapping: self.faults.by_mapping(),
            faults_over_time: self.faults.timeline(),
            cpus_over_time: self.over_time.report(),
            nodes: self.faults.nodes(self.lab),
            not_replayed: self.not_replayed.into_iter().map(|(call, times)| SkippedCall { call, times }).collect(),
            tiers: self.tiers,
            settles: self.settles,
            oracle: None,
            diverged: self.diverged.iter().map(|call| call.to_string()).collect(),
            native: header.native.as_ref().map(|native| native.images.clone()).unwrap_or_default(),
            measured: MeasuredTimes {
                seconds,
                events_per_second: self.events as f64 / seconds,
                accesses_per_second: self.accesses as f64 / seconds,
            },
        }
    }
}
