//! Explore mode: the beginning runs calmly, then the CPUs' operations are interleaved at every
//! effect.
//!
//! Each attempt is a world of its own. When the schedule has run to its end, the same is asked at
//! rest as in fast mode.

use super::fast;
use super::program::Program;
use super::world::World;
use pagewright_arch::Isa;
use pagewright_check::{Attempt, CheckFinding, Chooser, RunDetail, Search, SearchPlan, search};
use pagewright_lab::LabError;
use pagewright_sim::explore::{self, ExploreSettings, RunEnd};
use pagewright_types::CpuId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A program whose schedules can be tried.
pub struct Explored<'a> {
    program: &'a Program,
    settings: ExploreSettings,
}

impl<'a> Explored<'a> {
    /// Schedules of `program` on a machine of instruction set `I`.
    ///
    /// # Errors
    /// [`LabError`], when there is no such machine.
    pub fn new<I: Isa>(program: &'a Program) -> Result<Self, LabError> {
        let world = World::<I>::new(program.shape, program.seed)?;
        let settings = ExploreSettings { speculate_near: world.window.all().collect(), ..ExploreSettings::default() };
        Ok(Self { program, settings })
    }

    /// Runs the program once.
    ///
    /// # Panics
    /// When the host has no memory left for the machine.
    pub fn attempt<I: Isa>(&self, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
        let world = World::<I>::new(self.program.shape, self.program.seed);
        let world = Rc::new(world.expect("a machine that could be made before"));
        // What a TLB holds from the beginning belongs to the story, too.
        world.bench.journal().turn(detail == RunDetail::Full);
        let (calm, others) = self.program.steps();
        guarded(&world, || {
            for step in calm {
                if world.bench.finding_count() == 0 {
                    world.step(step.cpu, step.operation);
                }
            }
        });
        let programs = (0..self.program.shape.cpus).map(CpuId::new).map(|cpu| {
            let mine: Vec<_> = others.iter().filter(|step| step.cpu == cpu).map(|step| step.operation).collect();
            let world = Rc::clone(&world);
            let run = move || mine.into_iter().for_each(|operation| world.step(cpu, operation));
            Box::new(run) as explore::CoroutineBody
        });
        let report = world.bench.run(&self.settings, programs.collect(), detail, chooser);
        if report.end == RunEnd::Completed {
            guarded(&world, || world.ask_at_rest());
        }
        let completed = report.end == RunEnd::Completed;
        let mut attempt = world.bench.attempt(&self.settings, report);
        attempt.tally += world.spec.borrow().tally();
        if !completed || !attempt.findings.is_empty() {
            // What stands half-done would complain when it is dropped.
            std::mem::forget(world);
        }
        attempt
    }

    /// Tries schedules until one finds something.
    pub fn search<I: Isa>(&self, plan: &SearchPlan) -> Search {
        search(plan, &mut |chooser, detail| self.attempt::<I>(chooser, detail))
    }
}

/// Runs something on the machine while no schedule is explored; a panic is a finding.
///
/// A planted bug is in what is explored and not in this: the machine itself would notice some of
/// them here.
fn guarded<I: Isa>(world: &World<I>, run: impl FnOnce()) {
    #[cfg(feature = "planted")]
    let planted = super::PlantedBug::ALL.iter().copied().find(|plant| pagewright_plant::is_chosen(*plant));
    #[cfg(feature = "planted")]
    super::plant(None);
    let ran = catch_unwind(AssertUnwindSafe(run));
    #[cfg(feature = "planted")]
    super::plant(planted);
    if let Err(payload) = ran {
        let message = fast::message(&*payload);
        world.bench.report(CheckFinding::Panicked { cpu: CpuId::new(0), message });
    }
}
