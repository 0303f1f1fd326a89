//! The journal of a run: what the oracle was told and what programs noted, in order.
//!
//! A [`Journal`] is off unless the run is recorded ([`crate::RunDetail::Full`]): the failing
//! schedule is run once more, so that the others are not slowed down.
//!
//! **INV-CHECK-LINES** A line of a drawing names the source line of the call that makes the step,
//! or none; also after an interrupt of that call, and for a trapped instruction.
//!
//! Neighbours: `sim` logs the steps of the schedule; [`crate::explain`] merges the two.

use crate::user_code;
use pagewright_model::Oracle;
use pagewright_types::judge::{Fact, Judge, MemoryAccess, StatePart, Witness};
use pagewright_types::{CpuId, FrameRange, Pfn, PhysAddr, Tag};
use rustc_hash::FxHashMap;
use std::cell::{Cell, Ref, RefCell};
use std::fmt::{self, Display};
use std::panic::Location;
use std::rc::Rc;

/// Where code calls the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeLocation {
    /// At this source line.
    Line(&'static Location<'static>),
    /// In this frame of the stack, which is named by its source line or its function.
    Frame(Rc<str>),
    /// At a trapped instruction, which is named as a frame is, or by its address.
    Instruction(Rc<str>),
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "{}:{}", without_parents(line.file()), line.line()),
            Self::Frame(name) | Self::Instruction(name) => f.write_str(name),
        }
    }
}

/// The path without `folder/..`, which the `path` attribute of a module leaves in it.
fn without_parents(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in user_code::without_registry(path).split('/') {
        match parts.last() {
            Some(folder) if part == ".." && *folder != ".." => _ = parts.pop(),
            Some(_) | None => parts.push(part),
        }
    }
    parts.join("/")
}

/// An event that the journal records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// The code declared a fact to the oracle.
    Fact(Fact),
    /// A program made an access.
    Access(MemoryAccess),
    /// A CPU loaded a root, or left lazy TLB mode on it.
    Loaded {
        /// The root table.
        root: Pfn,
        /// Its tag.
        tag: Tag,
    },
    /// A CPU loaded a root for the upper half (arm64).
    KernelLoaded {
        /// The root table.
        root: Pfn,
    },
    /// The kernel stored an entry through a pointer to memory, before its next point.
    PointerStore {
        /// The entry.
        at: PhysAddr,
        /// Its word before.
        old: u64,
        /// Its word.
        new: u64,
        /// Whether the oracle reported it.
        reported: bool,
    },
    /// The code on this CPU calls the harness here; what follows on the CPU is of this call.
    Called(CodeLocation),
    /// A program says what it does.
    Note(String),
    /// The word that the access before read or wrote.
    Value(u64),
}

impl JournalEvent {
    /// Whether the oracle was told it in a step of its own.
    pub(crate) fn is_of_oracle(&self) -> bool {
        match self {
            Self::Fact(_)
            | Self::Access(_)
            | Self::Loaded { .. }
            | Self::KernelLoaded { .. }
            | Self::PointerStore { reported: true, .. } => true,
            Self::Called(_) | Self::Note(_) | Self::Value(_) | Self::PointerStore { reported: false, .. } => false,
        }
    }
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The step of the schedule; 0 outside of a schedule.
    pub schedule_step: u32,
    /// The step of the oracle.
    ///
    /// The event that the oracle was told in its step *n* has *n*, and so have the notes until its
    /// next step.
    pub oracle_step: u64,
    /// The CPU on which it happened.
    pub cpu: CpuId,
    /// The event.
    pub event: JournalEvent,
}

struct JournalState {
    on: Cell<bool>,
    entries: RefCell<Vec<JournalEntry>>,
    /// Where the code on each CPU has called the harness last.
    locations: RefCell<FxHashMap<CpuId, CodeLocation>>,
    /// Returns the current step of the schedule.
    schedule_step: Box<dyn Fn() -> u32>,
}

/// A handle to the journal of one machine; every clone refers to the same journal.
#[derive(Clone)]
pub struct Journal(Rc<JournalState>);

impl Journal {
    /// Makes an empty journal, off; `schedule_step` returns the current step of the schedule.
    pub(crate) fn new(schedule_step: impl Fn() -> u32 + 'static) -> Self {
        let schedule_step = Box::new(schedule_step);
        let (on, entries, locations) = (Cell::new(false), RefCell::default(), RefCell::default());
        Self(Rc::new(JournalState { on, entries, locations, schedule_step }))
    }

    /// Turns the journal on or off.
    pub fn turn(&self, on: bool) {
        self.0.on.set(on);
    }

    /// Whether the journal is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.on.get()
    }

    /// The entries recorded so far.
    pub fn entries(&self) -> Ref<'_, [JournalEntry]> {
        Ref::map(self.0.entries.borrow(), Vec::as_slice)
    }

    /// Takes all entries out of the journal.
    pub(crate) fn take(&self) -> Vec<JournalEntry> {
        self.0.entries.take()
    }

    #[cold]
    fn add(&self, oracle_step: u64, cpu: CpuId, event: JournalEvent) {
        let entry = JournalEntry { schedule_step: (self.0.schedule_step)(), oracle_step, cpu, event };
        self.0.entries.borrow_mut().push(entry);
    }

    /// Records that the code on `cpu` calls the harness at `line` (INV-CHECK-LINES).
    ///
    /// A trapped instruction calls it by code of the trap, so then the location remains.
    #[inline]
    pub(crate) fn called(&self, cpu: CpuId, line: &'static Location<'static>) {
        if self.is_on() && !matches!(self.location(cpu), Some(CodeLocation::Instruction(_))) {
            let line = if user_code::is_file_of_user(line.file()) { Some(CodeLocation::Line(line)) } else { None };
            // A method that is passed as a value is called by code of `core`.
            self.move_to(
                cpu,
                line.or_else(|| user_code::name_of_caller().map(|name| CodeLocation::Frame(name.into()))),
            );
        }
    }

    /// Where the code on `cpu` has called the harness last.
    pub(crate) fn location(&self, cpu: CpuId) -> Option<CodeLocation> {
        self.0.locations.borrow().get(&cpu).cloned()
    }

    /// Records that the code on `cpu` is at `location`, or that this is not known.
    #[cold]
    pub(crate) fn move_to(&self, cpu: CpuId, location: Option<CodeLocation>) {
        match location {
            Some(location) => {
                self.0.locations.borrow_mut().insert(cpu, location.clone());
                let oracle_step = self.entries().last().map_or(0, |entry| entry.oracle_step);
                self.add(oracle_step, cpu, JournalEvent::Called(location));
            }
            None => _ = self.0.locations.borrow_mut().remove(&cpu),
        }
    }

    /// Records what a program on `cpu` says that it does.
    pub(crate) fn note(&self, oracle_step: u64, cpu: CpuId, text: impl Display) {
        if self.is_on() {
            self.add(oracle_step, cpu, JournalEvent::Note(text.to_string()));
        }
    }

    /// Records the word that the access just made on `cpu` read or wrote.
    pub(crate) fn value(&self, oracle_step: u64, cpu: CpuId, value: u64) {
        if self.is_on() {
            self.add(oracle_step, cpu, JournalEvent::Value(value));
        }
    }
}

/// The judge that is bound to the machine: it tells the oracle, then the journal.
pub(crate) struct Listener {
    pub(crate) oracle: Oracle,
    pub(crate) journal: Journal,
}

impl Listener {
    /// Records an event without a line of its own, if the oracle has reported it.
    fn note_report(&self, found: u64, cpu: CpuId, event: impl Display) {
        if self.oracle.found() > found {
            self.journal.note(self.oracle.step(), cpu, event);
        }
    }
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

    fn state(&self, part: &mut dyn FnMut(&StatePart<'_>)) -> bool {
        self.oracle.state(part)
    }

    fn entry_stored(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, old: u64, new: u64) {
        let found = self.oracle.found();
        self.oracle.entry_stored(witness, cpu, at, old, new);
        self.note_report(found, cpu, format_args!("entry at {at} changes from {old:#x} to {new:#x}"));
    }

    fn pointer_stored(&mut self, witness: &dyn Witness, cpu: CpuId, at: PhysAddr, old: u64, new: u64) {
        let found = self.oracle.found();
        self.oracle.entry_stored(witness, cpu, at, old, new);
        if self.journal.is_on() {
            let reported = self.oracle.found() > found;
            self.journal.add(self.oracle.step(), cpu, JournalEvent::PointerStore { at, old, new, reported });
        }
    }

    fn written(&mut self, witness: &dyn Witness, cpu: CpuId, frames: FrameRange) {
        let found = self.oracle.found();
        self.oracle.written(witness, cpu, frames);
        self.note_report(
            found,
            cpu,
            format_args!("the kernel writes to {} frames from {}", frames.frames(), frames.start()),
        );
    }

    fn kernel_loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn) {
        self.oracle.kernel_loaded(witness, cpu, root);
        if self.journal.is_on() {
            self.journal.add(self.oracle.step(), cpu, JournalEvent::KernelLoaded { root });
        }
    }

    fn loaded(&mut self, witness: &dyn Witness, cpu: CpuId, root: Pfn, tag: Tag) {
        self.oracle.loaded(witness, cpu, root, tag);
        if self.journal.is_on() {
            self.journal.add(self.oracle.step(), cpu, JournalEvent::Loaded { root, tag });
        }
    }
}
