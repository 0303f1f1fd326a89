//! Races: programs on several CPUs under many schedules.

use super::test_world::TestWorld;
use pagewright_arch::Isa;
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
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

fn race_by<I: Isa>(world: &TestWorld<I>, strategy: &ScheduleStrategy, programs: Vec<CoroutineBody>) {
    let report = explore::run(world.lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
    TRACES.with_borrow_mut(|traces| traces.insert(report.trace));
}

/// The first of `schedules` seeds for which `holds` returns `false`.
///
/// `PAGEWRIGHT_SOAK` in the environment multiplies the number of seeds by 100; a short race then
/// repeats schedules.
///
/// # Panics
/// If no seed fails, and at most half of `schedules` schedules were different.
pub fn first_failing_seed(schedules: u64, holds: fn(u64) -> bool) -> Option<u64> {
    let seeds = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * schedules } else { schedules };
    TRACES.take();
    let failing = (0..seeds).find(|seed| !holds(*seed));
    let different = TRACES.take().len() as u64;
    println!("{different} different schedules of {seeds}");
    assert!(failing.is_some() || different * 2 > schedules, "{different} of {seeds} schedules are different");
    failing
}
