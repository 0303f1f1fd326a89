//! Explore mode: after the setup, the CPUs' operations are interleaved at every effect.
//!
//! Each attempt has a machine of its own. The checks after the last operation are those of fast
//! mode.

use super::fast_mode;
use super::program::RandomProgram;
use super::program_run::ProgramRun;
use pagewright_arch::Isa;
use pagewright_check::{Attempt, CheckFinding, Chooser, RunDetail, Search, SearchPlan, search};
use pagewright_lab::LabError;
use pagewright_sim::explore::{self, ExploreSettings, RunEnd};
use pagewright_types::CpuId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A program that runs under many schedules.
pub struct ExploredProgram<'a> {
    program: &'a RandomProgram,
    settings: ExploreSettings,
}

impl<'a> ExploredProgram<'a> {
    /// A program for a machine of instruction set `I`.
    ///
    /// # Errors
    /// [`LabError`], if the machine cannot be built.
    pub fn new<I: Isa>(program: &'a RandomProgram) -> Result<Self, LabError> {
        let run = ProgramRun::<I>::new(program)?;
        let settings = ExploreSettings {
            // A break of a shared table takes thousands of steps. Reclaim splits huge pages, and
            // writes their pages to swap: with two of them, 2,000,000 steps were too few.
            max_steps: if program.shape.is_huge() { 20_000_000 } else { 200_000 },
            speculate_near: run.window.all_pages().collect(),
            ..ExploreSettings::default()
        };
        Ok(Self { program, settings })
    }

    /// Runs the program once.
    ///
    /// # Panics
    /// If the host has no memory for the machine.
    pub fn attempt<I: Isa>(&self, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
        let run = ProgramRun::<I>::new(self.program);
        let run = Rc::new(run.expect("the machine was built before"));
        // The journal includes the setup, which fills the TLBs.
        run.bench.journal().turn(detail == RunDetail::Full);
        let (setup, body) = self.program.steps();
        guarded(&run, || {
            for step in setup {
                if run.bench.finding_count() == 0 {
                    run.step(step.cpu, step.operation);
                }
            }
        });
        let programs = (0..self.program.shape.cpus).map(CpuId::new).map(|cpu| {
            let mine: Vec<_> = body.iter().filter(|step| step.cpu == cpu).map(|step| step.operation).collect();
            let run = Rc::clone(&run);
            let body = move || mine.into_iter().for_each(|operation| run.step(cpu, operation));
            Box::new(body) as explore::CoroutineBody
        });
        let report = run.bench.run(&self.settings, programs.collect(), detail, chooser);
        if report.end == RunEnd::Completed {
            guarded(&run, || run.final_checks());
        }
        let completed = report.end == RunEnd::Completed;
        let mut attempt = run.bench.attempt(&self.settings, report);
        attempt.tally += run.spec.borrow().tally();
        if !completed || !attempt.findings.is_empty() {
            // Dropping debts and pins of an operation that did not finish would panic.
            std::mem::forget(run);
        }
        attempt
    }

    /// Runs the program under schedules until one has a finding.
    pub fn search<I: Isa>(&self, plan: &SearchPlan) -> Search {
        search(plan, &mut |chooser, detail| self.attempt::<I>(chooser, detail))
    }
}

/// Calls `act`, outside of the explored schedule, without the planted bug; a panic is a finding.
///
/// The machine itself detects some planted bugs outside of schedules, which would say nothing about
/// the oracle.
fn guarded<I: Isa>(run: &ProgramRun<I>, act: impl FnOnce()) {
    #[cfg(feature = "planted")]
    let planted = super::PlantedBug::ALL.iter().copied().find(|plant| pagewright_plant::is_chosen(*plant));
    #[cfg(feature = "planted")]
    super::plant(None);
    let ran = catch_unwind(AssertUnwindSafe(act));
    #[cfg(feature = "planted")]
    super::plant(planted);
    if let Err(payload) = ran {
        let message = fast_mode::panic_message(&*payload);
        run.bench.report(CheckFinding::Panicked { cpu: CpuId::new(0), message });
    }
}
