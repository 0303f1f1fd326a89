//! Races: programs on several CPUs under many schedules.

use super::world::World;
use pagewright_arch::Isa;
use pagewright_sim::explore::{self, CoroutineBody, ExploreSettings, Rates, RunEnd, ScheduleStrategy};
use std::cell::RefCell;
use std::collections::HashSet;

thread_local! {
    /// Fingerprints of the schedules that ran.
    static TRACES: RefCell<HashSet<u64>> = RefCell::default();
}

/// Runs programs under the schedule that `seed` chooses.
///
/// # Panics
/// When they do not come to an end.
pub fn race<I: Isa>(world: &World<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Random { seed, rates: Rates::default() }, programs);
}

/// The same where one CPU does much while another stands still.
///
/// # Panics
/// When they do not come to an end.
pub fn race_in_long_turns<I: Isa>(world: &World<I>, seed: u64, programs: Vec<CoroutineBody>) {
    race_by(world, &ScheduleStrategy::Pct { seed, depth: 6, length: 1000, rates: Rates::default() }, programs);
}

fn race_by<I: Isa>(world: &World<I>, strategy: &ScheduleStrategy, programs: Vec<CoroutineBody>) {
    let report = explore::run(world.lab.sim(), &ExploreSettings::default(), programs, &mut *strategy.chooser());
    assert_eq!(report.end, RunEnd::Completed, "{strategy:?}");
    TRACES.with_borrow_mut(|traces| traces.insert(report.trace));
}

/// The first of `schedules` seeds whose race ends badly.
///
/// `PAGEWRIGHT_SOAK` in the environment makes it a hundred times as many seeds, among which a short
/// race repeats schedules.
///
/// # Panics
/// When the different ones among them are fewer than half of `schedules`.
pub fn first_lost(schedules: u64, holds: fn(u64) -> bool) -> Option<u64> {
    let seeds = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 100 * schedules } else { schedules };
    TRACES.take();
    let lost = (0..seeds).find(|seed| !holds(*seed));
    let different = TRACES.take().len() as u64;
    println!("{different} different schedules of {seeds}");
    assert!(lost.is_some() || different * 2 > schedules, "{different} of {seeds} schedules are different");
    lost
}
