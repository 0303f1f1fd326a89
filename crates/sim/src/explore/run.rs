//! The scheduler: one run of programs, one for each CPU, under a chooser.
//!
//! ```text
//!   loop:  who is ready? ─▶ chooser ─▶ a CPU: let its coroutine run to its next point
//!                                   └▶ anything else: drain, deliver, walk, speculate, evict – done here
//! ```
//!
//! A CPU that only waits (for a lock, for an answer) is ready again when anybody has done something
//! since it last looked. If nobody can do anything that matters, it is a deadlock.
//!
//! Nothing here depends on the host: no address, no hash of one, no time. So the same choices give
//! the same run (INV-SIM-REPLAY).

use super::coroutine::{self, Coroutine, CoroutineBody, Go, Stop};
use super::in_flight::Progress;
use super::point::StopPoint;
use super::schedule::{Agent, AgentKind, Choice, Chooser, ReadyAgent, ReplayChooser, Schedule};
use super::step::{ScheduleStep, StepAction};
use super::walks::Serial;
use crate::backend::{self, Running};
use crate::machine::Sim;
use pagewright_arch::Isa;
use pagewright_sync::RankSet;
use pagewright_types::{Access, CpuId, IsaKind, PAGE_SIZE, PhysAddr, VirtAddr};
use std::rc::Rc;

/// How a run is set up, apart from its schedule.
#[derive(Clone)]
pub struct ExploreSettings {
    /// Steps after which a run is [`RunEnd::StepLimit`].
    pub max_steps: u32,
    /// Steps after which a store drains whatever the schedule says.
    pub max_wait: u32,
    /// Speculative walks in flight at once on one CPU.
    pub walks: u8,
    /// Addresses near which walks may be speculated from the start; those that programs touch join
    /// them.
    pub speculate_near: Vec<VirtAddr>,
    /// Whether steps are logged.
    pub log: bool,
    /// Asked after each step: whether enough was seen, such as a violation.
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
    /// [`ExploreSettings::stop`] said so.
    Stopped,
    /// Nobody can go on.
    ///
    /// What each CPU stands before.
    Deadlock {
        /// By CPU.
        stopped_at: Vec<(CpuId, StopPoint)>,
    },
    /// A program panicked.
    Panicked {
        /// Where.
        cpu: CpuId,
        /// Place and message.
        message: String,
    },
    /// Still running after [`ExploreSettings::max_steps`].
    StepLimit,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How it ended.
    pub end: RunEnd,
    /// Steps taken.
    pub steps: u32,
    /// A fingerprint of all steps: equal traces have equal ones.
    pub trace: u64,
    /// What was chosen.
    pub schedule: Schedule,
    /// The steps, if they were to be logged.
    pub log: Vec<ScheduleStep>,
    /// CPUs whose programs could not be brought to an end afterwards; their stacks, and what stands
    /// on them, are leaked. Then, and after anything but [`RunEnd::Completed`] and
    /// [`RunEnd::Stopped`], the machine is of no more use.
    pub abandoned: u32,
}

/// One CPU of the run.
struct Cpu {
    /// `None` after a panic.
    coroutine: Option<Coroutine>,
    at: StopPoint,
    /// How much had been done when it last looked whether it could go on.
    looked: u64,
    running: Running,
    depth: u32,
}

struct Explorer<'a, I: Isa> {
    sim: &'a Sim<I>,
    settings: &'a ExploreSettings,
    cpus: Vec<Cpu>,
    ready: Vec<ReadyAgent>,
    last: CpuId,
    /// Steps that could matter to somebody who waits.
    done: u64,
    steps: u32,
    /// Steps after which it is enough.
    limit: u32,
    /// Whether the run has been judged, and the programs only have to end.
    winding_down: bool,
    trace: u64,
    schedule: Schedule,
    log: Vec<ScheduleStep>,
}

/// Runs `programs`, the first on CPU 0 and so on, under `chooser`.
///
/// CPUs without a program take interrupts.
///
/// A program acts on its own CPU: [`Sim::access`], the effects, locks of [`crate::SimLocks`];
/// [`Sim::run_on`] works as in fast mode. When the run is over the machine is at rest and in fast
/// mode again, with everything under way arrived.
///
/// After [`RunEnd::Stopped`] or a panic the programs go on calmly, unjudged, so that they end; one
/// that can't is abandoned.
///
/// # Panics
/// When there are more programs than CPUs, or inside another run or an operation of this machine.
pub fn run<I: Isa>(
    sim: &Sim<I>,
    settings: &ExploreSettings,
    programs: Vec<CoroutineBody>,
    chooser: &mut dyn Chooser,
) -> RunReport {
    assert!(programs.len() <= sim.0.cores.len(), "{} programs for {} CPUs", programs.len(), sim.0.cores.len());
    assert!(!coroutine::inside() && sim.0.depth.get() == 0, "schedules are explored from outside");
    let machine = sim.clone();
    let outer_handler = coroutine::bind_handler(Some(Rc::new(move || machine.take_interrupt())));
    let before = sim.0.current.get();
    sim.set_exploring(true);
    sim.0.in_flight.recent.borrow_mut().extend(settings.speculate_near.iter().map(|va| va.align_down(PAGE_SIZE)));
    let mut explorer = Explorer::new(sim, settings, programs);
    let end = explorer.explore(chooser);
    let report = explorer.end(end);
    sim.settle();
    sim.set_exploring(false);
    sim.0.current.set(before);
    sim.0.depth.set(0);
    coroutine::bind_handler(outer_handler);
    report
}

impl<I: Isa> Sim<I> {
    /// Which step of a run is being taken, counted from 1; 0 outside of runs.
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
            done: 1,
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
                while coroutine::stop_at(StopPoint::Idle) != Go::Home {}
            };
            let (coroutine, stop) = Coroutine::start(Box::new(body));
            let Stop::At(at) = stop else { unreachable!("a program starts by stopping") };
            let running = Running { cpu, held: RankSet::EMPTY };
            core.held.set(RankSet::EMPTY);
            explorer.cpus.push(Cpu { coroutine: Some(coroutine), at, looked: 0, running, depth: 0 });
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
            let choice = chooser.next(&self.ready, self.last);
            if let Err(end) = self.act(choice, chooser) {
                return end;
            }
        }
    }

    fn is_finished(&self) -> bool {
        let resting = |cpu: &Cpu| cpu.at == StopPoint::Idle && !self.core(cpu).in_flight.interrupted.get();
        self.cpus.iter().all(resting)
    }

    fn core(&self, cpu: &Cpu) -> &crate::core::Core {
        self.sim.core(cpu.running.cpu)
    }

    /// Lists who can act; says whether anybody among them can matter to those who wait.
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
            let goes_on = cpu.at != StopPoint::Idle && (!cpu.at.waits() || cpu.looked < self.done);
            add(AgentKind::Cpu, u32::from(goes_on));
            let takes = core.in_flight.interrupted.get() && core.closed.get() == 0;
            add(AgentKind::Interrupt, u32::from(takes));
            add(AgentKind::Drain, stores.ways(I::KIND, id));
            add(
                AgentKind::Deliver,
                broadcasts.iter().filter(|broadcast| broadcast.on_its_way.contains(id)).count() as u32,
            );
            let speculated = core.in_flight.walks.borrow().iter().filter(|flight| !flight.demanded).count() as u32;
            add(AgentKind::Walk, speculated);
        }
        let matters = !ready.is_empty();
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
        matters
    }

    fn act(&mut self, choice: Choice, chooser: &mut dyn Chooser) -> Result<(), RunEnd> {
        let Choice { agent: Agent { kind, cpu }, way } = choice;
        self.schedule.push(choice);
        self.steps += 1;
        self.sim.0.in_flight.step.set(u64::from(self.steps));
        let action = match kind {
            AgentKind::Cpu | AgentKind::Pick => StepAction::Executed(self.cpus[cpu.index()].at),
            AgentKind::Interrupt => StepAction::TookInterrupt,
            AgentKind::Drain => StepAction::Drained(self.drain(cpu, way)),
            AgentKind::Deliver => match self.sim.deliver(cpu, way) {
                Some(target) => StepAction::Delivered(target),
                None => unreachable!("a broadcast was on its way to CPU {cpu}"),
            },
            AgentKind::Walk => self.walk(cpu, way),
            AgentKind::Speculate => StepAction::SpeculationStarted(self.speculate(cpu, way)),
            AgentKind::Evict => {
                self.sim.core(cpu).tlbs.borrow_mut().evict(way as usize);
                StepAction::Evicted
            }
        };
        self.note(choice, ScheduleStep { at: self.steps, cpu, action });
        match kind {
            AgentKind::Cpu | AgentKind::Pick => self.let_run(cpu, Go::On, chooser),
            AgentKind::Interrupt => self.let_run(cpu, Go::Interrupt, chooser),
            // Nobody waits for any of these: locks and answers are given by CPUs.
            AgentKind::Drain | AgentKind::Deliver | AgentKind::Walk | AgentKind::Speculate | AgentKind::Evict => Ok(()),
        }
    }

    fn note(&mut self, choice: Choice, step: ScheduleStep) {
        let print = match step.action {
            StepAction::Executed(point) | StepAction::SpeculativeWalk(point) => point.fingerprint(),
            StepAction::Drained(at) => at.raw(),
            StepAction::SpeculationStarted(va) => va.raw(),
            StepAction::TookInterrupt | StepAction::Delivered(_) | StepAction::Evicted | StepAction::Picked(_) => 0,
        };
        let who = (choice.agent.kind as u64) << 48 | u64::from(choice.agent.cpu.raw()) << 32 | u64::from(choice.way);
        for word in [who, print] {
            // FNV-1a by words, turned so that high bits count too.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if self.settings.log {
            self.log.push(step);
        }
    }

    fn drain(&self, cpu: CpuId, way: u32) -> PhysAddr {
        let drained = self.sim.0.in_flight.stores.borrow_mut().drain_way(I::KIND, cpu, way);
        drained.unwrap_or_else(|| unreachable!("a store of CPU {cpu} was waiting"))
    }

    fn walk(&self, cpu: CpuId, way: u32) -> StepAction {
        let core = self.sim.core(cpu);
        let nth = |way: u32| -> Option<Serial> {
            let walks = core.in_flight.walks.borrow();
            walks.iter().filter(|flight| !flight.demanded).nth(way as usize).map(|flight| flight.serial)
        };
        let step = nth(way).and_then(|serial| Some((serial, self.sim.point_of(core, serial)?)));
        let Some((serial, point)) = step else { unreachable!("CPU {cpu} has a walk in flight") };
        match self.sim.advance(cpu, core, serial) {
            Progress::More | Progress::Filled(_) | Progress::Refused { .. } | Progress::Cancelled => {
                StepAction::SpeculativeWalk(point)
            }
        }
    }

    fn speculate(&self, cpu: CpuId, way: u32) -> VirtAddr {
        let page = self.sim.0.in_flight.recent.borrow()[way as usize / 3];
        let va = match way % 3 {
            0 => page,
            1 => page.add(PAGE_SIZE),
            _ => VirtAddr::new(page.raw().saturating_sub(PAGE_SIZE)),
        };
        let core = self.sim.core(cpu);
        if let Some(root) = core.root.get() {
            self.sim.launch(core, root, va, Access::Read, false);
        }
        va
    }

    /// Lets a CPU go on to its next stop.
    fn let_run(&mut self, cpu: CpuId, go: Go, chooser: &mut dyn Chooser) -> Result<(), RunEnd> {
        self.last = cpu;
        let from = self.cpus[cpu.index()].at;
        if from == StopPoint::Lock && I::KIND == IsaKind::X86_64 {
            // Taking a lock is a locked instruction.
            self.sim.0.in_flight.stores.borrow_mut().drain_all(cpu);
        }
        let mut stop = self.resume(cpu, go);
        while let Stop::At(StopPoint::Choose(ways)) = stop {
            let way = chooser.pick(cpu, ways);
            let choice = Choice { agent: Agent { kind: AgentKind::Pick, cpu }, way };
            self.schedule.push(choice);
            self.note(choice, ScheduleStep { at: self.steps, cpu, action: StepAction::Picked(way) });
            stop = self.resume(cpu, Go::Way(way));
        }
        match stop {
            Stop::At(at) => {
                let only_looked = go == Go::On && from.waits() && from == at;
                if !only_looked {
                    self.done += 1;
                }
                let state = &mut self.cpus[cpu.index()];
                state.at = at;
                // It will look once more at least if it has just come here.
                state.looked = if only_looked { self.done } else { 0 };
                Ok(())
            }
            Stop::Panicked(message) => {
                self.cpus[cpu.index()].at = StopPoint::Idle;
                if let Some(coroutine) = self.cpus[cpu.index()].coroutine.take() {
                    coroutine.retire();
                }
                Err(RunEnd::Panicked { cpu, message })
            }
            Stop::Ready => unreachable!("only the end of the run sends CPU {cpu} home"),
        }
    }

    /// Switches to a CPU's coroutine and back.
    fn resume(&mut self, cpu: CpuId, go: Go) -> Stop {
        let state = &mut self.cpus[cpu.index()];
        let Some(coroutine) = &mut state.coroutine else { unreachable!("CPU {cpu} has panicked and is not ready") };
        let machine = &self.sim.0;
        machine.current.set(cpu);
        machine.depth.set(state.depth);
        let outer = backend::switch(state.running);
        let stop = coroutine.go(go);
        state.running = backend::switch(outer);
        state.depth = machine.depth.get();
        stop
    }

    /// Brings the programs to an end if that is possible, and reports.
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
                self.resume(cpu, Go::Home);
            }
            if let Some(coroutine) = self.cpus[index].coroutine.take() {
                abandoned += u32::from(!coroutine.is_idle());
                coroutine.retire();
            }
        }
        RunReport { end, steps, trace, schedule, log, abandoned }
    }

    /// Goes on calmly and unjudged, whatever happens.
    fn wind_down(&mut self) {
        let judged = self.sim.0.judged.get();
        self.sim.set_judged(false);
        self.winding_down = true;
        self.limit = self.steps.saturating_add(self.settings.max_steps);
        let mut chooser = ReplayChooser::calm();
        while matches!(self.explore(&mut chooser), RunEnd::Panicked { .. }) {}
        self.sim.set_judged(judged);
    }
}
