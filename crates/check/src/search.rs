//! The search for a failing schedule, and its replay.
//!
//! [`search`] takes a closure that makes a fresh machine and runs it under a chooser. It tries the
//! default schedule first: a failure there needs no race. Then random schedules alternate with PCT
//! of depth 1 to 4, each with rates of its own; both are a function of the seed and of the lengths
//! of the first runs. The search stops at the first schedule with a finding. `minimise` reduces
//! that schedule and its programs while the run still makes the finding, and runs what remains once
//! more with everything recorded.
//!
//! A [`ReplayToken`] replays a run bit for bit on a machine and settings with the same fingerprint;
//! on others it is refused (INV-CHECK-TOKEN).
//!
//! **INV-CHECK-TOKEN** A replay token gives the run for which it was printed, bit for bit, on a
//! machine and settings with its fingerprint, and is refused elsewhere. Otherwise a finding could
//! not be shown to others.
//!
//! Not guaranteed: that no schedule is tried twice. [`Search::distinct`] counts those that differ.

use crate::exhaustive::{ActReduction, Enumerated, SearchBounds, enumerate};
use crate::minimise::minimise;
use crate::processes::{Processes, RunRecord};
use crate::testbench::{Attempt, RunDetail};
use pagewright_model::Tally;
use pagewright_sim::explore::{Chooser, MachineFingerprint, Rates, ReplayToken, Schedule, ScheduleStrategy};
use rustc_hash::FxHashSet;
use std::fmt;
use std::ops::ControlFlow;

/// The limits of a search, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchPlan {
    /// The seed of all random choices.
    pub seed: u64,
    /// The most schedules to try.
    pub schedules: u32,
    /// The most runs that shrinking a failing schedule may take.
    pub max_shrink_runs: u32,
}

impl Default for SearchPlan {
    fn default() -> Self {
        Self { seed: 0, schedules: 2000, max_shrink_runs: 1000 }
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Schedules tried, those of shrinking excluded.
    pub schedules: u32,
    /// Schedules among them that took different steps.
    pub distinct: u32,
    /// Steps in all of them.
    pub steps: u64,
    /// How often each rule had something to judge in them.
    pub tally: Tally,
    /// Stores to page tables through pointers that were found in them.
    pub pointer_stores: u64,
    /// The first schedule with a finding.
    pub failing: Option<FailingSchedule>,
    /// The bounds and the extent of an exhaustive search.
    pub exhaustive: Option<(SearchBounds, Enumerated)>,
}

impl FailingSchedule {
    /// The token to print: `shrunk`, unless it is long.
    pub fn printed_token(&self) -> &ReplayToken {
        if self.shrunk.is_short() { &self.shrunk } else { &self.token }
    }
}

impl Search {
    fn count(&mut self, run: &RunRecord, is_new: bool) {
        self.schedules += 1;
        self.distinct += u32::from(is_new);
        self.steps += u64::from(run.steps);
        self.tally += &run.tally;
        self.pointer_stores += run.pointer_stores;
    }

    /// The search that `token` alone makes.
    pub(crate) fn of_replay(token: &ReplayToken, attempt: Attempt) -> Self {
        let (steps, tally) = (u64::from(attempt.report.steps), attempt.tally.clone());
        let pointer_stores = attempt.pointer_stores;
        let bad = !attempt.findings.is_empty();
        let failing =
            bad.then(|| FailingSchedule { token: token.clone(), shrunk: token.clone(), attempt, shrink_runs: 0 });
        Self { schedules: 1, distinct: 1, steps, tally, pointer_stores, failing, exhaustive: None }
    }
}

/// A schedule whose run has a finding.
#[derive(Clone, Debug)]
pub struct FailingSchedule {
    /// The schedule as the search chose it.
    pub token: ReplayToken,
    /// The shrunk schedule.
    pub shrunk: ReplayToken,
    /// The run under `shrunk`, in full detail.
    pub attempt: Attempt,
    /// Runs that shrinking took.
    pub shrink_runs: u32,
}

/// A replay token was given to another machine, or to other settings, than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignToken {
    /// The fingerprint in the token.
    pub token: MachineFingerprint,
    /// The fingerprint of the machine and the settings that were to replay it.
    pub here: MachineFingerprint,
}

impl fmt::Display for ForeignToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, here } = self;
        write!(
            f,
            "the replay token belongs to another machine or other settings: it has fingerprint {token}, not {here}"
        )
    }
}

impl std::error::Error for ForeignToken {}

/// The pseudo-random numbers of a seed (SplitMix64, Steele et al., OOPSLA 2014).
#[derive(Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One of `values`.
    fn one_of(&mut self, values: &[u32]) -> u32 {
        values[(self.next() % values.len() as u64) as usize]
    }
}

/// The strategy of schedule `index`; the first runs took `length` steps on average.
///
/// Each schedule has rates of its own, so that an event that one schedule never has is frequent in
/// another (swarm testing, Groce et al., ISSTA 2012).
fn strategy(numbers: &mut SplitMix64, index: u32, length: u32) -> ScheduleStrategy {
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

/// The first schedules of a search: PCT takes its length from theirs.
const FIRST_SCHEDULES: u32 = 16;

/// The strategies of a search, in order.
#[derive(Clone)]
pub(crate) struct Strategies {
    numbers: SplitMix64,
    index: u32,
    /// Steps of the first schedules.
    steps: u64,
}

impl Strategies {
    /// The number of the next schedule.
    pub(crate) fn next_index(&self) -> u32 {
        self.index
    }

    pub(crate) fn next(&mut self) -> ScheduleStrategy {
        let runs = u64::from(self.index.min(FIRST_SCHEDULES)).max(1);
        let index = self.index;
        self.index += 1;
        strategy(&mut self.numbers, index, (self.steps / runs) as u32)
    }

    /// Takes note of the run of the last schedule.
    fn ran(&mut self, steps: u32) {
        if self.index <= FIRST_SCHEDULES {
            self.steps += u64::from(steps);
        }
    }
}

/// Tries schedules until one has a finding, and minimises that run.
///
/// `attempt` makes a fresh machine and runs it under the chooser. The same choices must give the
/// same run.
pub fn search(plan: &SearchPlan, attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt) -> Search {
    search_in_processes(plan, 1, attempt)
}

/// As [`search`], with the same result, in several processes (INV-CHECK-PROCESSES).
///
/// With one, or where the host refuses to fork, this process makes all runs.
///
/// # Panics
/// When a run has a finding in another process, and in this one has none.
pub fn search_in_processes(
    plan: &SearchPlan,
    processes: u32,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> Search {
    let mut search = Search::default();
    let mut traces = FxHashSet::default();
    let mut strategies = Strategies { numbers: SplitMix64(plan.seed), index: 0, steps: 0 };
    let mut others = None;
    for index in 0..plan.schedules {
        if index == FIRST_SCHEDULES && processes > 1 {
            others = Processes::start(processes, &strategies, plan.schedules, attempt).ok();
        }
        let strategy = strategies.next();
        let elsewhere = others.as_mut().and_then(Processes::next_record);
        if let Some(record) = elsewhere.as_ref().filter(|record| !record.found) {
            search.count(record, traces.insert(record.trace));
            continue;
        }
        let run = attempt(&mut *strategy.chooser(), RunDetail::Quick);
        strategies.ran(run.report.steps);
        search.count(&RunRecord::of(&run), traces.insert(run.report.trace));
        if let Some(finding) = run.findings.first() {
            drop(others);
            let token = ReplayToken { fingerprint: run.fingerprint, strategy };
            search.failing = Some(minimise(plan, token, finding, run.report.schedule.clone(), attempt));
            return search;
        }
        assert!(
            elsewhere.is_none(),
            "schedule {} has a finding in another process and none in this one: some state outlives a run",
            index + 1
        );
    }
    search
}

/// Tries all schedules within `bounds` until one has a finding, and shrinks that one.
///
/// `plan` limits the number of schedules. See [`enumerate`] for `attempt`.
pub fn search_all(
    plan: &SearchPlan,
    bounds: SearchBounds,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> Search {
    let (mut search, mut failed) = (Search::default(), None);
    // A run that is given up has had something to judge, too, and may be the only one.
    let mut tally = Tally::default();
    let mut counted = |chooser: &mut dyn Chooser, detail| {
        let run = attempt(chooser, detail);
        tally += &run.tally;
        run
    };
    let done = enumerate(bounds, ActReduction::Merging, &mut counted, &mut |run| {
        search.count(&RunRecord::of(run), true);
        match run.findings.first() {
            Some(finding) => {
                failed = Some((run.fingerprint, finding.clone(), run.report.schedule.clone()));
                ControlFlow::Break(())
            }
            None if search.schedules >= plan.schedules => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    search.tally = tally;
    search.exhaustive = Some((bounds, done));
    if let Some((fingerprint, finding, schedule)) = failed {
        let token = ReplayToken { fingerprint, strategy: ScheduleStrategy::List(schedule.clone()) };
        search.failing = Some(minimise(plan, token, &finding, schedule, attempt));
    }
    search
}

/// Runs the schedule of `token` again, in full detail.
///
/// # Errors
/// [`ForeignToken`], when the fingerprint of the token is not that of the machine and the settings
/// that `attempt` makes.
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
