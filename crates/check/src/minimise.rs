//! Minimises a failing run: its schedule, then its programs, then the schedule again.
//!
//! **INV-CHECK-CUT** What is left out of the programs of a finding is named by the text and the
//! token, what remains makes the same finding, and a whole program is left out only for a finding
//! of the oracle. Otherwise the smaller program would show another mistake, or none.
//!
//! What can be left out is the program of a CPU, and what the code itself calls an operation
//! ([`crate::Cpu::operation`]). A program of another CPU may be what a panic or a report waits for:
//! an assertion that fails without it shows nothing. The findings of the oracle hold whatever else
//! runs.
//!
//! The finding may need an operation under this schedule and not under another. So each smaller
//! program runs under the old schedule and, if that does not fail, in a short search of its own. In
//! that search nothing is speculated: a speculative walk in place of a read is not simpler.
//!
//! Not guaranteed: that the result is minimal. The code between two operations is foreign to the
//! check, and runs whole.

use crate::finding::CheckFinding;
use crate::search::{FailingSchedule, SearchPlan};
use crate::testbench::{Attempt, RunDetail};
use pagewright_sim::explore::{
    self, Chooser, PartialChooser, PctChooser, ProgramPart, Rates, ReplayChooser, ReplayToken, Schedule,
    ScheduleStrategy,
};

/// The most smaller programs that are tried.
const MOST_PROGRAMS: u32 = 60;
/// Schedules of the search for each of them.
const SCHEDULES: u32 = 40;
/// Fewer changes of priorities than this are in each.
const MOST_CHANGES: u32 = 4;

/// Minimises the run of `schedule`, which made `finding`, and runs what remains in full detail.
pub(crate) fn minimise(
    plan: &SearchPlan,
    token: ReplayToken,
    finding: &CheckFinding,
    schedule: Schedule,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
) -> FailingSchedule {
    // Leaving choices out does not shorten a run that reaches the step limit.
    let budget = if *finding == CheckFinding::StepLimit { 0 } else { plan.max_shrink_runs };
    let mut minimiser = Minimiser { attempt, seed: plan.seed, runs: 0, programs_left: MOST_PROGRAMS };
    let mut shrunk = minimiser.shrink(schedule, budget, |found| found.is_like(finding));
    if budget > 0 {
        let Attempt { findings, parts, .. } = minimiser.run(&mut ReplayChooser::new(&shrunk));
        let finding = findings.first().unwrap_or(finding);
        let cut = minimiser.cut(finding, shrunk.clone(), parts);
        if cut != shrunk {
            shrunk = minimiser.shrink(cut, budget, |found| found.is_same(finding));
        }
    }
    let shrink_runs = minimiser.runs;
    let attempt = attempt(&mut ReplayChooser::new(&shrunk), RunDetail::Full);
    let shrunk = ReplayToken { fingerprint: token.fingerprint, strategy: ScheduleStrategy::List(shrunk) };
    FailingSchedule { token, shrunk, attempt, shrink_runs }
}

struct Minimiser<'a> {
    attempt: &'a mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
    seed: u64,
    /// Runs so far.
    runs: u32,
    /// Smaller programs that may still be tried.
    programs_left: u32,
}

impl Minimiser<'_> {
    fn run(&mut self, chooser: &mut dyn Chooser) -> Attempt {
        self.runs += 1;
        (self.attempt)(chooser, RunDetail::Quick)
    }

    fn shrink(&mut self, schedule: Schedule, budget: u32, fails: impl Fn(&CheckFinding) -> bool) -> Schedule {
        explore::shrink(schedule, budget, |schedule| {
            self.run(&mut ReplayChooser::new(schedule)).findings.first().is_some_and(&fails)
        })
    }

    /// Leaves out the programs and the operations that the finding does not need.
    fn cut(&mut self, finding: &CheckFinding, schedule: Schedule, parts: Vec<ProgramPart>) -> Schedule {
        let is_program = |part: &ProgramPart| matches!(part, ProgramPart::Program(_));
        let (programs, operations): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_program);
        let judged = finding.rule().is_some();
        let without_programs = if judged { self.leave_out(finding, schedule, programs) } else { schedule };
        let remains = |part: &ProgramPart| match part {
            ProgramPart::Operation(cpu, _) => !without_programs.left_out.contains(&ProgramPart::Program(*cpu)),
            ProgramPart::Program(_) => false,
        };
        let operations = operations.into_iter().filter(remains).collect();
        self.leave_out(finding, without_programs.clone(), operations)
    }

    /// Leaves out as many of `parts` as possible, in portions that become smaller.
    fn leave_out(&mut self, finding: &CheckFinding, mut best: Schedule, mut parts: Vec<ProgramPart>) -> Schedule {
        let mut size = parts.len().div_ceil(2).max(1);
        loop {
            // From the end: earlier operations depend least on the last ones.
            let mut end = parts.len();
            while end > 0 && self.programs_left > 0 {
                let start = end.saturating_sub(size);
                self.programs_left -= 1;
                if let Some(smaller) = self.without(finding, &best, &parts[start..end]) {
                    best = smaller;
                    parts.drain(start..end);
                }
                end = start;
            }
            if size == 1 || self.programs_left == 0 {
                return best;
            }
            size = size.div_ceil(2);
        }
    }

    /// A schedule that makes the finding without `parts`, too, if one is found.
    fn without(&mut self, finding: &CheckFinding, best: &Schedule, parts: &[ProgramPart]) -> Option<Schedule> {
        let left_out = [&best.left_out, parts].concat();
        let same = Schedule { left_out: left_out.clone(), ..best.clone() };
        let is_found = |run: &Attempt| run.findings.first().is_some_and(|found| found.is_same(finding));
        if is_found(&self.run(&mut ReplayChooser::new(&same))) {
            return Some(same);
        }
        let mut length = 1;
        (0..SCHEDULES).find_map(|index| {
            let rates = Rates { speculate: 0, evict: 0, ..Rates::default() };
            let seed = self.seed.wrapping_add(u64::from(index));
            let mut chooser = PctChooser::new(seed, index % MOST_CHANGES, length, rates);
            let mut chooser = PartialChooser { chooser: &mut chooser, left_out: &left_out };
            let run = self.run(&mut chooser);
            length = length.max(run.report.steps);
            is_found(&run).then_some(run.report.schedule)
        })
    }
}
