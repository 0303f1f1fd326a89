//! Races: programs on several CPUs under many schedules.
//!
//! A double of a device calls [`device_step`] before and after each copy of a page, because the
//! simulated machine copies in no step of its own.

use super::test_process::TestProcess;
use super::test_world::{CPU, OTHER, TestWorld};
use pagewright_arch::Isa;
use pagewright_mm::{Mm, Space};
#[cfg(feature = "planted")]
use pagewright_plant::{PlantedBug, choose};
use pagewright_sim::explore::{
    self, Agent, AgentKind, Choice, Chooser, CoroutineBody, ExploreSettings, RandomChooser, Rates, ReadyAgent, RunEnd,
    ScheduleStrategy,
};
use pagewright_sim::{Sim, SimLocks};
use pagewright_sync::Backend;
use pagewright_types::{CpuId, VirtAddr};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Fingerprints of the schedules that this thread has run.
    static TRACES: RefCell<HashSet<u64>> = RefCell::default();
}

/// Runs one program per CPU under the random schedule of `seed`.
///
/// # Panics
/// If the programs do not complete.
pub fn race<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Random { seed, rates: Rates::default() }, programs);
}

/// Like [`race`], with few preemptions: one CPU takes many steps while the others wait.
///
/// # Panics
/// If the programs do not complete.
pub fn race_in_long_turns<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Pct { seed, depth: 6, length: 1000, rates: Rates::default() }, programs);
}

/// Like [`race`], for two seeds of five with few preemptions ([`race_in_long_turns`]).
///
/// # Panics
/// If the programs do not complete.
pub fn race_in_short_or_long_turns<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    if seed % 5 < 2 { race_in_long_turns(world, seed, programs) } else { race(world, seed, programs) }
}

/// Like [`race`], with at most two preemptions, in the first steps, for a window one step wide.
///
/// # Panics
/// If the programs do not complete.
pub fn race_in_two_turns<I: Isa>(world: &TestWorld<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Pct { seed, depth: 2, length: 100, rates: Rates::default() }, programs);
}

/// Like [`race`], but of the CPUs in `turns`, one runs for a number of steps, then the next.
///
/// After the last turn all run. A turn also ends when its CPU has nothing to run, or waits for
/// long. For a CPU that stops in the middle of something short while others do something long,
/// which a random schedule hardly ever has. Until then no CPU speculates or evicts translations.
///
/// # Panics
/// If the programs do not complete.
pub fn race_in_turns<I: Isa>(world: &TestWorld<I>, seed: u64, turns: &[(CpuId, u32)], programs: Vec<CoroutineBody>) {
    let random = RandomChooser::new(seed, Rates::default());
    let mut chooser = Turns { turns: turns.to_vec(), now: 0, waited: 0, random };
    race_as_chosen(world, &mut chooser, &(seed, turns), programs);
}

/// Chooses at random, but of the CPUs that have turns only the one whose turn it is.
struct Turns {
    turns: Vec<(CpuId, u32)>,
    /// The present turn.
    now: usize,
    /// Steps of others since its CPU could last run.
    waited: u32,
    random: RandomChooser,
}

impl Turns {
    /// Steps of others after which a CPU that can't run is taken to wait for one that is held back.
    const PATIENCE: u32 = 300;
}

impl Chooser for Turns {
    fn next(&mut self, ready: &[ReadyAgent], last: CpuId) -> Choice {
        while let Some((cpu, steps)) = self.turns.get(self.now).copied() {
            let runs = Agent { kind: AgentKind::Cpu, cpu };
            let may_act = |agent: Agent| match agent.kind {
                AgentKind::Cpu => agent == runs || self.turns.iter().all(|(cpu, _)| *cpu != agent.cpu),
                // A CPU that is held back keeps its translations.
                AgentKind::Speculate | AgentKind::Evict => false,
                _ => true,
            };
            let in_turn: Vec<ReadyAgent> = ready.iter().filter(|ready| may_act(ready.agent)).copied().collect();
            let is_ready = in_turn.iter().any(|ready| ready.agent == runs);
            self.waited = if is_ready { 0 } else { self.waited + 1 };
            if steps == 0 || in_turn.is_empty() || self.waited > Self::PATIENCE {
                (self.now, self.waited) = (self.now + 1, 0);
                continue;
            }
            let choice = self.random.next(&in_turn, last);
            self.turns[self.now].1 -= u32::from(choice.agent == runs);
            return choice;
        }
        self.random.next(ready, last)
    }

    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32 {
        self.random.pick(cpu, ways)
    }
}

/// Like [`race`], under the schedule that `strategy` chooses.
///
/// # Panics
/// If the programs do not complete.
pub fn race_by<I: Isa>(world: &TestWorld<I>, strategy: &ScheduleStrategy, programs: Vec<CoroutineBody>) {
    race_as_chosen(world, &mut *strategy.chooser(), strategy, programs);
}

fn race_as_chosen<I: Isa>(
    world: &TestWorld<I>,
    chooser: &mut dyn Chooser,
    schedule: &dyn Debug,
    programs: Vec<CoroutineBody>,
) {
    // A break of a shared table takes thousands of steps.
    let settings = ExploreSettings { max_steps: 60_000, ..ExploreSettings::default() };
    let report = explore::run(world.lab.sim(), &settings, programs, chooser);
    assert_eq!(report.end, RunEnd::Completed, "{schedule:?}");
    TRACES.with_borrow_mut(|traces| traces.insert(report.trace));
}

/// Races `call` on the memory of a process with the end of that process.
///
/// Another process then gets the frames of its tables, and stores values there that look like
/// tables. `call` gets the address of a page of the process, which has the value 1.
///
/// # Panics
/// If the programs do not complete.
pub fn race_with_the_end_of_a_process<I: Isa>(
    seed: u64,
    race: impl FnOnce(&TestWorld<I>, u64, Vec<CoroutineBody>),
    call: impl FnOnce(&Mm<Sim<I>>, &Space<Sim<I>>, VirtAddr) + 'static,
) {
    let world = TestWorld::<I>::unjudged();
    world.swap_to(8);
    let (ends, other) = (TestProcess::new(&world), TestProcess::new(&world));
    let (base, theirs) = (ends.anon(1), other.anon(8));
    ends.write(CPU, base, 1);
    other.write(CPU, theirs, 1);
    let root = ends.space.table().root();
    world.on(CPU, |mm| mm.tlb().leave_space());
    let (calls, reuses) = (world.clone(), world.clone());
    let [called, ended, taken] = [ends.space.clone(), ends.space.clone(), other.space.clone()];
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || calls.on(CPU, |mm| call(mm, &called, base))),
        Box::new(move || {
            reuses.on(OTHER, |mm| mm.end_space(&ended));
            reuses.store_tables(OTHER, &taken, theirs, (root, base));
        }),
    ];
    race(&world, seed, programs);
}

/// Lets other CPUs act, as a scheduling point of a device's double.
///
/// It does nothing outside a race.
pub fn device_step() {
    SimLocks::point();
}

/// The number of schedules of a race that runs `usual` of them in the usual test run.
///
/// `PAGEWRIGHT_SOAK` in the environment multiplies it by 100.
pub fn schedules(usual: u64) -> u64 {
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * usual } else { usual }
}

/// Asserts that `holds` returns `true` for each seed below [`schedules`] of `usual`.
///
/// A short race repeats schedules in a soak.
///
/// # Panics
/// With `failure` and the seed, if one fails; or if at most half of `usual` schedules were
/// different. If `holds` does; its seed is printed.
pub fn assert_holds(usual: u64, holds: fn(u64) -> bool, failure: &str) {
    let different = different_schedules(usual, holds, failure);
    assert!(different * 2 > usual, "{different} of {usual} schedules are different");
}

/// Like [`assert_holds`], for a race so short that most seeds repeat a schedule.
///
/// # Panics
/// With `failure` and the seed, if one fails.
pub fn assert_short_race_holds(usual: u64, holds: fn(u64) -> bool, failure: &str) {
    different_schedules(usual, holds, failure);
}

/// Asserts that `holds` returns `true` for each seed; returns how many schedules were different.
fn different_schedules(usual: u64, holds: fn(u64) -> bool, failure: &str) -> u64 {
    let seeds = schedules(usual);
    TRACES.take();
    let holds = |seed: u64| {
        catch_unwind(AssertUnwindSafe(|| holds(seed))).unwrap_or_else(|panic| {
            println!("seed {seed}");
            resume_unwind(panic)
        })
    };
    if let Some(seed) = (0..seeds).find(|seed| !holds(*seed)) {
        panic!("{failure} with seed {seed}");
    }
    let different = TRACES.take().len() as u64;
    println!("{different} different schedules of {seeds}");
    different
}

/// A bug, and a race that fails with it for some seed.
#[cfg(feature = "planted")]
pub type PlantedRace = (PlantedBug, fn(u64) -> bool);

/// Asserts that each planted bug makes its race fail for one of `schedules` seeds.
///
/// A race fails by its result or by a panic.
///
/// # Panics
/// With the name of a bug that no seed finds.
#[cfg(feature = "planted")]
pub fn assert_planted_bugs_are_found(schedules: u64, cases: &[PlantedRace]) {
    for (bug, holds) in cases {
        choose(Some(*bug));
        let found = (0..schedules).find(|seed| !catch_unwind(|| holds(*seed)).unwrap_or(false));
        choose(None);
        let Some(seed) = found else { panic!("{} is not found", bug.name()) };
        println!("{} is found with seed {seed} of {schedules}", bug.name());
    }
}

/// Declares a test that each planted bug makes its race fail, on both instruction sets.
///
/// `SCHEDULES; BUG => RACE, …`, where `RACE` is generic over the instruction set, takes a seed, and
/// returns whether all was well. The crate that calls it has a feature `planted`, without which
/// there is no test. A module uses it once, because the test's name is fixed.
#[macro_export]
macro_rules! planted_bugs_are_found {
    ($schedules:expr; $($bug:ident => $($race:ident)::+),+ $(,)?) => {
        #[cfg(feature = "planted")]
        #[test]
        fn planted_bugs_are_found() {
            use pagewright_plant::PlantedBug;
            $crate::harness::race::assert_planted_bugs_are_found($schedules, &[$(
                (PlantedBug::$bug, $($race)::+::<pagewright_arch::X86_64>),
                (PlantedBug::$bug, $($race)::+::<pagewright_arch::Aarch64>),
            )+]);
        }
    };
}
