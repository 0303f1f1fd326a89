//! Minimises a failing program: first its schedule, then the program, then the schedule again.
//!
//! The failure may need an operation under this schedule and not under another. So each smaller
//! program runs under the old schedule and, if that does not fail, in a short search of its own.

use super::explore_mode::ExploredProgram;
use super::fast_mode;
use super::program::RandomProgram;
use pagewright_arch::Isa;
use pagewright_check::{Attempt, CheckFinding, FailingSchedule, ReplayToken, RunDetail, SearchPlan};
use pagewright_lab::LabError;
use pagewright_sim::explore::{self, ReplayChooser, Schedule, ScheduleStrategy};
use pagewright_types::IsaKind;

/// Limit of the smaller programs.
const MAX_PROGRAMS: u32 = 120;
/// Schedules of the search for each smaller program.
const SCHEDULES: u32 = 40;
/// Limit of the runs that shrink the last schedule.
const MAX_SHRINK_RUNS: u32 = 400;
/// Choices of the longest schedule that is shrunk: each run takes all of them.
const MAX_SHRUNK_CHOICES: usize = 100_000;

/// A finding, with the minimised program that reproduces it.
#[derive(Clone, Debug)]
pub struct BugReport {
    /// The instruction set.
    pub isa: IsaKind,
    /// The minimised program.
    pub program: RandomProgram,
    /// The program with all operations.
    pub whole: RandomProgram,
    /// The schedule, in explore mode.
    pub token: Option<ReplayToken>,
    /// The findings of the minimised program, in order.
    pub findings: Vec<CheckFinding>,
    /// The run with its journal, in explore mode.
    pub attempt: Option<Attempt>,
}

/// Removes operations in ever smaller parts, as long as the program fails.
pub(crate) fn remove_operations(whole: &RandomProgram, mut fails: impl FnMut(&RandomProgram) -> bool) -> RandomProgram {
    let (mut best, mut left) = (whole.clone(), MAX_PROGRAMS);
    let mut size = best.len().div_ceil(2).max(1);
    loop {
        // From the end: earlier operations depend least on the last ones.
        let mut end = best.len();
        while end > 0 && left > 0 {
            let start = end.saturating_sub(size);
            let less = best.without(start, end - start);
            left -= 1;
            if fails(&less) {
                best = less;
            }
            end = start.min(best.len());
        }
        if size == 1 || left == 0 {
            return best;
        }
        size = size.div_ceil(2);
    }
}

/// Minimises a program that failed in fast mode.
pub(super) fn minimise_fast<I: Isa>(whole: &RandomProgram, findings: Vec<CheckFinding>) -> BugReport {
    let mut findings = findings;
    let first = findings.first().cloned();
    let program = remove_operations(whole, |less| {
        let ran = fast_mode::run::<I>(less).map(|ran| ran.findings).unwrap_or_default();
        let found = is_like(ran.first(), first.as_ref());
        if found {
            findings = ran;
        }
        found
    });
    BugReport { isa: I::KIND, program, whole: whole.clone(), token: None, findings, attempt: None }
}

/// Runs a program in fast mode, and minimises it if there is a finding.
///
/// # Errors
/// [`LabError`], if the machine cannot be built.
pub fn smallest<I: Isa>(program: &RandomProgram) -> Result<Option<BugReport>, LabError> {
    let findings = fast_mode::run::<I>(program)?.findings;
    Ok((!findings.is_empty()).then(|| minimise_fast::<I>(program, findings)))
}

fn is_like(found: Option<&CheckFinding>, wanted: Option<&CheckFinding>) -> bool {
    found.zip(wanted).is_some_and(|(found, wanted)| found.is_like(wanted))
}

/// Minimises a program and the schedule under which it failed.
pub(super) fn minimise_explored<I: Isa>(whole: &RandomProgram, found: &FailingSchedule) -> BugReport {
    let finding = found.attempt.findings.first().cloned();
    let fails = |attempt: &Attempt| is_like(attempt.findings.first(), finding.as_ref());
    let mut schedule = found.attempt.report.schedule.clone();
    let program = remove_operations(whole, |less| match failing::<I>(less, &schedule, &fails) {
        Some(shorter) => {
            schedule = shorter;
            true
        }
        None => false,
    });
    let Ok(explored) = ExploredProgram::new::<I>(&program) else { unreachable!("the machine was built before") };
    let run = |schedule: &Schedule, detail| explored.attempt::<I>(&mut ReplayChooser::new(schedule), detail);
    if schedule.runs.len() <= MAX_SHRUNK_CHOICES {
        schedule = explore::shrink(schedule, MAX_SHRINK_RUNS, |less| fails(&run(less, RunDetail::Quick)));
    }
    let mut attempt = run(&schedule, RunDetail::Full);
    let mut token = ReplayToken { fingerprint: attempt.fingerprint, strategy: ScheduleStrategy::List(schedule) };
    if !token.is_short() {
        // A command takes no argument of 128 KiB (Linux's MAX_ARG_STRLEN).
        (token, attempt) = match searched::<I>(&explored, program.seed, &fails) {
            Some(found) => (found.token, found.attempt),
            None => (token, attempt),
        };
    }
    let findings = attempt.findings.clone();
    BugReport { isa: I::KIND, program, whole: whole.clone(), token: Some(token), findings, attempt: Some(attempt) }
}

/// A schedule under which the program fails: `schedule`, or one of a short search.
fn failing<I: Isa>(
    program: &RandomProgram,
    schedule: &Schedule,
    fails: &impl Fn(&Attempt) -> bool,
) -> Option<Schedule> {
    let explored = ExploredProgram::new::<I>(program).ok()?;
    let again = explored.attempt::<I>(&mut ReplayChooser::new(schedule), RunDetail::Quick);
    if fails(&again) {
        return Some(again.report.schedule);
    }
    searched::<I>(&explored, program.seed, fails).map(|found| found.attempt.report.schedule)
}

/// A schedule of a short search under which the program fails.
fn searched<I: Isa>(
    explored: &ExploredProgram<'_>,
    seed: u64,
    fails: &impl Fn(&Attempt) -> bool,
) -> Option<FailingSchedule> {
    let plan = SearchPlan { seed, schedules: SCHEDULES, max_shrink_runs: 0 };
    explored.search::<I>(&plan).failing.filter(|found| fails(&found.attempt))
}
