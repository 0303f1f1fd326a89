//! What was found, by as little as finds it: first the schedule is cut down, then the program, then
//! the schedule again.
//!
//! An operation that is left out may be one that the failure needs under this schedule and not
//! under another, so each smaller program gets the old schedule and then a short search of its own.

use super::explore::Explored;
use super::fast;
use super::program::Program;
use pagewright_arch::Isa;
use pagewright_check::{Attempt, CheckFinding, FailingSchedule, ReplayToken, RunDetail, SearchPlan};
use pagewright_lab::LabError;
use pagewright_sim::explore::{self, ReplayChooser, Schedule, ScheduleStrategy};
use pagewright_types::IsaKind;

/// Smaller programs that are tried.
const PROGRAMS: u32 = 120;
/// Schedules that a smaller program gets.
const SCHEDULES: u32 = 40;
/// Tries for the last cut of the schedule.
const LAST: u32 = 400;

/// Something that was found.
#[derive(Clone, Debug)]
pub struct Bug {
    /// Where.
    pub isa: IsaKind,
    /// By what.
    pub program: Program,
    /// The program as it was drawn.
    pub whole: Program,
    /// Under which schedule, in explore mode.
    pub token: Option<ReplayToken>,
    /// What, in the order in which it was found.
    pub findings: Vec<CheckFinding>,
    /// The run, in explore mode, in full detail.
    pub attempt: Option<Attempt>,
}

/// Leaves out what `fails` doesn't need, in ever smaller parts.
pub(crate) fn cut_down(whole: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let (mut best, mut left) = (whole.clone(), PROGRAMS);
    let mut size = best.len().div_ceil(2).max(1);
    loop {
        // From the end: what comes late matters least to what came before it.
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

/// A bug of fast mode.
pub(super) fn of_fast<I: Isa>(whole: &Program, findings: Vec<CheckFinding>) -> Bug {
    let mut findings = findings;
    let first = findings.first().cloned();
    let program = cut_down(whole, |less| {
        let ran = fast::run::<I>(less).map(|ran| ran.findings).unwrap_or_default();
        let found = is_like(ran.first(), first.as_ref());
        if found {
            findings = ran;
        }
        found
    });
    Bug { isa: I::KIND, program, whole: whole.clone(), token: None, findings, attempt: None }
}

/// Runs a program operation by operation, and cuts it down to what its first finding needs.
///
/// # Errors
/// [`LabError`], when there is no such machine.
pub fn smallest<I: Isa>(program: &Program) -> Result<Option<Bug>, LabError> {
    let findings = fast::run::<I>(program)?.findings;
    Ok((!findings.is_empty()).then(|| of_fast::<I>(program, findings)))
}

fn is_like(found: Option<&CheckFinding>, wanted: Option<&CheckFinding>) -> bool {
    found.zip(wanted).is_some_and(|(found, wanted)| found.is_like(wanted))
}

/// A bug of explore mode.
pub(super) fn of_explored<I: Isa>(whole: &Program, found: &FailingSchedule) -> Bug {
    let finding = found.attempt.findings.first().cloned();
    let fails = |attempt: &Attempt| is_like(attempt.findings.first(), finding.as_ref());
    let mut schedule = found.attempt.report.schedule.clone();
    let program = cut_down(whole, |less| match failing::<I>(less, &schedule, &fails) {
        Some(shorter) => {
            schedule = shorter;
            true
        }
        None => false,
    });
    let Ok(explored) = Explored::new::<I>(&program) else { unreachable!("its machine was made before") };
    let run = |schedule: &Schedule, detail| explored.attempt::<I>(&mut ReplayChooser::new(schedule), detail);
    let schedule = explore::shrink(schedule, LAST, |less| fails(&run(less, RunDetail::Quick)));
    let attempt = run(&schedule, RunDetail::Full);
    let token = ReplayToken { fingerprint: attempt.fingerprint, strategy: ScheduleStrategy::List(schedule) };
    let findings = attempt.findings.clone();
    Bug { isa: I::KIND, program, whole: whole.clone(), token: Some(token), findings, attempt: Some(attempt) }
}

/// A schedule under which the program fails: the one given, or one from a small search.
fn failing<I: Isa>(program: &Program, schedule: &Schedule, fails: &impl Fn(&Attempt) -> bool) -> Option<Schedule> {
    let explored = Explored::new::<I>(program).ok()?;
    let again = explored.attempt::<I>(&mut ReplayChooser::new(schedule), RunDetail::Quick);
    if fails(&again) {
        return Some(again.report.schedule);
    }
    let plan = SearchPlan { seed: program.seed, schedules: SCHEDULES, max_shrink_runs: 0 };
    let found = explored.search::<I>(&plan).failing.filter(|found| fails(&found.attempt))?;
    Some(found.attempt.report.schedule)
}
