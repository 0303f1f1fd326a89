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

use super::coroutine::{self, Coroutine, Go, Program, Stop};
use super::flight::Serial;
use super::point::Point;
use super::schedule::{Agent, Choice, Chooser, Kind, Ready, Replay, Schedule};
use super::unsettled::Progress;
use crate::backend::{self, Running};
use crate::machine::Sim;
use pagewright_arch::{Isa, IsaKind, Target};
use pagewright_sync::RankSet;
use pagewright_types::{Access, CpuId, PAGE_SIZE, PhysAddr, VirtAddr};
use std::fmt;
use std::rc::Rc;

/// How a run is set up, apart from its schedule.
#[derive(Clone)]
pub struct Settings {
    /// Steps after which a run is [`Outcome::Endless`].
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

impl Default for Settings {
    fn default() -> Self {
        Self { max_steps: 20_000, max_wait: 60, walks: 2, speculate_near: Vec::new(), log: false, stop: None }
    }
}

/// What an agent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A CPU did what it stood before.
    Did(Point),
    /// A CPU took an interrupt, before what it stood before.
    TookInterrupt,
    /// A store to this word became visible to walkers.
    Drained(PhysAddr),
    /// A broadcast invalidation arrived.
    Delivered(Target),
    /// A speculative walk took this step.
    Walked(Point),
    /// A speculative walk began.
    Speculated(VirtAddr),
    /// An entry was evicted.
    Evicted,
    /// A translation was picked among several that contradict each other.
    Picked(u32),
}

/// One step of a run, for whoever explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which step of the run, counted from 1.
    ///
    /// What was picked in a step has its number.
    pub at: u32,
    /// Where.
    pub cpu: CpuId,
    /// What.
    pub what: What,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu;
        match self.what {
            What::Did(point) => write!(f, "CPU {cpu} {point}"),
            What::TookInterrupt => write!(f, "CPU {cpu} takes an interrupt"),
            What::Drained(at) => write!(f, "CPU {cpu}'s store to {at} becomes visible to walkers"),
            What::Delivered(target) => write!(f, "the invalidation of {target:?} arrives at CPU {cpu}"),
            What::Walked(point) => write!(f, "CPU {cpu} speculates: {point}"),
            What::Speculated(va) => write!(f, "CPU {cpu} begins to walk for {va}, which nobody asked for"),
            What::Evicted => write!(f, "CPU {cpu} evicts an entry"),
            What::Picked(way) => write!(f, "CPU {cpu} uses translation {way} of several"),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All programs have ended, and all interrupts were taken.
    Completed,
    /// [`Settings::stop`] said so.
    Stopped,
    /// Nobody can go on.
    ///
    /// What each CPU stands before.
    Deadlock {
        /// By CPU.
        standing: Vec<(CpuId, Point)>,
    },
    /// A program panicked.
    Panicked {
        /// Where.
        cpu: CpuId,
        /// Place and message.
        message: String,
    },
    /// Still running after [`Settings::max_steps`].
    Endless,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Steps taken.
    pub steps: u32,
    /// A fingerprint of all steps: equal traces have equal ones.
    pub trace: u64,
    /// What was chosen.
    pub schedule: Schedule,
    /// The steps, if they were to be logged.
    pub log: Vec<Step>,
    /// CPUs whose programs could not be brought to an end afterwards; their stacks, and what stands
    /// on them, are leaked. Then, and after anything but [`Outcome::Completed`] and
    /// [`Outcome::Stopped`], the machine is of no more use.
    pub abandoned: u32,
}

/// One CPU of the run.
struct Cpu {
    /// `None` after a panic.
    coroutine: Option<Coroutine>,
    at: Point,
    /// How much had been done when it last looked whether it could go on.
    looked: u64,
    running: Running,
    depth: u32,
}

struct Explorer<'a, I: Isa> {
    sim: &'a Sim<I>,
    settings: &'a Settings,
    cpus: Vec<Cpu>,
    ready: Vec<Ready>,
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
    log: Vec<Step>,
}

/// Runs `programs`, the first on CPU 0 and so on, under `chooser`.
///
/// CPUs without a program take interrupts.
///
/// A program acts on its own CPU: [`Sim::access`], the effects, locks of [`crate::SimLocks`];
/// [`Sim::run_on`] works as in fast mode. When the run is over the machine is at rest and in fast
/// mode again, with everything under way arrived.
///
/// After [`Outcome::Stopped`] or a panic the programs go on calmly, unjudged, so that they end; one
/// that can't is abandoned.
///
/// # Panics
/// When there are more programs than CPUs, or inside another run or an operation of this machine.
pub fn run<I: Isa>(sim: &Sim<I>, settings: &Settings, programs: Vec<Program>, chooser: &mut dyn Chooser) -> Report {
    assert!(programs.len() <= sim.0.cores.len(), "{} programs for {} CPUs", programs.len(), sim.0.cores.len());
    assert!(!coroutine::inside() && sim.0.depth.get() == 0, "schedules are explored from outside");
    let machine = sim.clone();
    let outer_handler = coroutine::bind_handler(Some(Rc::new(move || machine.take_interrupt())));
    let before = sim.0.current.get();
    sim.set_exploring(true);
    sim.0.unsettled.recent.borrow_mut().extend(settings.speculate_near.iter().map(|va| va.align_down(PAGE_SIZE)));
    let mut explorer = Explorer::new(sim, settings, programs);
    let outcome = explorer.explore(chooser);
    let report = explorer.end(outcome);
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
        self.0.unsettled.step.get() as u32
    }
}

impl<'a, I: Isa> Explorer<'a, I> {
    fn new(sim: &'a Sim<I>, settings: &'a Settings, programs: Vec<Program>) -> Self {
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
                    coroutine::stop_at(Point::Start);
                    program();
                }
                while coroutine::stop_at(Point::Idle) != Go::Home {}
            };
            let (coroutine, stop) = Coroutine::start(Box::new(body));
            let Stop::At(at) = stop else { unreachable!("a program starts by stopping") };
            let running = Running { cpu, held: RankSet::EMPTY };
            core.held.set(RankSet::EMPTY);
            explorer.cpus.push(Cpu { coroutine: Some(coroutine), at, looked: 0, running, depth: 0 });
        }
        explorer
    }

    fn explore(&mut self, chooser: &mut dyn Chooser) -> Outcome {
        loop {
            let stop = self.settings.stop.as_ref().filter(|_| !self.winding_down);
            if stop.is_some_and(|stop| stop()) {
                return Outcome::Stopped;
            }
            if self.is_finished() {
                return Outcome::Completed;
            }
            if self.steps >= self.limit {
                return Outcome::Endless;
            }
            let overdue = u64::from(self.steps.saturating_sub(self.settings.max_wait));
            self.sim.0.unsettled.stores.borrow_mut().drain_before(overdue);
            if !self.list_ready() {
                let standing = self.cpus.iter().map(|cpu| (cpu.running.cpu, cpu.at)).collect();
                return Outcome::Deadlock { standing };
            }
            let choice = chooser.next(&self.ready, self.last);
            if let Err(outcome) = self.act(choice, chooser) {
                return outcome;
            }
        }
    }

    fn is_finished(&self) -> bool {
        let resting = |cpu: &Cpu| cpu.at == Point::Idle && !self.core(cpu).unsettled.interrupted.get();
        self.cpus.iter().all(resting)
    }

    fn core(&self, cpu: &Cpu) -> &crate::core::Core {
        self.sim.core(cpu.running.cpu)
    }

    /// Lists who can act; says whether anybody among them can matter to those who wait.
    fn list_ready(&mut self) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let unsettled = &self.sim.0.unsettled;
        let broadcasts = unsettled.broadcasts.borrow();
        let stores = unsettled.stores.borrow();
        let near = unsettled.recent.borrow().len() as u32 * 3;
        for cpu in self.cpus.iter().filter(|cpu| cpu.coroutine.is_some()) {
            let (id, core) = (cpu.running.cpu, self.core(cpu));
            let mut add = |kind, ways: u32| {
                if ways > 0 {
                    ready.push(Ready { agent: Agent { kind, cpu: id }, ways });
                }
            };
            let goes_on = cpu.at != Point::Idle && (!cpu.at.waits() || cpu.looked < self.done);
            add(Kind::Cpu, u32::from(goes_on));
            let takes = core.unsettled.interrupted.get() && core.closed.get() == 0;
            add(Kind::Interrupt, u32::from(takes));
            add(Kind::Drain, stores.ways(I::KIND, id));
            add(Kind::Deliver, broadcasts.iter().filter(|broadcast| broadcast.on_its_way.contains(id)).count() as u32);
            let speculated = core.unsettled.flights.borrow().iter().filter(|flight| !flight.demanded).count() as u32;
            add(Kind::Walk, speculated);
        }
        let matters = !ready.is_empty();
        for cpu in &self.cpus {
            let (id, core) = (cpu.running.cpu, self.core(cpu));
            let speculated = ready.iter().find(|ready| ready.agent == Agent { kind: Kind::Walk, cpu: id });
            let speculates = self.sim.0.online.get().contains(id)
                && core.root.get().is_some()
                && speculated.map_or(0, |walks| walks.ways) < self.settings.walks.into();
            if speculates && near > 0 {
                ready.push(Ready { agent: Agent { kind: Kind::Speculate, cpu: id }, ways: near });
            }
            let held = core.tlbs.borrow().len() as u32;
            if held > 0 {
                ready.push(Ready { agent: Agent { kind: Kind::Evict, cpu: id }, ways: held });
            }
        }
        self.ready = ready;
        matters
    }

    fn act(&mut self, choice: Choice, chooser: &mut dyn Chooser) -> Result<(), Outcome> {
        let Choice { agent: Agent { kind, cpu }, way } = choice;
        self.schedule.push(choice);
        self.steps += 1;
        self.sim.0.unsettled.step.set(u64::from(self.steps));
        let what = match kind {
            Kind::Cpu | Kind::Pick => What::Did(self.cpus[cpu.index()].at),
            Kind::Interrupt => What::TookInterrupt,
            Kind::Drain => What::Drained(self.drain(cpu, way)),
            Kind::Deliver => match self.sim.deliver(cpu, way) {
                Some(target) => What::Delivered(target),
                None => unreachable!("a broadcast was on its way to CPU {cpu}"),
            },
            Kind::Walk => self.walk(cpu, way),
            Kind::Speculate => What::Speculated(self.speculate(cpu, way)),
            Kind::Evict => {
                self.sim.core(cpu).tlbs.borrow_mut().evict(way as usize);
                What::Evicted
            }
        };
        self.note(choice, Step { at: self.steps, cpu, what });
        match kind {
            Kind::Cpu | Kind::Pick => self.let_run(cpu, Go::On, chooser),
            Kind::Interrupt => self.let_run(cpu, Go::Interrupt, chooser),
            // Nobody waits for any of these: locks and answers are given by CPUs.
            Kind::Drain | Kind::Deliver | Kind::Walk | Kind::Speculate | Kind::Evict => Ok(()),
        }
    }

    fn note(&mut self, choice: Choice, step: Step) {
        let print = match step.what {
            What::Did(point) | What::Walked(point) => point.fingerprint(),
            What::Drained(at) => at.raw(),
            What::Speculated(va) => va.raw(),
            What::TookInterrupt | What::Delivered(_) | What::Evicted | What::Picked(_) => 0,
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
        let drained = self.sim.0.unsettled.stores.borrow_mut().drain_way(I::KIND, cpu, way);
        drained.unwrap_or_else(|| unreachable!("a store of CPU {cpu} was waiting"))
    }

    fn walk(&self, cpu: CpuId, way: u32) -> What {
        let core = self.sim.core(cpu);
        let nth = |way: u32| -> Option<Serial> {
            let flights = core.unsettled.flights.borrow();
            flights.iter().filter(|flight| !flight.demanded).nth(way as usize).map(|flight| flight.serial)
        };
        let step = nth(way).and_then(|serial| Some((serial, self.sim.point_of(core, serial)?)));
        let Some((serial, point)) = step else { unreachable!("CPU {cpu} has a walk in flight") };
        match self.sim.advance(cpu, core, serial) {
            Progress::More | Progress::Filled(_) | Progress::Refused { .. } | Progress::Cancelled => {
                What::Walked(point)
            }
        }
    }

    fn speculate(&self, cpu: CpuId, way: u32) -> VirtAddr {
        let page = self.sim.0.unsettled.recent.borrow()[way as usize / 3];
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
    fn let_run(&mut self, cpu: CpuId, go: Go, chooser: &mut dyn Chooser) -> Result<(), Outcome> {
        self.last = cpu;
        let from = self.cpus[cpu.index()].at;
        if from == Point::Lock && I::KIND == IsaKind::X86_64 {
            // Taking a lock is a locked instruction.
            self.sim.0.unsettled.stores.borrow_mut().drain_all(cpu);
        }
        let mut stop = self.resume(cpu, go);
        while let Stop::At(Point::Choose(ways)) = stop {
            let way = chooser.pick(cpu, ways);
            let choice = Choice { agent: Agent { kind: Kind::Pick, cpu }, way };
            self.schedule.push(choice);
            self.note(choice, Step { at: self.steps, cpu, what: What::Picked(way) });
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
                self.cpus[cpu.index()].at = Point::Idle;
                if let Some(coroutine) = self.cpus[cpu.index()].coroutine.take() {
                    coroutine.retire();
                }
                Err(Outcome::Panicked { cpu, message })
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
    fn end(mut self, outcome: Outcome) -> Report {
        let (steps, trace) = (self.steps, self.trace);
        let (schedule, log) = (std::mem::take(&mut self.schedule), std::mem::take(&mut self.log));
        match outcome {
            Outcome::Stopped | Outcome::Panicked { .. } => self.wind_down(),
            Outcome::Completed | Outcome::Deadlock { .. } | Outcome::Endless => {}
        }
        let mut abandoned = 0;
        for index in 0..self.cpus.len() {
            let cpu = CpuId::new(index as u16);
            if self.cpus[index].coroutine.is_some() && self.cpus[index].at == Point::Idle {
                self.resume(cpu, Go::Home);
            }
            if let Some(coroutine) = self.cpus[index].coroutine.take() {
                abandoned += u32::from(!coroutine.is_idle());
                coroutine.retire();
            }
        }
        Report { outcome, steps, trace, schedule, log, abandoned }
    }

    /// Goes on calmly and unjudged, whatever happens.
    fn wind_down(&mut self) {
        let judged = self.sim.0.judged.get();
        self.sim.set_judged(false);
        self.winding_down = true;
        self.limit = self.steps.saturating_add(self.settings.max_steps);
        let mut chooser = Replay::calm();
        while matches!(self.explore(&mut chooser), Outcome::Panicked { .. }) {}
        self.sim.set_judged(judged);
    }
}
