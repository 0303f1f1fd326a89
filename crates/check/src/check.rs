//! The door for code that was never written for this: a closure that sets a machine up and gives
//! each CPU a program.
//!
//! [`Check::explore`] runs it under many schedules. Key types: [`Check`], and [`Outcome`] in its
//! own file.

use crate::bench::{Attempt, Bench, Detail};
use crate::hunt::{Foreign, Hunt, Plan, hunt, replay};
use crate::machine::{Machine, Program};
use crate::outcome::Outcome;
use pagewright_arch::{Effects, Isa};
use pagewright_sim::MachineConfig;
use pagewright_sim::config::parse;
use pagewright_sim::explore::{self, Chooser, Settings, Token};
use pagewright_types::CpuId;
use std::marker::PhantomData;

/// Name of the variable that holds a token to replay.
pub(crate) const REPLAY: &str = "PAGEWRIGHT_REPLAY";

/// What to check on which machine.
#[derive(Clone)]
pub struct Check<I> {
    config: MachineConfig,
    plan: Plan,
    settings: Settings,
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
        let (plan, settings) = (Plan::default(), Settings::default());
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
    /// calmly, on CPU 0 unless it uses [`Machine::cpu`], and must do the same each time.
    ///
    /// With `PAGEWRIGHT_REPLAY=pw1/…` in the environment only that schedule is run.
    ///
    /// # Panics
    /// When there can be no such machine, when `setup` panics or returns more programs than there
    /// are CPUs, and when the token to replay is none of this machine.
    pub fn explore(&self, setup: impl Fn(&Machine<I>) -> Vec<Program<I>>) -> Outcome {
        if let Ok(token) = std::env::var(REPLAY) {
            let token = token.parse().unwrap_or_else(|error| panic!("{REPLAY}: {error}"));
            return self.replay(&token, setup).unwrap_or_else(|foreign| panic!("{REPLAY}: {foreign}"));
        }
        let hunt = hunt(&self.plan, &mut |chooser, detail| self.attempt(&setup, chooser, detail));
        self.outcome(hunt, false)
    }

    /// Runs the schedule of `token` alone.
    ///
    /// # Errors
    /// [`Foreign`], when the token is none of this machine.
    ///
    /// # Panics
    /// As [`Check::explore`].
    pub fn replay(&self, token: &Token, setup: impl Fn(&Machine<I>) -> Vec<Program<I>>) -> Result<Outcome, Foreign> {
        let attempt = replay(token, &mut |chooser, detail| self.attempt(&setup, chooser, detail))?;
        Ok(self.outcome(Hunt::of_replay(token, attempt), true))
    }

    fn outcome(&self, hunt: Hunt, replayed: bool) -> Outcome {
        Outcome { isa: I::KIND, cpus: self.config.cpus, seed: self.plan.seed, replayed, hunt }
    }

    fn attempt(
        &self,
        setup: &dyn Fn(&Machine<I>) -> Vec<Program<I>>,
        chooser: &mut dyn Chooser,
        detail: Detail,
    ) -> Attempt {
        let bench = Bench::new(self.config.clone()).unwrap_or_else(|error| panic!("{error}"));
        bench.journal().turn(detail == Detail::Full);
        let machine = Machine::<I>::new(bench);
        let sim = machine.sim();
        let programs = sim.run_on(CpuId::new(0), || setup(&machine));
        // What the set-up left under way arrives: it is calm.
        machine.cpus().for_each(|cpu| sim.run_on(cpu.id(), || sim.complete()));
        let programs = programs.into_iter().zip(machine.cpus());
        let programs = programs.map(|(program, cpu)| Box::new(move || program(&cpu)) as explore::Program);
        let report = machine.bench().run(&self.settings, programs.collect(), detail, chooser);
        machine.bench().attempt(&self.settings, report)
    }
}
