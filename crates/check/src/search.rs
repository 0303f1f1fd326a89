//! Many schedules until one fails; then that one, as small as it gets.
//!
//! [`search`] is given a closure that makes a fresh machine and runs it under a chooser. The first
//! schedule is calm: what fails there needs no race. Then random ones alternate with PCT of depth 1
//! to 4, each with rates of its own, a function of the seed and of the lengths of the runs before.
//! The first that finds something is cut down by `explore::shrink` while the same kind of finding
//! is made, and run again with everything written down.
//!
//! A [`ReplayToken`] replays a run bit for bit on a machine and settings of the same fingerprint; another
//! is refused (INV-CHECK-TOKEN).
//!
//! Not guaranteed: that a schedule is not tried twice; [`Search::distinct`] counts those that differ.

use crate::finding::CheckFinding;
use crate::testbench::{Attempt, RunDetail};
use pagewright_model::Tally;
use pagewright_sim::explore::{
    self, Chooser, MachineFingerprint, Rates, ReplayChooser, ReplayToken, Schedule, ScheduleStrategy,
};
use rustc_hash::FxHashSet;
use std::fmt;

/// What to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchPlan {
    /// Of all choices.
    pub seed: u64,
    /// Schedules to try at most.
    pub schedules: u32,
    /// Tries that cutting a failing schedule down may take.
    pub max_shrink_runs: u32,
}

impl Default for SearchPlan {
    fn default() -> Self {
        Self { seed: 0, schedules: 2000, max_shrink_runs: 1000 }
    }
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Schedules tried, without those tried in cutting one down.
    pub schedules: u32,
    /// Schedules whose steps differ.
    pub distinct: u32,
    /// Steps taken in them.
    pub steps: u64,
    /// What was judged in them.
    pub tally: Tally,
    /// The first that found something.
    pub failing: Option<FailingSchedule>,
}

impl FailingSchedule {
    /// The token to show: `small`, unless it is too long for a line that somebody copies.
    pub fn printed_token(&self) -> &ReplayToken {
        const LONG: usize = 1000;
        if self.shrunk.to_string().len() > LONG { &self.token } else { &self.shrunk }
    }
}

impl Search {
    /// As if `token` had been all there was to try.
    pub(crate) fn of_replay(token: &ReplayToken, attempt: Attempt) -> Self {
        let (steps, tally) = (u64::from(attempt.report.steps), attempt.tally.clone());
        let bad = !attempt.findings.is_empty();
        let failing =
            bad.then(|| FailingSchedule { token: token.clone(), shrunk: token.clone(), attempt, shrink_runs: 0 });
        Self { schedules: 1, distinct: 1, steps, tally, failing }
    }
}

/// A schedule that found something.
#[derive(Clone, Debug)]
pub struct FailingSchedule {
    /// As it was chosen.
    pub token: ReplayToken,
    /// As it was cut down.
    pub shrunk: ReplayToken,
    /// The run under `small`, in full detail.
    pub attempt: Attempt,
    /// Tries that cutting down took.
    pub shrink_runs: u32,
}

/// A token of another machine, or of other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignToken {
    /// What the token belongs to.
    pub token: MachineFingerprint,
    /// What was to run it.
    pub here: MachineFingerprint,
}

impl fmt::Display for ForeignToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the replay token belongs to another machine or other settings ({}, here {})", self.token, self.here)
    }
}

impl std::error::Error for ForeignToken {}

/// Successive numbers of a seed (SplitMix64, Steele et al., OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One of `those`.
    fn one_of(&mut self, those: &[u32]) -> u32 {
        those[(self.next() % those.len() as u64) as usize]
    }
}

/// The strategy of schedule `index`, where runs took `length` steps.
///
/// Each schedule has rates of its own: what one never does, another does all the time (swarm
/// testing, Groce et al., ISSTA 2012).
fn strategy(numbers: &mut Numbers, index: u32, length: u32) -> ScheduleStrategy {
    if index == 0 {
        return ScheduleStrategy::List(Schedule::default());
    }
    let seed = numbers.next();
    let often = [2, 50, 300, 1500];
    let rates = Rates {
        drain: numbers.one_of(&often),
        deliver: numbers.one_of(&often),
        interrupt: numbers.one_of(&often),
        walk: numbers.one_of(&often),
        speculate: numbers.one_of(&[0, 10, 60, 250]),
        evict: numbers.one_of(&[0, 5, 20, 100]),
    };
    match index % 2 {
        0 => ScheduleStrategy::Random { seed, rates },
        _ => ScheduleStrategy::Pct { seed, depth: numbers.one_of(&[1, 2, 3, 4]), length: length.max(1), rates },
    }
}

/// Tries schedules until one finds something.
///
/// `attempt` makes a fresh machine and runs it under the chooser; the same choices must give the
/// same run.
pub fn search(plan: &SearchPlan, attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt) -> Search {
    let mut search = Search { schedules: 0, distinct: 0, steps: 0, tally: Tally::default(), failing: None };
    let (mut traces, mut numbers, mut length) = (FxHashSet::default(), Numbers(plan.seed), 1);
    for index in 0..plan.schedules {
        let strategy = strategy(&mut numbers, index, length);
        let run = attempt(&mut *strategy.chooser(), RunDetail::Quick);
        search.schedules += 1;
        search.distinct += u32::from(traces.insert(run.report.trace));
        search.steps += u64::from(run.report.steps);
        length = (search.steps / u64::from(search.schedules)) as u32;
        search.tally += &run.tally;
        if let Some(finding) = run.findings.first() {
            let token = ReplayToken { fingerprint: run.fingerprint, strategy };
            search.failing = Some(cut_down(plan, token, finding, run.report.schedule.clone(), attempt));
            break;
        }
    }
    search
}

fn cut_down(
    plan: &SearchPlan,
    token: ReplayToken,
    finding: &CheckFinding,
    schedule: Schedule,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> FailingSchedule {
    let mut shrink_runs = 0;
    // A run without an end has no part that is needed.
    let budget = if *finding == CheckFinding::StepLimit { 0 } else { plan.max_shrink_runs };
    let shrunk = explore::shrink(schedule, budget, |schedule| {
        shrink_runs += 1;
        let run = attempt(&mut ReplayChooser::new(schedule), RunDetail::Quick);
        run.findings.first().is_some_and(|found| found.is_like(finding))
    });
    let attempt = attempt(&mut ReplayChooser::new(&shrunk), RunDetail::Full);
    let shrunk = ReplayToken { fingerprint: token.fingerprint, strategy: ScheduleStrategy::List(shrunk) };
    FailingSchedule { token, shrunk, attempt, shrink_runs }
}

/// Runs the schedule of `token` again, in full detail.
///
/// # Errors
/// [`ForeignToken`], when the token belongs to something else than what `attempt` makes.
pub fn replay(
    token: &ReplayToken,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> Result<Attempt, ForeignToken> {
    let run = attempt(&mut *token.strategy.chooser(), RunDetail::Full);
    if run.fingerprint == token.fingerprint {
        Ok(run)
    } else {
        Err(ForeignToken { token: token.fingerprint, here: run.fingerprint })
    }
}
