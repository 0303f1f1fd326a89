//! The scheduler: one run, with a program for each CPU, under a chooser.
//!
//! ```text
//!   loop:  list the ready agents ─▶ chooser ─▶ a CPU: run its coroutine to its next stop
//!                                           └▶ another agent: drain, deliver, walk, speculate, evict
//! ```
//!
//! A CPU that waits (for a lock or an acknowledgement) is ready again when another CPU has made
//! progress since its last check. If no agent can make progress, the run is a deadlock.
//!
//! **INV-SIM-REPLAY** A run is a function of machine, programs, settings and choices. The same
//! token gives the same steps, and the choices of those steps give them again. Nothing here depends
//! on the host: no address, no hash of an address, no time.

use super::acts::{Act, MachineView};
use super::coroutine::{self, Coroutine, CoroutineBody, Resume, Suspension};
use super::footprint::Footprint;
use super::in_flight::WalkProgress;
use super::point::StopPoint;
use super::schedule::{Agent, AgentKind, Choice, Chooser, ReadyAgent, ReplayChooser, Schedule};
use super::state::{RunState, StateHash};
use super::step::{ScheduleStep, StepAction};
use super::walks::Serial;
use crate::backend::{self, Running};
use crate::machine::Sim;
use pagewright_arch::Isa;
use pagewright_sync::RankSet;
use pagewright_types::{Access, CpuId, IsaKind, PhysAddr, VirtAddr};
use std::rc::Rc;

/// The settings of a run, apart from its schedule.
#[derive(Clone)]
pub struct ExploreSettings {
    /// The step limit; a run that reaches it ends with [`RunEnd::StepLimit`].
    pub max_steps: u32,
    /// The most steps that a store stays in a buffer, whatever the schedule chooses.
    pub max_wait: u32,
    /// The most speculative walks in flight at once on one CPU.
    pub walks: u8,
    /// Addresses near which walks may be speculated from the start.
    ///
    /// Addresses that programs access are added during the run.
    pub speculate_near: Vec<VirtAddr>,
    /// Whether steps are logged.
    pub log: bool,
    /// Called after each step; the run stops when it returns true.
    ///
    /// It must not act on the machine.
    pub stop: Option<Rc<dyn Fn() -> bool>>,
}

impl Default for ExploreSettings {
    fn default() -> Self {
        Self { max_steps: 20_000, max_wait: 60, walks: 2, speculate_near: Vec::new(), log: false, stop: None }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All programs have ended, and all interrupts were taken.
    Completed,
    /// [`ExploreSettings::stop`] stopped the run.
    Stopped,
    /// No CPU can make progress.
    Deadlock {
        /// The point at which each CPU is stopped.
        stopped_at: Vec<(CpuId, StopPoint)>,
    },
    /// A program panicked.
    Panicked {
        /// The CPU of the program.
        cpu: CpuId,
        /// The source location and the message of the panic.
        message: String,
    },
    /// The programs still ran after [`ExploreSettings::max_steps`].
    StepLimit,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How it ended.
    pub end: RunEnd,
    /// Steps taken.
    pub steps: u32,
    /// A hash of all steps; runs with equal steps have equal hashes.
    pub trace: u64,
    /// The choices of the run.
    pub schedule: Schedule,
    /// The steps, if the settings log them.
    pub log: Vec<ScheduleStep>,
    /// CPUs whose programs could not be run to their end.
    ///
    /// Their stacks, and the values on them, are leaked. The machine must not be used any more if
    /// there are such CPUs, or if the run ended by anything but [`RunEnd::Completed`] or
    /// [`RunEnd::Stopped`].
    pub abandoned: u32,
}

/// One CPU of the run.
struct Cpu {
    /// `None` after a panic.
    coroutine: Option<Coroutine>,
    at: StopPoint,
    /// The value of `progress` when the CPU last checked whether it could go on.
    checked: u64,
    running: Running,
    depth: u32,
}

impl<I: Isa> MachineView for Explorer<'_, I> {
    fn last_footprint(&self) -> Footprint {
        self.sim.take_footprint()
    }

    fn waits(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].at.waits()
    }

    fn has_checked(&self, cpu: CpuId) -> bool {
        self.waits(cpu) && self.cpus[cpu.index()].checked >= self.progress
    }

    fn state(&self) -> Option<RunState> {
        let (mut judge, mut machine) = (StateHash::default(), StateHash::default());
        if !self.sim.hash_judge(&mut judge) {
            return None;
        }
        for cpu in &self.cpus {
            let checked = cpu.at.waits() && cpu.checked >= self.progress;
            machine.add(("CPU", cpu.running.cpu, cpu.coroutine.is_some(), cpu.at, checked));
        }
        self.sim.hash_machine(&mut machine);
        let programs = self.sim.hash_of_programs();
        Some(RunState { programs, machine: machine.value(), judge: judge.value() })
    }

    fn interrupts_disabled(&self, cpu: CpuId) -> bool {
        self.sim.core(cpu).interrupts_off.get() > 0
    }

    fn acts(&self, ready: &[ReadyAgent]) -> Vec<Act> {
        self.sim.acts_of(ready)
    }
}

struct Explorer<'a, I: Isa> {
    sim: &'a Sim<I>,
    settings: &'a ExploreSettings,
    cpus: Vec<Cpu>,
    ready: Vec<ReadyAgent>,
    last: CpuId,
    /// Counts the steps that a waiting CPU could depend on.
    progress: u64,
    steps: u32,
    /// The step limit.
    limit: u32,
    /// Whether the result is known, and the programs only have to end.
    winding_down: bool,
    trace: u64,
    schedule: Schedule,
    log: Vec<ScheduleStep>,
}

/// Runs `programs`, the first on CPU 0 and so on, under `chooser`.
///
/// CPUs without a program only take interrupts.
///
/// A program acts on its own CPU, by [`Sim::access`], the effects, and locks of
/// [`crate::SimLocks`]. [`Sim::run_on`] works as in fast mode. When the run is over, the machine is
/// at rest and in fast mode again: everything in flight has arrived.
///
/// After [`RunEnd::Stopped`] or a panic, the other programs run to their end under the default
/// schedule, without a judge. A program that cannot end is abandoned.
///
/// # Panics
/// When there are more programs than CPUs, or when called in another run or in an operation of this
/// machine.
pub fn run<I: Isa>(
    sim: &Sim<I>,
    settings: &ExploreSettings,
    programs: Vec<CoroutineBody>,
    chooser: &mut dyn Chooser,
) -> RunReport {
    assert!(programs.len() <= sim.0.cores.len(), "{} programs for {} CPUs", programs.len(), sim.0.cores.len());
    assert!(!coroutine::inside() && sim.0.depth.get() == 0, "a run starts inside another run or an operation");
    let machine = sim.clone();
    let outer_handler = coroutine::bind_handler(Some(Rc::new(move || machine.take_interrupt())));
    let before = sim.0.current.get();
    sim.set_exploring(true);
    let near = settings.speculate_near.iter().map(|va| va.align_down(sim.0.config.granule.bytes()));
    sim.0.in_flight.recent.borrow_mut().extend(near);
    let mut explorer = Explorer::new(sim, settings, programs);
    // The tables that the set-up has made are watched from the first step on.
    sim.find_pointer_stores();
    sim.0.in_flight.seen.begin(chooser.compares_states());
    explorer.schedule.left_out = chooser.left_out().to_vec();
    let end = explorer.explore(chooser);
    chooser.ended(&explorer);
    let report = explorer.end(end);
    sim.quiesce();
    sim.set_exploring(false);
    sim.0.current.set(before);
    sim.0.depth.set(0);
    coroutine::bind_handler(outer_handler);
    report
}

impl<I: Isa> Sim<I> {
    /// The current step of the run, counted from 1; 0 outside of a run.
    pub fn explored_step(&self) -> u32 {
        self.0.in_flight.step.get() as u32
    }
}

impl<'a, I: Isa> Explorer<'a, I> {
    fn new(sim: &'a Sim<I>, settings: &'a ExploreSettings, programs: Vec<CoroutineBody>) -> Self {
        let mut explorer = Self {
            sim,
            settings,
            cpus: Vec::new(),
            ready: Vec::new(),
            last: CpuId::new(0),
            progress: 1,
            steps: 0,
            limit: settings.max_steps,
            winding_down: false,
            trace: 0xcbf2_9ce4_8422_2325,
            schedule: Schedule::default(),
            log: Vec::new(),
        };
        let mut programs = programs.into_iter();
        for (index, core) in sim.0.cores.iter().enumerate() {
            let cpu = CpuId::new(index as u16);
            let program = programs.next();
            let body = move || {
                if let Some(program) = program {
                    coroutine::stop_at(StopPoint::Start);
                    program();
                }
                while coroutine::stop_at(StopPoint::Idle) != Resume::Finish {}
            };
            let (coroutine, stop) = Coroutine::start(Box::new(body));
            let Suspension::At(at) = stop else { unreachable!("a program stops before it starts") };
            let running = Running { cpu, held: RankSet::EMPTY };
            core.held.set(RankSet::EMPTY);
            explorer.cpus.push(Cpu { coroutine: Some(coroutine), at, checked: 0, running, depth: 0 });
        }
        explorer
    }

    fn explore(&mut self, chooser: &mut dyn Chooser) -> RunEnd {
        loop {
            let stop = self.settings.stop.as_ref().filter(|_| !self.winding_down);
            if stop.is_some_and(|stop| stop()) {
                return RunEnd::Stopped;
            }
            if self.is_finished() {
                return RunEnd::Completed;
            }
            if self.steps >= self.limit {
                return RunEnd::StepLimit;
            }
            let overdue = u64::from(self.steps.saturating_sub(self.settings.max_wait));
            self.sim.0.in_flight.stores.borrow_mut().drain_before(overdue);
            if !self.list_ready() {
                let stopped_at = self.cpus.iter().map(|cpu| (cpu.running.cpu, cpu.at)).collect();
                return RunEnd::Deadlock { stopped_at };
            }
            let Some(choice) = chooser.next_on(&*self, &self.ready, self.last) else { return RunEnd::Stopped };
            if let Err(end) = self.act(choice, chooser) {
                return end;
            }
        }
    }

    fn is_finished(&self) -> bool {
        let at_rest = |cpu: &Cpu| cpu.at == StopPoint::Idle && !self.core(cpu).in_flight.ipi_pending.get();
        self.cpus.iter().all(at_rest)
    }

    fn core(&self, cpu: &Cpu) -> &crate::core::Core {
        self.sim.core(cpu.running.cpu)
    }

    /// Lists the agents that can act; returns whether one of them can make progress.
    fn list_ready(&mut self) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let in_flight = &self.sim.0.in_flight;
        let broadcasts = in_flight.broadcasts.borrow();
        let stores = in_flight.stores.borrow();
        let near = in_flight.recent.borrow().len() as u32 * 3;
        for cpu in self.cpus.iter().filter(|cpu| cpu.coroutine.is_some()) {
            let (id, core) = (cpu.running.cpu, self.core(cpu));
            let mut add = |kind, ways: u32| {
                if ways > 0 {
                    ready.push(ReadyAgent { agent: Agent { kind, cpu: id }, ways });
                }
            };
            let goes_on = cpu.at != StopPoint::Idle && (!cpu.at.waits() || cpu.checked < self.progress);
            add(AgentKind::Cpu, u32::from(goes_on));
            let takes = core.in_flight.ipi_pending.get() && core.interrupts_off.get() == 0;
            add(AgentKind::Interrupt, u32::from(takes));
            add(AgentKind::Drain, stores.ways(I::KIND, id));
            add(
                AgentKind::Deliver,
                broadcasts.iter().filter(|broadcast| broadcast.undelivered.contains(id)).count() as u32,
            );
            let speculated = core.in_flight.walks.borrow().iter().filter(|walk| !walk.demanded).count() as u32;
            add(AgentKind::Walk, speculated);
        }
        let can_progress = !ready.is_empty();
        for cpu in &self.cpus {
            let (id, core) = (cpu.running.cpu, self.core(cpu));
            let speculated = ready.iter().find(|ready| ready.agent == Agent { kind: AgentKind::Walk, cpu: id });
            let speculates = self.sim.0.online.get().contains(id)
                && core.root.get().is_some()
                && speculated.map_or(0, |walks| walks.ways) < self.settings.walks.into();
            if speculates && near > 0 {
                ready.push(ReadyAgent { agent: Agent { kind: AgentKind::Speculate, cpu: id }, ways: near });
            }
            let held = core.tlbs.borrow().len() as u32;
            if held > 0 {
                ready.push(ReadyAgent { agent: Agent { kind: AgentKind::Evict, cpu: id }, ways: held });
            }
        }
        self.ready = ready;
        can_progress
    }

    fn act(&mut self, choice: Choice, chooser: &mut dyn Chooser) -> Result<(), RunEnd> {
        let Choice { agent: Agent { kind, cpu }, way } = choice;
        self.schedule.push(choice);
        self.steps += 1;
        self.sim.0.in_flight.step.set(u64::from(self.steps));
        if chooser.wants_footprint() {
            self.sim.begin_footprint();
        }
        let action = match kind {
            AgentKind::Cpu | AgentKind::Pick => StepAction::Executed(self.cpus[cpu.index()].at),
            AgentKind::Interrupt => StepAction::TookInterrupt,
            AgentKind::Drain => StepAction::Drained(self.drain(cpu, way)),
            AgentKind::Deliver => match self.sim.deliver_broadcast(cpu, way) {
                Some(target) => StepAction::Delivered(target),
                None => unreachable!("no broadcast is in flight to CPU {cpu}"),
            },
            AgentKind::Walk => self.walk(cpu, way),
            AgentKind::Speculate => StepAction::SpeculationStarted(self.speculate(cpu, way)),
            AgentKind::Evict => {
                self.sim.core(cpu).tlbs.borrow_mut().evict(way as usize);
                StepAction::Evicted
            }
        };
        self.record(choice, ScheduleStep { at: self.steps, cpu, action });
        match kind {
            AgentKind::Cpu | AgentKind::Pick => self.resume_cpu(cpu, Resume::Proceed, chooser),
            AgentKind::Interrupt => self.resume_cpu(cpu, Resume::TakeInterrupt, chooser),
            // No CPU waits for these agents: only CPUs release locks and acknowledge IPIs.
            AgentKind::Drain | AgentKind::Deliver | AgentKind::Walk | AgentKind::Speculate | AgentKind::Evict => Ok(()),
        }
    }

    fn record(&mut self, choice: Choice, step: ScheduleStep) {
        let operands = match step.action {
            StepAction::Executed(point) | StepAction::SpeculativeWalk(point) => point.fingerprint(),
            StepAction::Drained(at) => at.raw(),
            StepAction::SpeculationStarted(va) => va.raw(),
            StepAction::TookInterrupt | StepAction::Delivered(_) | StepAction::Evicted | StepAction::Picked(_) => 0,
        };
        let agent = (choice.agent.kind as u64) << 48 | u64::from(choice.agent.cpu.raw()) << 32 | u64::from(choice.way);
        for word in [agent, operands] {
            // FNV-1a by words, turned so that high bits count too.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if self.settings.log {
            self.log.push(step);
        }
    }

    fn drain(&self, cpu: CpuId, way: u32) -> PhysAddr {
        let drained = self.sim.0.in_flight.stores.borrow_mut().drain_way(I::KIND, cpu, way);
        drained.unwrap_or_else(|| unreachable!("no store of CPU {cpu} is in its buffer"))
    }

    fn walk(&self, cpu: CpuId, way: u32) -> StepAction {
        let core = self.sim.core(cpu);
        let nth = |way: u32| -> Option<Serial> {
            let walks = core.in_flight.walks.borrow();
            walks.iter().filter(|walk| !walk.demanded).nth(way as usize).map(|walk| walk.serial)
        };
        let step = nth(way).and_then(|serial| Some((serial, self.sim.walk_point(core, serial)?)));
        let Some((serial, point)) = step else { unreachable!("CPU {cpu} has a walk in walk") };
        match self.sim.step_walk(cpu, core, serial) {
            WalkProgress::More | WalkProgress::Filled(_) | WalkProgress::Refused { .. } | WalkProgress::Cancelled => {
                StepAction::SpeculativeWalk(point)
            }
        }
    }

    fn speculate(&self, cpu: CpuId, way: u32) -> VirtAddr {
        let va = self.sim.speculated(way);
        let core = self.sim.core(cpu);
        if let Some(root) = core.root_for(I::KIND, va) {
            self.sim.start_walk(core, root, va, Access::Read, false);
        }
        va
    }

    /// Resumes a CPU until its next stop, and asks `chooser` at each choice on the way.
    fn resume_cpu(&mut self, cpu: CpuId, resume: Resume, chooser: &mut dyn Chooser) -> Result<(), RunEnd> {
        self.last = cpu;
        let from = self.cpus[cpu.index()].at;
        if from == StopPoint::Lock && I::KIND == IsaKind::X86_64 {
            // Taking a lock executes a locked instruction.
            self.sim.draining(|stores| stores.drain_all(cpu));
        }
        let mut stop = self.resume(cpu, resume);
        while let Suspension::At(StopPoint::Choose(ways)) = stop {
            let way = chooser.pick(cpu, ways);
            let choice = Choice { agent: Agent { kind: AgentKind::Pick, cpu }, way };
            self.schedule.push(choice);
            self.record(choice, ScheduleStep { at: self.steps, cpu, action: StepAction::Picked(way) });
            stop = self.resume(cpu, Resume::Choice(way));
        }
        match stop {
            Suspension::At(at) => {
                self.sim.0.in_flight.seen.passed(cpu, resume == Resume::TakeInterrupt, from, at);
                let only_checked = resume == Resume::Proceed && from.waits() && from == at;
                if !only_checked {
                    self.progress += 1;
                }
                let state = &mut self.cpus[cpu.index()];
                state.at = at;
                // A CPU that has just come to this point checks at least once.
                state.checked = if only_checked { self.progress } else { 0 };
                Ok(())
            }
            Suspension::Panicked(message) => {
                self.cpus[cpu.index()].at = StopPoint::Idle;
                if let Some(coroutine) = self.cpus[cpu.index()].coroutine.take() {
                    coroutine.retire();
                }
                Err(RunEnd::Panicked { cpu, message })
            }
            Suspension::Ready => unreachable!("CPU {cpu} ended its coroutine before the run ended"),
        }
    }

    /// Switches to the coroutine of a CPU and back.
    fn resume(&mut self, cpu: CpuId, resume: Resume) -> Suspension {
        let state = &mut self.cpus[cpu.index()];
        let Some(coroutine) = &mut state.coroutine else { unreachable!("CPU {cpu} has panicked and cannot run") };
        let machine = &self.sim.0;
        machine.current.set(cpu);
        machine.depth.set(state.depth);
        let outer = backend::switch(state.running);
        let stop = coroutine.resume(resume);
        self.sim.find_pointer_stores();
        state.running = backend::switch(outer);
        state.depth = machine.depth.get();
        stop
    }

    /// Runs the programs to their end if that is possible, and returns the report.
    fn end(mut self, end: RunEnd) -> RunReport {
        let (steps, trace) = (self.steps, self.trace);
        let (schedule, log) = (std::mem::take(&mut self.schedule), std::mem::take(&mut self.log));
        match end {
            RunEnd::Stopped | RunEnd::Panicked { .. } => self.wind_down(),
            RunEnd::Completed | RunEnd::Deadlock { .. } | RunEnd::StepLimit => {}
        }
        let mut abandoned = 0;
        for index in 0..self.cpus.len() {
            let cpu = CpuId::new(index as u16);
            if self.cpus[index].coroutine.is_some() && self.cpus[index].at == StopPoint::Idle {
                self.resume(cpu, Resume::Finish);
            }
            if let Some(coroutine) = self.cpus[index].coroutine.take() {
                abandoned += u32::from(!coroutine.is_idle());
                coroutine.retire();
            }
        }
        RunReport { end, steps, trace, schedule, log, abandoned }
    }

    /// Runs the programs to their end under the default schedule, without a judge.
    fn wind_down(&mut self) {
        let judged = self.sim.0.judged.get();
        self.sim.set_judged(false);
        self.winding_down = true;
        self.sim.take_footprint();
        self.limit = self.steps.saturating_add(self.settings.max_steps);
        let mut chooser = ReplayChooser::default_schedule();
        while matches!(self.explore(&mut chooser), RunEnd::Panicked { .. }) {}
        self.sim.set_judged(judged);
    }
}
