//! The door for code that was never written for this: a closure that sets a machine up and gives
//! each CPU a program.
//!
//! [`Check::explore`] runs it under many schedules. Key types: [`Check`], and [`CheckOutcome`] in its
//! own file.

use crate::harness::{CpuProgram, Harness};
use crate::outcome::CheckOutcome;
use crate::search::{ForeignToken, Search, SearchPlan, replay, search};
use crate::testbench::{Attempt, RunDetail, Testbench};
use pagewright_arch::{Effects, Isa};
use pagewright_sim::MachineConfig;
use pagewright_sim::config::parse;
use pagewright_sim::explore::{self, Chooser, ExploreSettings, ReplayToken};
use pagewright_types::CpuId;
use std::marker::PhantomData;

/// Name of the variable that holds a token to replay.
pub(crate) const REPLAY: &str = "PAGEWRIGHT_REPLAY";

/// What to check on which machine.
#[derive(Clone)]
pub struct Check<I> {
    config: MachineConfig,
    plan: SearchPlan,
    settings: ExploreSettings,
    isa: PhantomData<fn() -> I>,
}

impl<I: Isa> Default for Check<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Isa> Check<I> {
    /// Two CPUs, 1 MiB of memory, 2000 schedules of seed 0.
    ///
    /// # Panics
    /// When the machine that is compiled in is broken.
    pub fn new() -> Self {
        let config = MachineConfig::default_for(I::KIND);
        let config = config.unwrap_or_else(|error| panic!("the default machine: {error}"));
        let (plan, settings) = (SearchPlan::default(), ExploreSettings::default());
        Self { config, plan, settings, isa: PhantomData }.cpus(2).memory("1M")
    }

    /// So many CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u16) -> Self {
        self.config.cpus = cpus;
        self
    }

    /// So much memory, such as `"1M"`; frame 0 is never handed out.
    ///
    /// # Panics
    /// When it is no size.
    #[must_use]
    pub fn memory(mut self, size: &str) -> Self {
        let bytes = parse::size(size).unwrap_or_else(|error| panic!("{error}"));
        self.config.nodes[0].bytes = bytes;
        self
    }

    /// No tags (CR4.PCIDE clear): loading a root flushes.
    #[must_use]
    pub fn untagged(mut self) -> Self {
        self.config.tagged = false;
        self
    }

    /// So many schedules at most.
    #[must_use]
    pub fn schedules(mut self, schedules: u32) -> Self {
        self.plan.schedules = schedules;
        self
    }

    /// The seed of all choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.plan.seed = seed;
        self
    }

    /// So many steps at most for one schedule; a program that takes more is reported as endless.
    #[must_use]
    pub fn steps(mut self, steps: u32) -> Self {
        self.settings.max_steps = steps;
        self
    }

    /// Runs what `setup` returns – the first program on CPU 0 and so on – under many schedules,
    /// until something is found.
    ///
    /// `setup` is called for each schedule with a machine that was just switched on. It runs
    /// calmly, on CPU 0 unless it uses [`Harness::cpu`], and must do the same each time.
    ///
    /// With `PAGEWRIGHT_REPLAY=pw1/…` in the environment only that schedule is run.
    ///
    /// # Panics
    /// When there can be no such machine, when `setup` panics or returns more programs than there
    /// are CPUs, and when the token to replay is none of this machine.
    pub fn explore(&self, setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>) -> CheckOutcome {
        if let Ok(token) = std::env::var(REPLAY) {
            let token = token.parse().unwrap_or_else(|error| panic!("{REPLAY}: {error}"));
            return self.replay(&token, setup).unwrap_or_else(|foreign| panic!("{REPLAY}: {foreign}"));
        }
        let search = search(&self.plan, &mut |chooser, detail| self.attempt(&setup, chooser, detail));
        self.outcome(search, false)
    }

    /// Runs the schedule of `token` alone.
    ///
    /// # Errors
    /// [`ForeignToken`], when the token is none of this machine.
    ///
    /// # Panics
    /// As [`Check::explore`].
    pub fn replay(
        &self,
        token: &ReplayToken,
        setup: impl Fn(&Harness<I>) -> Vec<CpuProgram<I>>,
    ) -> Result<CheckOutcome, ForeignToken> {
        let attempt = replay(token, &mut |chooser, detail| self.attempt(&setup, chooser, detail))?;
        Ok(self.outcome(Search::of_replay(token, attempt), true))
    }

    fn outcome(&self, search: Search, replayed: bool) -> CheckOutcome {
        CheckOutcome { isa: I::KIND, cpus: self.config.cpus, seed: self.plan.seed, replayed, search }
    }

    fn attempt(
        &self,
        setup: &dyn Fn(&Harness<I>) -> Vec<CpuProgram<I>>,
        chooser: &mut dyn Chooser,
        detail: RunDetail,
    ) -> Attempt {
        let bench = Testbench::new(self.config.clone()).unwrap_or_else(|error| panic!("{error}"));
        bench.journal().turn(detail == RunDetail::Full);
        let harness = Harness::<I>::new(bench);
        let sim = harness.sim();
        let programs = sim.run_on(CpuId::new(0), || setup(&harness));
        // What the set-up left under way arrives: it is calm.
        harness.cpus().for_each(|cpu| sim.run_on(cpu.id(), || sim.complete()));
        let programs = programs.into_iter().zip(harness.cpus());
        let programs = programs.map(|(program, cpu)| Box::new(move || program(&cpu)) as explore::CoroutineBody);
        let report = harness.bench().run(&self.settings, programs.collect(), detail, chooser);
        harness.bench().attempt(&self.settings, report)
    }
}
