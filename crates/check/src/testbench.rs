//! A machine with its oracle, and the result of one run.
//!
//! A [`Testbench`] binds an [`Oracle`] and a [`Journal`] to a machine. For each schedule, the
//! harness makes a fresh bench, sets it up without races, runs the programs, and takes the
//! [`Attempt`]:
//!
//! ```text
//!   Testbench::new ─▶ set-up ─▶ run(settings, programs, chooser) ─▶ checks at rest ─▶ attempt
//! ```
//!
//! Not guaranteed: that a machine can be used after a run that neither completed nor was stopped;
//! see [`RunReport::abandoned`].

use crate::finding::CheckFinding;
use crate::journal::{Journal, JournalEntry, Listener};
use pagewright_arch::Isa;
use pagewright_model::{Census, Oracle, SoftwareBits, Tally};
use pagewright_sim::explore::{
    self, Chooser, CoroutineBody, ExploreSettings, MachineFingerprint, ProgramPart, RunReport,
};
use pagewright_sim::{ConfigError, MachineConfig, Sim};
use pagewright_types::{CpuId, CpuMask, IsaKind};
use std::cell::{Ref, RefCell};
use std::fmt::Display;
use std::rc::Rc;

/// How much of a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunDetail {
    /// Only the result.
    Quick,
    /// Every step, and everything that the oracle is told.
    Full,
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// How the run went.
    pub report: RunReport,
    /// The instruction set of the machine.
    pub isa: IsaKind,
    /// The fingerprint of the machine and the settings.
    pub fingerprint: MachineFingerprint,
    /// The findings, in order.
    pub findings: Vec<CheckFinding>,
    /// How often each rule had something to judge.
    pub tally: Tally,
    /// Stores to page tables through pointers that were found.
    pub pointer_stores: u64,
    /// The parts that its programs consist of, those that were left out included.
    pub parts: Vec<ProgramPart>,
    /// The journal; empty without [`RunDetail::Full`].
    pub journal: Vec<JournalEntry>,
}

impl Attempt {
    /// The findings, with steps of the schedule in place of steps of the oracle.
    ///
    /// Step 0 is outside of the schedule. Without a journal, the steps remain the oracle's.
    pub fn findings_by_schedule_step(&self) -> Vec<CheckFinding> {
        let at = |step: u64| {
            let tells_oracle = |entry: &&JournalEntry| entry.oracle_step == step && entry.event.is_of_oracle();
            // What the oracle reports within an event has a step of its own, and no entry.
            let within = || self.journal.iter().find(|entry| entry.oracle_step >= step);
            let entry = self.journal.iter().find(tells_oracle).or_else(within);
            entry.map_or(step, |entry| u64::from(entry.schedule_step))
        };
        self.findings.iter().map(|finding| finding.renumbered(&at)).collect()
    }
}

/// A machine with its oracle and a journal.
pub struct Testbench<I: Isa> {
    sim: Sim<I>,
    listener: Rc<RefCell<Listener>>,
    journal: Journal,
    /// Findings of the caller.
    reported: Rc<RefCell<Vec<CheckFinding>>>,
}

impl<I: Isa> Testbench<I> {
    /// Switches a machine on and binds an oracle to it; the journal is off.
    ///
    /// # Errors
    /// [`ConfigError`], when the machine is impossible.
    pub fn new(config: MachineConfig) -> Result<Self, ConfigError> {
        let sim = Sim::new(config)?;
        let machine = sim.clone();
        let journal = Journal::new(move || machine.explored_step());
        let mut oracle = Oracle::new(I::KIND).with_software_bits(SoftwareBits::pagewright(I::KIND));
        if sim.config().bbm_level_2 {
            oracle = oracle.with_bbm_level_2();
        }
        oracle = oracle.with_root_level(sim.config().top());
        if let Some(range) = sim.config().kernel_range {
            oracle = oracle.with_kernel_range(range);
        }
        let listener = Listener { oracle, journal: journal.clone() };
        let listener = Rc::new(RefCell::new(listener));
        sim.bind_judge(Rc::clone(&listener) as _);
        Ok(Self { sim, listener, journal, reported: Rc::default() })
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

    /// Records what the program on `cpu` does, such as `munmap(0x7000, 0x2000)`.
    ///
    /// It does nothing while the journal is off.
    pub fn note(&self, cpu: CpuId, text: impl Display) {
        self.journal.note(self.oracle().step(), cpu, text);
    }

    /// Records the word that the access just made on `cpu` read or wrote.
    pub fn note_value(&self, cpu: CpuId, value: u64) {
        self.journal.value(self.oracle().step(), cpu, value);
    }

    /// Adds a finding of the caller, which ends the run.
    pub fn report(&self, finding: CheckFinding) {
        self.reported.borrow_mut().push(finding);
    }

    /// The number of findings so far, repeated ones included.
    pub fn finding_count(&self) -> u64 {
        self.oracle().found() + self.reported.borrow().len() as u64
    }

    /// The findings so far: those of the oracle, then those of the caller.
    pub fn findings(&self) -> Vec<CheckFinding> {
        let mut found: Vec<CheckFinding> =
            self.oracle().violations().iter().cloned().map(CheckFinding::Violation).collect();
        found.extend_from_slice(&self.reported.borrow());
        // A translation in both levels of a TLB is found twice.
        found.dedup();
        found
    }

    /// Checks the counts of the memory manager (O4), while nothing runs.
    pub fn at_rest(&self, census: &Census) {
        self.listener.borrow_mut().oracle.at_rest(&self.sim, CpuId::new(0), census);
    }

    /// Runs `programs` under `chooser`, until there is a finding or `settings` stop the run.
    ///
    /// # Panics
    /// As [`explore::run`].
    pub fn run(
        &self,
        settings: &ExploreSettings,
        programs: Vec<CoroutineBody>,
        detail: RunDetail,
        chooser: &mut dyn Chooser,
    ) -> RunReport {
        let (listener, reported, stop) = (Rc::clone(&self.listener), Rc::clone(&self.reported), settings.stop.clone());
        let enough = move || {
            listener.borrow().oracle.found() > 0
                || !reported.borrow().is_empty()
                || stop.as_ref().is_some_and(|stop| stop())
        };
        let settings =
            ExploreSettings { log: detail == RunDetail::Full, stop: Some(Rc::new(enough)), ..settings.clone() };
        self.journal.turn(detail == RunDetail::Full);
        explore::run(&self.sim, &settings, programs, chooser)
    }

    /// The result of the run, with the findings so far; takes the journal.
    pub fn attempt(&self, settings: &ExploreSettings, report: RunReport) -> Attempt {
        let end = CheckFinding::of_run_end(&report.end);
        Attempt {
            isa: I::KIND,
            fingerprint: MachineFingerprint::of(&self.sim, settings),
            findings: self.findings().into_iter().chain(end).collect(),
            tally: self.oracle().tally().clone(),
            pointer_stores: self.sim.pointer_stores_found(),
            parts: Vec::new(),
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
