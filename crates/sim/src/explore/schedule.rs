//! Who acts next: agents, choosers, schedules.
//!
//! A machine that explores has many agents: its CPUs, and for each CPU the interrupt that waits
//! there, its store buffer, the broadcasts on their way to it, its walks in flight, and the whims
//! of its walker and its TLBs. At each step the scheduler shows a [`Chooser`] those that are ready.
//! What was chosen is a [`Schedule`], which replays the run, and which may be cut down: what no
//! longer fits is skipped, and where it ends a calm machine goes on.

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
    Cpu = 'c', "The CPU goes on to its next stop.";
    Interrupt = 'i', "The CPU takes the interrupt that waits for it.";
    Drain = 'd', "One store of the CPU becomes visible to walkers.";
    Deliver = 't', "One broadcast invalidation arrives at the CPU.";
    Walk = 'w', "One speculative walk of the CPU takes a step.";
    Speculate = 's', "The CPU begins a walk for an address that nobody asked for.";
    Evict = 'e', "The CPU's TLBs or walk caches lose an entry.";
    Pick = 'p', "The CPU uses one of several translations that contradict each other.";
}

/// Something that can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent {
    /// What it does.
    pub kind: AgentKind,
    /// Where.
    pub cpu: CpuId,
}

/// An agent that can act now, and in how many ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyAgent {
    /// Who.
    pub agent: Agent,
    /// Ways, at least 1.
    pub ways: u32,
}

/// Who acts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Who.
    pub agent: Agent,
    /// Which way, less than the ways that were offered.
    pub way: u32,
}

/// Decides who acts next.
pub trait Chooser {
    /// One of `ready`, which is not empty; `last` is the CPU that ran last.
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice;

    /// One of `ways` translations that contradict each other, on `cpu`.
    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32;
}

/// How often what nobody asked for happens, as weights beside a CPU's 1000.
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
    /// Weight of one agent; a CPU has 1000.
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

/// Every step by chance.
///
/// Some seeds switch at every step, others stay with a CPU for a while.
#[derive(Clone, Debug)]
pub struct RandomChooser {
    random: Pcg64,
    rates: Rates,
    /// In how many steps of 1000 the CPU that ran last goes on if it can.
    stay: u32,
}

impl RandomChooser {
    /// The choices of `seed`.
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
        // Every agent has a chance, however low its rate, when it is alone.
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

/// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): agents have random
/// priorities, the highest that is ready acts, and at `depth` random moments the one that would act
/// falls below all others. What an agent could do for ever (begin walks, evict) happens by its rate
/// instead. So that programs may wait for one another in loops, now and then the agent that acted
/// most of late falls below all others, too.
#[derive(Clone, Debug)]
pub struct PctChooser {
    random: Pcg64,
    rates: Rates,
    priorities: HashMap<Agent, u64>,
    /// Steps of the changes still to come, the next one last.
    changes: Vec<u32>,
    step: u32,
    /// Who acted how often of late.
    of_late: BTreeMap<Agent, u32>,
    /// How many made room.
    tired: u64,
}

/// Priorities given at first are above this, lowered ones below.
const LOWERED: u64 = 1 << 32;
/// Priorities of those that made room are below this, those lowered at random moments above.
const TIRED: u64 = 1 << 31;

/// Steps after which whoever acts makes room for others.
const PATIENCE: u32 = 400;

/// How often one CPU has gone on while no other has.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    cpu: CpuId,
    times: u32,
}

impl Row {
    /// Counts a step; says whether it is one too many.
    fn is_too_long(&mut self, cpu: CpuId) -> bool {
        if self.cpu != cpu {
            *self = Self { cpu, times: 0 };
        }
        self.times += 1;
        self.times > PATIENCE
    }
}

impl PctChooser {
    /// The choices of `seed`, with `depth` changes among the first `length` steps.
    pub fn new(seed: u64, depth: u32, length: u32, rates: Rates) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut changes: Vec<u32> = (0..depth).map(|_| below(&mut random, length)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self { random, rates, priorities: HashMap::new(), changes, step: 0, of_late: BTreeMap::new(), tired: 0 }
    }

    fn highest(&mut self, ready: &[ReadyAgent]) -> Option<ReadyAgent> {
        let finite = |ready: &&ReadyAgent| !matches!(ready.agent.kind, AgentKind::Speculate | AgentKind::Evict);
        let Self { random, priorities, .. } = self;
        let mut priority =
            |agent| *priorities.entry(agent).or_insert_with(|| LOWERED + u64::from(random.next_u64() as u32));
        ready.iter().filter(finite).copied().max_by_key(|ready| priority(ready.agent))
    }

    /// Lowers whoever acted most of late.
    fn make_room(&mut self) {
        let of_late = std::mem::take(&mut self.of_late);
        if let Some((agent, _)) = of_late.into_iter().max_by_key(|(_, times)| *times) {
            self.tired += 1;
            self.priorities.insert(agent, TIRED - self.tired);
        }
    }
}

impl Chooser for PctChooser {
    fn next(&mut self, ready: &[ReadyAgent], _: CpuId) -> Choice {
        self.step += 1;
        for whim in ready.iter().filter(|ready| matches!(ready.agent.kind, AgentKind::Speculate | AgentKind::Evict)) {
            if below(&mut self.random, 1000 * 4) < self.rates.of(whim.agent.kind) {
                return choice(*whim, &mut self.random);
            }
        }
        if self.changes.last().is_some_and(|step| *step <= self.step) {
            self.changes.pop();
            let left = self.changes.len() as u64;
            if let Some(top) = self.highest(ready) {
                self.priorities.insert(top.agent, TIRED + left);
            }
        }
        if self.step.is_multiple_of(PATIENCE) {
            self.make_room();
        }
        let chosen = self.highest(ready).unwrap_or(ready[0]);
        *self.of_late.entry(chosen.agent).or_default() += 1;
        choice(chosen, &mut self.random)
    }

    fn pick(&mut self, _: CpuId, ways: u32) -> u32 {
        below(&mut self.random, ways)
    }
}

/// The same choice several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RepeatedChoice {
    /// What was chosen.
    pub choice: Choice,
    /// How often.
    pub times: u32,
}

/// All choices of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Schedule(pub Vec<RepeatedChoice>);

impl Schedule {
    /// Adds a choice.
    pub fn push(&mut self, choice: Choice) {
        match self.0.last_mut() {
            Some(last) if last.choice == choice => last.times += 1,
            Some(_) | None => self.0.push(RepeatedChoice { choice, times: 1 }),
        }
    }

    /// Times that one CPU's turn follows another's.
    pub fn switches(&self) -> usize {
        let cpus = self.0.iter().filter(|run| run.choice.agent.kind == AgentKind::Cpu);
        let cpus: Vec<CpuId> = cpus.map(|run| run.choice.agent.cpu).collect();
        cpus.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

/// Follows a schedule as far as it fits, then goes on calmly: interrupts are taken at once, the CPU
/// that ran last goes on while it can (but not for ever), and nothing happens that nobody asked
/// for.
#[derive(Clone, Debug)]
pub struct ReplayChooser {
    runs: Vec<RepeatedChoice>,
    at: usize,
    done: u32,
    row: Row,
}

impl ReplayChooser {
    /// Follows `schedule`.
    pub fn new(schedule: &Schedule) -> Self {
        Self { runs: schedule.0.clone(), at: 0, done: 0, row: Row::default() }
    }

    /// A calm machine from the first step.
    pub fn calm() -> Self {
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

    fn calmly(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        let own = Agent { kind: AgentKind::Cpu, cpu: last };
        let tired = ready.iter().any(|ready| ready.agent == own) && self.row.is_too_long(last);
        let rank = |ready: &&ReadyAgent| match ready.agent.kind {
            AgentKind::Interrupt => 0,
            AgentKind::Cpu if ready.agent == own && !tired => 1,
            // The next in turn.
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
        self.calmly(ready, last)
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
