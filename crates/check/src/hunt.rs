//! Many schedules until one fails; then that one, as small as it gets.
//!
//! [`hunt`] is given a closure that makes a fresh machine and runs it under a chooser. The first schedule is calm: what fails there needs
//! no race. Then random ones of several rates alternate with PCT of depth 1 to 4, each a function of the seed and of the lengths of the runs
//! before. The first that finds something is cut down by `explore::shrink` while the same kind of finding is made, and run again
//! with everything written down.
//!
//! A [`Token`] replays a run bit for bit on a machine and settings of the same fingerprint; another is refused (INV-CHECK-TOKEN).
//!
//! Not guaranteed: that a schedule is not tried twice; [`Hunt::distinct`] counts those that differ.

use crate::bench::{Attempt, Detail};
use crate::finding::Finding;
use pagewright_model::Tally;
use pagewright_sim::explore::{self, Chooser, Fingerprint, Rates, Replay, Schedule, Strategy, Token};
use rustc_hash::FxHashSet;
use std::fmt;

/// What to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of all choices.
    pub seed: u64,
    /// Schedules to try at most.
    pub schedules: u32,
    /// Tries that cutting a failing schedule down may take.
    pub shrink: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 0, schedules: 500, shrink: 400 }
    }
}

/// What came of a hunt.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Schedules tried, without those tried in cutting one down.
    pub schedules: u32,
    /// Schedules whose steps differ.
    pub distinct: u32,
    /// Steps taken in them.
    pub steps: u64,
    /// What was judged in them.
    pub tally: Tally,
    /// The first that found something.
    pub found: Option<Found>,
}

/// A schedule that found something.
#[derive(Clone, Debug)]
pub struct Found {
    /// As it was chosen.
    pub token: Token,
    /// As it was cut down.
    pub small: Token,
    /// The run under `small`, in full detail.
    pub attempt: Attempt,
    /// Tries that cutting down took.
    pub tried: u32,
}

/// A token of another machine, or of other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What the token belongs to.
    pub token: Fingerprint,
    /// What was to run it.
    pub here: Fingerprint,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the replay token belongs to another machine or other settings ({}, here {})", self.token, self.here)
    }
}

impl std::error::Error for Foreign {}

/// The strategy of schedule `index`, where runs took up to `length` steps.
fn strategy(seed: u64, index: u32, length: u32) -> Strategy {
    let calm = Rates { drain: 100, deliver: 100, interrupt: 300, walk: 100, speculate: 0, evict: 0 };
    let late = Rates { drain: 20, deliver: 20, interrupt: 100, walk: 200, speculate: 20, evict: 5 };
    let wild = Rates { drain: 200, deliver: 200, interrupt: 500, walk: 400, speculate: 200, evict: 60 };
    let Some(turn) = index.checked_sub(1) else { return Strategy::List(Schedule::default()) };
    // Successive numbers seed generators of their own.
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(index));
    let rates = [Rates::default(), calm, late, wild][(turn / 2 % 4) as usize];
    match turn % 2 {
        0 => Strategy::Random { seed, rates },
        _ => Strategy::Pct { seed, depth: turn / 8 % 4 + 1, length: length.max(1), rates },
    }
}

/// Tries schedules until one finds something.
///
/// `attempt` makes a fresh machine and runs it under the chooser; the same choices must give the same run.
pub fn hunt(plan: &Plan, attempt: &mut dyn FnMut(&mut dyn Chooser, Detail) -> Attempt) -> Hunt {
    let mut hunt = Hunt { schedules: 0, distinct: 0, steps: 0, tally: Tally::default(), found: None };
    let (mut traces, mut length) = (FxHashSet::default(), 1);
    for index in 0..plan.schedules {
        let strategy = strategy(plan.seed, index, length);
        let run = attempt(&mut *strategy.chooser(), Detail::Quick);
        length = length.max(run.report.steps);
        hunt.schedules += 1;
        hunt.distinct += u32::from(traces.insert(run.report.trace));
        hunt.steps += u64::from(run.report.steps);
        hunt.tally += &run.tally;
        if let Some(finding) = run.findings.first() {
            let token = Token { fingerprint: run.fingerprint, strategy };
            hunt.found = Some(cut_down(plan, token, finding, run.report.schedule.clone(), attempt));
            break;
        }
    }
    hunt
}

fn cut_down(
    plan: &Plan,
    token: Token,
    finding: &Finding,
    schedule: Schedule,
    attempt: &mut dyn FnMut(&mut dyn Chooser, Detail) -> Attempt,
) -> Found {
    let mut tried = 0;
    let small = explore::shrink(schedule, plan.shrink, |schedule| {
        tried += 1;
        let run = attempt(&mut Replay::new(schedule), Detail::Quick);
        run.findings.first().is_some_and(|found| found.is_like(finding))
    });
    let attempt = attempt(&mut Replay::new(&small), Detail::Full);
    let small = Token { fingerprint: token.fingerprint, strategy: Strategy::List(small) };
    Found { token, small, attempt, tried }
}

/// Runs the schedule of `token` again, in full detail.
///
/// # Errors
/// [`Foreign`], when the token belongs to something else than what `attempt` makes.
pub fn replay(token: &Token, attempt: &mut dyn FnMut(&mut dyn Chooser, Detail) -> Attempt) -> Result<Attempt, Foreign> {
    let run = attempt(&mut *token.strategy.chooser(), Detail::Full);
    if run.fingerprint == token.fingerprint {
        Ok(run)
    } else {
        Err(Foreign { token: token.fingerprint, here: run.fingerprint })
    }
}
