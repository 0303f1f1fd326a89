//! Many schedules until one fails; then that one, as small as it gets.
//!
//! [`hunt`] is given a closure that makes a fresh machine and runs it under a chooser. The first
//! schedule is calm: what fails there needs no race. Then random ones alternate with PCT of depth 1
//! to 4, each with rates of its own, a function of the seed and of the lengths of the runs before.
//! The first that finds something is cut down by `explore::shrink` while the same kind of finding
//! is made, and run again with everything written down.
//!
//! A [`Token`] replays a run bit for bit on a machine and settings of the same fingerprint; another
//! is refused (INV-CHECK-TOKEN).
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
        Self { seed: 0, schedules: 2000, shrink: 1000 }
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

impl Found {
    /// The token to show: `small`, unless it is too long for a line that somebody copies.
    pub fn shown(&self) -> &Token {
        const LONG: usize = 1000;
        if self.small.to_string().len() > LONG { &self.token } else { &self.small }
    }
}

impl Hunt {
    /// As if `token` had been all there was to try.
    pub(crate) fn of_replay(token: &Token, attempt: Attempt) -> Self {
        let (steps, tally) = (u64::from(attempt.report.steps), attempt.tally.clone());
        let bad = !attempt.findings.is_empty();
        let found = bad.then(|| Found { token: token.clone(), small: token.clone(), attempt, tried: 0 });
        Self { schedules: 1, distinct: 1, steps, tally, found }
    }
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
fn strategy(numbers: &mut Numbers, index: u32, length: u32) -> Strategy {
    if index == 0 {
        return Strategy::List(Schedule::default());
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
        0 => Strategy::Random { seed, rates },
        _ => Strategy::Pct { seed, depth: numbers.one_of(&[1, 2, 3, 4]), length: length.max(1), rates },
    }
}

/// Tries schedules until one finds something.
///
/// `attempt` makes a fresh machine and runs it under the chooser; the same choices must give the
/// same run.
pub fn hunt(plan: &Plan, attempt: &mut dyn FnMut(&mut dyn Chooser, Detail) -> Attempt) -> Hunt {
    let mut hunt = Hunt { schedules: 0, distinct: 0, steps: 0, tally: Tally::default(), found: None };
    let (mut traces, mut numbers, mut length) = (FxHashSet::default(), Numbers(plan.seed), 1);
    for index in 0..plan.schedules {
        let strategy = strategy(&mut numbers, index, length);
        let run = attempt(&mut *strategy.chooser(), Detail::Quick);
        hunt.schedules += 1;
        hunt.distinct += u32::from(traces.insert(run.report.trace));
        hunt.steps += u64::from(run.report.steps);
        length = (hunt.steps / u64::from(hunt.schedules)) as u32;
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
    // A run without an end has no part that is needed.
    let budget = if *finding == Finding::Endless { 0 } else { plan.shrink };
    let small = explore::shrink(schedule, budget, |schedule| {
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
