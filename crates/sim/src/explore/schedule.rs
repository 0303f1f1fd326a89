//! Agents, choosers and schedules: which agent acts next.
//!
//! In explore mode the machine has many agents: its CPUs and, for each CPU, its pending IPI, its
//! store buffer, the broadcasts in flight to it, its walks in flight, its speculation, and its
//! evictions. At each step the scheduler lists the ready agents, and a [`Chooser`] chooses one. The
//! choices are a [`Schedule`], which replays the run.
//!
//! A schedule with choices left out replays too: a choice that is not possible is skipped, and
//! after the last one the run follows the *default schedule*. In the default schedule a CPU runs
//! until it waits, interrupts are taken at once, and nothing is speculated or evicted.

use super::acts::MachineView;
use pagewright_types::CpuId;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};

macro_rules! kinds {
    ($($name:ident = $letter:literal, $meaning:literal;)*) => {
        /// What an agent does when its turn comes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AgentKind {
            $(#[doc = $meaning] $name,)*
        }

        impl AgentKind {
            /// The letter by which a token names it.
            pub const fn letter(self) -> char {
                match self { $(Self::$name => $letter,)* }
            }

            /// The kind with this letter.
            pub fn of_letter(letter: char) -> Option<Self> {
                match letter { $($letter => Some(Self::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    Cpu = 'c', "The CPU runs to its next stop.";
    Interrupt = 'i', "The CPU takes its pending IPI.";
    Drain = 'd', "One store of the CPU becomes visible to walkers.";
    Deliver = 't', "One broadcast invalidation arrives at the CPU.";
    Walk = 'w', "One speculative walk of the CPU takes a step.";
    Speculate = 's', "The CPU begins a speculative walk.";
    Evict = 'e', "The CPU evicts an entry of a TLB or walk cache.";
    Pick = 'p', "The CPU uses one of several conflicting translations.";
}

/// Something that can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent {
    /// What it does.
    pub kind: AgentKind,
    /// The CPU that it acts on.
    pub cpu: CpuId,
}

/// An agent that can act now, and in how many ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyAgent {
    /// The agent.
    pub agent: Agent,
    /// The number of ways in which it can act, at least 1.
    pub ways: u32,
}

/// The choice of one agent, and of the way in which it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The agent.
    pub agent: Agent,
    /// The way, less than the number of ways that were offered.
    pub way: u32,
}

/// Chooses which agent acts next.
pub trait Chooser {
    /// Chooses one of `ready`, which is not empty; `last` is the CPU that ran last.
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice;

    /// Chooses one of `ways` conflicting translations, for an access of `cpu`.
    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32;

    /// As [`Chooser::next`], for a chooser that looks at the machine; `None` stops the run.
    fn next_on(&mut self, machine: &dyn MachineView, ready: &[ReadyAgent], last: CpuId) -> Option<Choice> {
        let _ = machine;
        Some(self.next(ready, last))
    }

    /// Is called when the programs have ended, or the run was stopped.
    fn ended(&mut self, machine: &dyn MachineView) {
        let _ = machine;
    }

    /// Whether the machine records the footprint of the next step.
    ///
    /// [`MachineView::last_footprint`] returns it.
    fn wants_footprint(&self) -> bool {
        false
    }

    /// Whether the machine records what [`MachineView::state`] needs.
    fn compares_states(&self) -> bool {
        false
    }

    /// What the programs of the run leave out.
    fn left_out(&self) -> &[ProgramPart] {
        &[]
    }
}

/// A chooser for programs of which parts are left out.
pub struct PartialChooser<'a> {
    /// What chooses.
    pub chooser: &'a mut dyn Chooser,
    /// What is left out.
    pub left_out: &'a [ProgramPart],
}

impl Chooser for PartialChooser<'_> {
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        self.chooser.next(ready, last)
    }

    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32 {
        self.chooser.pick(cpu, ways)
    }

    fn left_out(&self) -> &[ProgramPart] {
        self.left_out
    }
}

/// How often each kind of agent acts, as weights; the weight of a CPU is 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rates {
    /// A store drains.
    pub drain: u32,
    /// A broadcast arrives.
    pub deliver: u32,
    /// An interrupt is taken.
    pub interrupt: u32,
    /// A speculative walk takes a step.
    pub walk: u32,
    /// A speculative walk begins.
    pub speculate: u32,
    /// An entry is evicted.
    pub evict: u32,
}

impl Default for Rates {
    fn default() -> Self {
        Self { drain: 200, deliver: 200, interrupt: 500, walk: 300, speculate: 60, evict: 20 }
    }
}

impl Rates {
    /// The weight of an agent of `kind`.
    fn of(&self, kind: AgentKind) -> u32 {
        match kind {
            AgentKind::Cpu => 1000,
            AgentKind::Interrupt => self.interrupt,
            AgentKind::Drain => self.drain,
            AgentKind::Deliver => self.deliver,
            AgentKind::Walk => self.walk,
            AgentKind::Speculate => self.speculate,
            AgentKind::Evict => self.evict,
            AgentKind::Pick => 0,
        }
    }
}

fn below(random: &mut Pcg64, limit: u32) -> u32 {
    ((u64::from(random.next_u64() as u32) * u64::from(limit)) >> 32) as u32
}

fn choice(ready: ReadyAgent, random: &mut Pcg64) -> Choice {
    Choice { agent: ready.agent, way: below(random, ready.ways) }
}

/// Chooses each step at random.
///
/// With some seeds it may switch CPUs at every step, with others it tends to stay on a CPU.
#[derive(Clone, Debug)]
pub struct RandomChooser {
    random: Pcg64,
    rates: Rates,
    /// Of 1000 steps, those in which the CPU that ran last goes on if it can.
    stay: u32,
}

impl RandomChooser {
    /// Makes the chooser of `seed`.
    pub fn new(seed: u64, rates: Rates) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let stay = [0, 500, 850][below(&mut random, 3) as usize];
        Self { random, rates, stay }
    }
}

impl Chooser for RandomChooser {
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        let same = ready.iter().find(|ready| ready.agent == Agent { kind: AgentKind::Cpu, cpu: last });
        if let (Some(same), true) = (same, below(&mut self.random, 1000) < self.stay) {
            return Choice { agent: same.agent, way: 0 };
        }
        // A rate of 0 counts as 1, so that an agent which is alone is chosen.
        let weight = |ready: &ReadyAgent| self.rates.of(ready.agent.kind).max(1);
        let total = ready.iter().map(weight).sum();
        let mut left = below(&mut self.random, total);
        let chosen = ready.iter().find(|ready| {
            let weight = weight(ready);
            let hit = left < weight;
            left = left.saturating_sub(weight);
            hit
        });
        choice(*chosen.unwrap_or(&ready[0]), &mut self.random)
    }

    fn pick(&mut self, _: CpuId, ways: u32) -> u32 {
        below(&mut self.random, ways)
    }
}

/// Probabilistic concurrency testing (PCT; Burckhardt et al., ASPLOS 2010).
///
/// Agents have random priorities, and the ready agent with the highest one acts. At `depth` random
/// steps, the priority of the agent that would act falls below all others. Agents that could act
/// for ever (speculation, eviction) act by their rates instead. At regular intervals, the priority
/// of the agent that acted most since the last interval falls below all others too, so that a
/// program may wait for another in a loop.
#[derive(Clone, Debug)]
pub struct PctChooser {
    random: Pcg64,
    rates: Rates,
    priorities: HashMap<Agent, u64>,
    /// The steps of the remaining priority changes, the next one last.
    changes: Vec<u32>,
    step: u32,
    /// How often each agent acted in the current interval.
    recent: BTreeMap<Agent, u32>,
    /// How many priorities were lowered at the end of an interval.
    yielded: u64,
}

/// Initial priorities are at least this; lowered ones are below.
const LOWERED: u64 = 1 << 32;
/// Priorities lowered at the end of an interval are below this, those lowered by a change are not.
const YIELDED: u64 = 1 << 31;

/// The interval, in steps, after which the agent that acts most yields to others.
const FAIRNESS_STEPS: u32 = 400;

/// The number of steps that one CPU has taken while no other CPU has.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    cpu: CpuId,
    times: u32,
}

impl Streak {
    /// Counts a step of `cpu`; returns whether its streak is longer than [`FAIRNESS_STEPS`].
    fn is_too_long(&mut self, cpu: CpuId) -> bool {
        if self.cpu != cpu {
            *self = Self { cpu, times: 0 };
        }
        self.times += 1;
        self.times > FAIRNESS_STEPS
    }
}

impl PctChooser {
    /// Makes the chooser of `seed`, with `depth` changes among the first `length` steps.
    pub fn new(seed: u64, depth: u32, length: u32, rates: Rates) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut changes: Vec<u32> = (0..depth).map(|_| below(&mut random, length)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self { random, rates, priorities: HashMap::new(), changes, step: 0, recent: BTreeMap::new(), yielded: 0 }
    }

    fn highest(&mut self, ready: &[ReadyAgent]) -> Option<ReadyAgent> {
        let finite = |ready: &&ReadyAgent| !matches!(ready.agent.kind, AgentKind::Speculate | AgentKind::Evict);
        let Self { random, priorities, .. } = self;
        let mut priority =
            |agent| *priorities.entry(agent).or_insert_with(|| LOWERED + u64::from(random.next_u64() as u32));
        ready.iter().filter(finite).copied().max_by_key(|ready| priority(ready.agent))
    }

    /// Lowers the priority of the agent that acted most in the interval that ends.
    fn lower_most_active(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        if let Some((agent, _)) = recent.into_iter().max_by_key(|(_, times)| *times) {
            self.yielded += 1;
            self.priorities.insert(agent, YIELDED - self.yielded);
        }
    }
}

impl Chooser for PctChooser {
    fn next(&mut self, ready: &[ReadyAgent], _: CpuId) -> Choice {
        self.step += 1;
        for ready in ready.iter().filter(|ready| matches!(ready.agent.kind, AgentKind::Speculate | AgentKind::Evict)) {
            if below(&mut self.random, 1000 * 4) < self.rates.of(ready.agent.kind) {
                return choice(*ready, &mut self.random);
            }
        }
        if self.changes.last().is_some_and(|step| *step <= self.step) {
            self.changes.pop();
            let left = self.changes.len() as u64;
            if let Some(top) = self.highest(ready) {
                self.priorities.insert(top.agent, YIELDED + left);
            }
        }
        if self.step.is_multiple_of(FAIRNESS_STEPS) {
            self.lower_most_active();
        }
        let chosen = self.highest(ready).unwrap_or(ready[0]);
        *self.recent.entry(chosen.agent).or_default() += 1;
        choice(chosen, &mut self.random)
    }

    fn pick(&mut self, _: CpuId, ways: u32) -> u32 {
        below(&mut self.random, ways)
    }
}

/// A choice, made several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepeatedChoice {
    /// The choice.
    pub choice: Choice,
    /// How often it was made.
    pub times: u32,
}

/// A part of the programs of a run that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProgramPart {
    /// The whole program of this CPU.
    Program(CpuId),
    /// One operation of this CPU, counted from 1 in the order in which the CPU comes to them.
    Operation(CpuId, u32),
}

/// All choices of a run, in order, and what its programs leave out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Schedule {
    /// The choices.
    pub runs: Vec<RepeatedChoice>,
    /// What is left out; whatever makes the programs leaves it out of them.
    pub left_out: Vec<ProgramPart>,
}

impl Schedule {
    /// Adds a choice.
    pub fn push(&mut self, choice: Choice) {
        match self.runs.last_mut() {
            Some(last) if last.choice == choice => last.times += 1,
            Some(_) | None => self.runs.push(RepeatedChoice { choice, times: 1 }),
        }
    }

    /// How often the schedule switches from one CPU to another.
    pub fn switches(&self) -> usize {
        let cpus = self.runs.iter().filter(|run| run.choice.agent.kind == AgentKind::Cpu);
        let cpus: Vec<CpuId> = cpus.map(|run| run.choice.agent.cpu).collect();
        cpus.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

/// Replays a schedule, and then follows the default schedule.
///
/// In the default schedule, interrupts are taken at once. The CPU that ran last goes on while it
/// can, for at most `FAIRNESS_STEPS` steps in a row if another CPU is ready. Stores drain,
/// broadcasts arrive and walks step only when no CPU can run, and nothing is speculated or evicted.
#[derive(Clone, Debug)]
pub struct ReplayChooser {
    runs: Vec<RepeatedChoice>,
    left_out: Vec<ProgramPart>,
    at: usize,
    done: u32,
    streak: Streak,
}

impl ReplayChooser {
    /// Makes a chooser that replays `schedule`.
    pub fn new(schedule: &Schedule) -> Self {
        let Schedule { runs, left_out } = schedule.clone();
        Self { runs, left_out, at: 0, done: 0, streak: Streak::default() }
    }

    /// Makes a chooser that follows the default schedule from the first step.
    pub fn default_schedule() -> Self {
        Self::new(&Schedule::default())
    }

    fn take(&mut self) -> Option<Choice> {
        let run = self.runs.get(self.at)?;
        if self.done == run.times {
            self.at += 1;
            self.done = 0;
            return self.take();
        }
        self.done += 1;
        Some(run.choice)
    }

    fn skip(&mut self) {
        self.at += 1;
        self.done = 0;
    }

    fn choose_default(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        let own = Agent { kind: AgentKind::Cpu, cpu: last };
        let too_long = ready.iter().any(|ready| ready.agent == own) && self.streak.is_too_long(last);
        let rank = |ready: &&ReadyAgent| match ready.agent.kind {
            AgentKind::Interrupt => 0,
            AgentKind::Cpu if ready.agent == own && !too_long => 1,
            // The CPUs take turns by number.
            AgentKind::Cpu => 2 + u32::from(ready.agent.cpu.raw() <= last.raw()),
            AgentKind::Drain => 4,
            AgentKind::Deliver => 5,
            AgentKind::Walk => 6,
            AgentKind::Evict | AgentKind::Speculate | AgentKind::Pick => 7,
        };
        let chosen = ready.iter().min_by_key(rank).unwrap_or(&ready[0]);
        Choice { agent: chosen.agent, way: 0 }
    }
}

impl Chooser for ReplayChooser {
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        while let Some(wanted) = self.take() {
            let fits = |ready: &&ReadyAgent| ready.agent == wanted.agent && wanted.way < ready.ways;
            if ready.iter().any(|ready| fits(&ready)) {
                return wanted;
            }
            self.skip();
        }
        self.choose_default(ready, last)
    }

    fn left_out(&self) -> &[ProgramPart] {
        &self.left_out
    }

    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32 {
        let agent = Agent { kind: AgentKind::Pick, cpu };
        let (at, done) = (self.at, self.done);
        match self.take() {
            Some(wanted) if wanted.agent == agent && wanted.way < ways => wanted.way,
            Some(_) | None => {
                (self.at, self.done) = (at, done);
                0
            }
        }
    }
}
