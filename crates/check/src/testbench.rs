//! A machine under judgement, and what one run of it comes to.
//!
//! [`Testbench`] binds an [`Oracle`] and a [`Journal`] to a machine. Whoever runs something on it
//! makes, for each schedule, a fresh bench, the calm set-up, the programs, and in the end an
//! [`Attempt`]:
//!
//! ```text
//!   Testbench::new ─▶ set-up ─▶ run(settings, programs, chooser) ─▶ questions at rest ─▶ attempt
//! ```
//!
//! Not guaranteed: that a machine can be used on after a run that was neither completed nor
//! stopped; see [`RunReport::abandoned`].

use crate::finding::CheckFinding;
use crate::journal::{Journal, JournalEntry, JournalEvent, Listener};
use pagewright_arch::Isa;
use pagewright_model::{Census, Oracle, Tally};
use pagewright_sim::explore::{self, Chooser, CoroutineBody, ExploreSettings, MachineFingerprint, RunReport};
use pagewright_sim::{ConfigError, MachineConfig, Sim};
use pagewright_types::{CpuId, CpuMask, IsaKind};
use std::cell::{Ref, RefCell};
use std::fmt::Display;
use std::rc::Rc;

/// How much a run writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunDetail {
    /// Only what it comes to.
    Quick,
    /// Every step, and everything that the oracle is told.
    Full,
}

/// What became of one run.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The run itself.
    pub report: RunReport,
    /// Whose instructions.
    pub isa: IsaKind,
    /// Of the machine and the settings.
    pub fingerprint: MachineFingerprint,
    /// What was found, in order.
    pub findings: Vec<CheckFinding>,
    /// What was judged.
    pub tally: Tally,
    /// The journal; empty without [`RunDetail::Full`].
    pub journal: Vec<JournalEntry>,
}

impl Attempt {
    /// What was found, told by steps of the schedule and not of the oracle; 0 is outside of it.
    ///
    /// The same as `findings` without a journal.
    pub fn findings_by_schedule_step(&self) -> Vec<CheckFinding> {
        let at = |step: u64| {
            let told = |entry: &&JournalEntry| {
                entry.oracle_step == step && !matches!(entry.event, JournalEvent::Note(_) | JournalEvent::Value(_))
            };
            self.journal.iter().find(told).map_or(step, |entry| u64::from(entry.schedule_step))
        };
        self.findings.iter().map(|finding| finding.by(&at)).collect()
    }
}

/// A machine with its judge.
pub struct Testbench<I: Isa> {
    sim: Sim<I>,
    listener: Rc<RefCell<Listener>>,
    journal: Journal,
    found: Rc<RefCell<Vec<CheckFinding>>>,
}

impl<I: Isa> Testbench<I> {
    /// Switches a machine on and binds an oracle to it.
    ///
    /// The journal is off.
    ///
    /// # Errors
    /// [`ConfigError`]: there is no such machine.
    pub fn new(config: MachineConfig) -> Result<Self, ConfigError> {
        let sim = Sim::new(config)?;
        let machine = sim.clone();
        let journal = Journal::new(move || machine.explored_step());
        let listener = Listener { oracle: Oracle::new(I::KIND), journal: journal.clone() };
        let listener = Rc::new(RefCell::new(listener));
        sim.bind_judge(Rc::clone(&listener) as _);
        Ok(Self { sim, listener, journal, found: Rc::default() })
    }

    /// The machine.
    pub fn sim(&self) -> &Sim<I> {
        &self.sim
    }

    /// The oracle.
    pub fn oracle(&self) -> Ref<'_, Oracle> {
        Ref::map(self.listener.borrow(), |listener| &listener.oracle)
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Takes down what the program on `cpu` does ("munmap(0x7000, 0x2000)"); nothing while the
    /// journal is off.
    pub fn note(&self, cpu: CpuId, text: impl Display) {
        self.journal.note(self.oracle().step(), cpu, text);
    }

    /// Takes down the word that the access just made on `cpu` read or wrote.
    pub fn note_value(&self, cpu: CpuId, value: u64) {
        self.journal.value(self.oracle().step(), cpu, value);
    }

    /// Adds a finding of the caller's own.
    pub fn report(&self, finding: CheckFinding) {
        self.found.borrow_mut().push(finding);
    }

    /// How much was found so far.
    pub fn found(&self) -> u64 {
        self.oracle().found() + self.found.borrow().len() as u64
    }

    /// What was found so far: by the oracle, then by the caller.
    pub fn findings(&self) -> Vec<CheckFinding> {
        let mut found: Vec<CheckFinding> =
            self.oracle().violations().iter().cloned().map(CheckFinding::Violation).collect();
        found.extend_from_slice(&self.found.borrow());
        // What both levels of a TLB hold is found twice.
        found.dedup();
        found
    }

    /// Asks for the counts (O4), at rest.
    pub fn at_rest(&self, census: &Census) {
        self.listener.borrow_mut().oracle.at_rest(&self.sim, CpuId::new(0), census);
    }

    /// Runs `programs` under `chooser`; stops when something is found, or when the settings say so.
    pub fn run(
        &self,
        settings: &ExploreSettings,
        programs: Vec<CoroutineBody>,
        detail: RunDetail,
        chooser: &mut dyn Chooser,
    ) -> RunReport {
        let (listener, found, stop) = (Rc::clone(&self.listener), Rc::clone(&self.found), settings.stop.clone());
        let enough = move || {
            listener.borrow().oracle.found() > 0
                || !found.borrow().is_empty()
                || stop.as_ref().is_some_and(|stop| stop())
        };
        let settings =
            ExploreSettings { log: detail == RunDetail::Full, stop: Some(Rc::new(enough)), ..settings.clone() };
        self.journal.turn(detail == RunDetail::Full);
        explore::run(&self.sim, &settings, programs, chooser)
    }

    /// What the run came to, with what was found until now.
    pub fn attempt(&self, settings: &ExploreSettings, report: RunReport) -> Attempt {
        let end = CheckFinding::of_run_end(&report.end);
        Attempt {
            isa: I::KIND,
            fingerprint: MachineFingerprint::of(&self.sim, settings),
            findings: self.findings().into_iter().chain(end).collect(),
            tally: self.oracle().tally().clone(),
            journal: self.journal.take(),
            report,
        }
    }

    /// All CPUs of the machine.
    pub fn cpus(&self) -> CpuMask {
        CpuMask::first(usize::from(self.sim.config().cpus))
    }
}

impl<I: Isa> Drop for Testbench<I> {
    fn drop(&mut self) {
        self.sim.unbind_judge();
        self.sim.unbind_ipi_handler();
    }
}
