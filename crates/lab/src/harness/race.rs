//! Races: programs on several CPUs under many schedules.

use super::test_process::TestProcess;
use super::test_world::{CPU, OTHER, TestWorld};
use pagewright_arch::Isa;
use pagewright_mm::{Mm, Space};
#[cfg(feature = "planted")]
use pagewright_plant::{PlantedBug, choose};
use pagewright_sim::Sim;
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use pagewright_types::VirtAddr;
use std::cell::RefCell;
use std::collections::HashSet;

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

/// Like [`race`], under the schedule that `strategy` chooses.
///
/// # Panics
/// If the programs do not complete.
pub fn race_by<I: Isa>(world: &TestWorld<I>, strategy: &ScheduleStrategy, programs: Vec<CoroutineBody>) {
    let report = explore::run(world.lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
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

/// Asserts that `holds` returns `true` for each of `schedules` seeds.
///
/// `PAGEWRIGHT_SOAK` in the environment multiplies the number of seeds by 100; a short race then
/// repeats schedules.
///
/// # Panics
/// With `failure` and the seed, if one fails; or if at most half of `schedules` schedules were
/// different.
pub fn assert_holds(schedules: u64, holds: fn(u64) -> bool, failure: &str) {
    let different = different_schedules(schedules, holds, failure);
    assert!(different * 2 > schedules, "{different} of {schedules} schedules are different");
}

/// Like [`assert_holds`], for a race so short that most seeds repeat a schedule.
///
/// # Panics
/// With `failure` and the seed, if one fails.
pub fn assert_short_race_holds(schedules: u64, holds: fn(u64) -> bool, failure: &str) {
    different_schedules(schedules, holds, failure);
}

/// Asserts that `holds` returns `true` for each seed; returns how many schedules were different.
fn different_schedules(schedules: u64, holds: fn(u64) -> bool, failure: &str) -> u64 {
    let seeds = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * schedules } else { schedules };
    TRACES.take();
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
/// # Panics
/// With the name of a bug that no seed finds.
#[cfg(feature = "planted")]
pub fn assert_planted_bugs_are_found(schedules: u64, cases: &[PlantedRace]) {
    for (bug, holds) in cases {
        choose(Some(*bug));
        let found = (0..schedules).find(|seed| !holds(*seed));
        choose(None);
        assert!(found.is_some(), "{} is not found", bug.name());
    }
}
