//! What happened on a machine, in order: for whoever explains a finding.
//!
//! A [`Journal`] takes down what the oracle is told and what programs note about themselves. It is
//! off until somebody wants to know ([`crate::RunDetail::Full`]), so that a schedule that fails is
//! run again rather than all others being slowed down.
//!
//! Neighbours: the steps of the schedule are logged by `sim`; [`crate::explain`] lays both side by
//! side.

use pagewright_model::Oracle;
use pagewright_types::judge::{Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{CpuId, Pfn, Tag};
use std::cell::{Cell, Ref, RefCell};
use std::fmt::Display;
use std::rc::Rc;

/// Something told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// A fact was declared.
    Fact(Fact),
    /// A program made an access.
    Access(MemoryAccess),
    /// A root came into use.
    Loaded {
        /// The root.
        root: Pfn,
        /// Its tag.
        tag: Tag,
    },
    /// What a program says that it does.
    Note(String),
    /// The word that the access just made read or wrote.
    Value(u64),
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Step of the schedule in which it happened; 0 outside of one.
    pub schedule_step: u32,
    /// Steps of the oracle by then.
    ///
    /// What the oracle was told in its step *n* has *n* here, and notes before its next step do,
    /// too.
    pub oracle_step: u64,
    /// Where.
    pub cpu: CpuId,
    /// What.
    pub event: JournalEvent,
}

struct Book {
    on: Cell<bool>,
    entries: RefCell<Vec<JournalEntry>>,
    /// Which step of the schedule is being taken.
    at: Box<dyn Fn() -> u32>,
}

/// A handle to the journal of one machine; clones are handles to the same one.
#[derive(Clone)]
pub struct Journal(Rc<Book>);

impl Journal {
    /// An empty journal, off; `at` says which step of the schedule is being taken.
    pub(crate) fn new(at: impl Fn() -> u32 + 'static) -> Self {
        Self(Rc::new(Book { on: Cell::new(false), entries: RefCell::default(), at: Box::new(at) }))
    }

    /// Takes down what is told from now on, or no longer.
    pub fn turn(&self, on: bool) {
        self.0.on.set(on);
    }

    /// Whether anything is taken down.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.on.get()
    }

    /// What was taken down so far.
    pub fn entries(&self) -> Ref<'_, [JournalEntry]> {
        Ref::map(self.0.entries.borrow(), Vec::as_slice)
    }

    /// Takes everything out.
    pub(crate) fn take(&self) -> Vec<JournalEntry> {
        self.0.entries.take()
    }

    #[cold]
    fn add(&self, step: u64, cpu: CpuId, event: JournalEvent) {
        let entry = JournalEntry { schedule_step: (self.0.at)(), oracle_step: step, cpu, event };
        self.0.entries.borrow_mut().push(entry);
    }

    /// Takes down what a program on `cpu` says that it does; `step` is the oracle's.
    pub(crate) fn note(&self, step: u64, cpu: CpuId, text: impl Display) {
        if self.is_on() {
            self.add(step, cpu, JournalEvent::Note(text.to_string()));
        }
    }
}

impl Journal {
    /// Takes down what the access just made on `cpu` read or wrote.
    pub(crate) fn value(&self, step: u64, cpu: CpuId, value: u64) {
        if self.is_on() {
            self.add(step, cpu, JournalEvent::Value(value));
        }
    }
}

/// The judge that is bound: the oracle, and the journal of what it is told.
pub(crate) struct Listener {
    pub(crate) oracle: Oracle,
    pub(crate) journal: Journal,
}

impl Judge for Listener {
    fn fact(&mut self, witness: &dyn Witness, cpu: CpuId, fact: Fact) {
        self.oracle.fact(witness, cpu, fact);
        if self.journal.is_on() {
            self.journal.add(self.oracle.step(), cpu, JournalEvent::Fact(fact));
        }
    }

    #[inline]
    fn access(&mut self, witness: &dyn Witness, made: MemoryAccess) {
        self.oracle.access(witness, made);
        if self.journal.is_on() {
            self.journal.add(self.oracle.step(), made.cpu, JournalEvent::Access(made));
        }
    }

    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.oracle.loaded(witness, cpu, root, tag);
        if self.journal.is_on() {
            self.journal.add(self.oracle.step(), cpu, JournalEvent::Loaded { root, tag });
        }
    }
}
