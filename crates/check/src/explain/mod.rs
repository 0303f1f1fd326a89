//! Draws the run of a finding, for a terminal.
//!
//! ```text
//!   step    CPU 0                             │ CPU 1
//!  ►   12                                     │ reads 0x400000: frame 0x6 (walk)
//!                                             │ └ CPU 1 caches rw- from here on
//!      14  clears entry 0x5[0]                │
//! ```
//!
//! The steps of the schedule and the entries of the journal are merged. `words` has the text of
//! each line, `marks` marks the lines that the findings refer to, and `draw` sets the columns.
//! Entry loads, locks and waits get no line, and neither do a walk's reads of entries that the run
//! does not store to.
//!
//! Not guaranteed: that the steps without a line did not matter. [`Attempt::report`] has every
//! step.

mod draw;
mod marks;
mod words;

use crate::journal::{JournalEntry, JournalEvent};
use crate::testbench::Attempt;
use draw::Line;
pub(crate) use draw::rows;
use marks::Mark;
use pagewright_arch::PteSlot;
use pagewright_sim::explore::{RunEnd, ScheduleStep, StepAction, StopPoint};
use pagewright_types::judge::{CachedEntry, CachedEntryKind};
use pagewright_types::{Access, CpuId, IsaKind, Pfn, PhysAddr, VirtAddr};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Draws a run that was recorded with [`RunDetail::Full`](crate::RunDetail::Full).
pub fn explain(attempt: &Attempt) -> String {
    let mut merged = Merged::new(attempt);
    merged.merge(attempt);
    let marks: Vec<Mark> = attempt.findings.iter().flat_map(marks::of).collect();
    marks.into_iter().for_each(|mark| merged.mark(mark));
    draw::draw(&merged.lines())
}

/// A line, and what a mark finds it by.
struct MergedLine {
    line: Line,
    /// The step of the oracle, if the line is one.
    step: Option<u64>,
    /// The oracle's steps before or at this line.
    by_then: u64,
    /// Whether the line may be the source of a cached entry.
    origin: Origin,
    /// Whether it is drawn even if no finding refers to it.
    shown: bool,
}

/// How a line may be the source of a cached entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Nothing,
    /// A walk for this address reads the entry in this slot.
    Reads(VirtAddr, PteSlot),
    /// A TLB is filled for this address.
    Fills(VirtAddr),
    /// An access faults.
    Faults,
    /// The entries from the first to the last address are cleared by pointer, in one step.
    Clears(PhysAddr, PhysAddr),
}

/// An access that has open, and was neither made nor refused yet.
#[derive(Clone, Copy)]
struct OpenAccess {
    va: VirtAddr,
    access: Access,
    /// The index before which its fault is inserted, if it faults.
    place: usize,
    /// The latest step of the access.
    at: u32,
}

/// The lines of a run, in order.
struct Merged {
    isa: IsaKind,
    lines: Vec<MergedLine>,
    /// The entries that the run stores to.
    stored: FxHashSet<PhysAddr>,
    open: BTreeMap<CpuId, OpenAccess>,
    /// Faults, each with the index before which it is inserted.
    faults: Vec<(usize, MergedLine)>,
    /// The latest step of the oracle.
    step: u64,
}

impl Merged {
    fn new(attempt: &Attempt) -> Self {
        let stored = attempt.report.log.iter().filter_map(|step| stored_by(step.action));
        let by_pointer = attempt.journal.iter().filter_map(|entry| match entry.event {
            JournalEvent::PointerStore { at, .. } => Some(at),
            JournalEvent::Fact(_)
            | JournalEvent::Access(_)
            | JournalEvent::Loaded { .. }
            | JournalEvent::KernelLoaded { .. }
            | JournalEvent::Note(_)
            | JournalEvent::Value(_) => None,
        });
        Self {
            isa: attempt.isa,
            lines: Vec::new(),
            stored: stored.map(PteSlot::addr).chain(by_pointer).collect(),
            open: BTreeMap::new(),
            faults: Vec::new(),
            step: 0,
        }
    }

    fn merge(&mut self, attempt: &Attempt) {
        let entries = &attempt.journal;
        let first = entries.iter().position(|entry| entry.schedule_step > 0).unwrap_or(entries.len());
        let (before, rest) = entries.split_at(first);
        let end = rest
            .iter()
            .position(|entry| entry.schedule_step == 0 || entry.schedule_step > attempt.report.steps)
            .unwrap_or(rest.len());
        let (during, after) = rest.split_at(end);
        // The set-up is drawn whole only if no program ran.
        let whole = attempt.report.log.is_empty();
        before.iter().for_each(|entry| self.entry(entry, whole));
        let mut during = during.iter().peekable();
        let log = &attempt.report.log;
        for (index, step) in log.iter().enumerate() {
            self.schedule_step(step);
            let last = log.get(index + 1).is_none_or(|next| next.at != step.at);
            while let Some(entry) = during.next_if(|entry| last && entry.schedule_step <= step.at) {
                self.entry(entry, true);
            }
        }
        // Other CPUs may be in the middle of an access. That of the CPU that panicked is over.
        if let RunEnd::Panicked { cpu, .. } = attempt.report.end {
            self.fault(cpu);
        }
        after.iter().filter(|entry| entry.schedule_step == 0).for_each(|entry| self.entry(entry, true));
    }

    fn add(&mut self, line: Line, step: Option<u64>, origin: Origin, shown: bool) {
        self.lines.push(MergedLine { line, step, by_then: self.step, origin, shown });
    }

    fn schedule_step(&mut self, step: &ScheduleStep) {
        self.follow_access(step);
        let Some(text) = words::step(self.isa, *step) else { return };
        let line = Line { at: step.at, cpu: step.cpu, text, why: Vec::new(), note: false, times: 1 };
        let demanded = matches!(step.action, StepAction::Executed(_));
        let (origin, shown) = match step.action {
            StepAction::Executed(StopPoint::Walk(va, slot))
            | StepAction::SpeculativeWalk(StopPoint::Walk(va, slot)) => {
                (Origin::Reads(va, slot), self.stored.contains(&slot.addr()))
            }
            // The access that demanded the walk has a line of its own.
            StepAction::Executed(StopPoint::Fill(va, _)) | StepAction::SpeculativeWalk(StopPoint::Fill(va, _)) => {
                (Origin::Fills(va), !demanded)
            }
            StepAction::Executed(_)
            | StepAction::SpeculativeWalk(_)
            | StepAction::TookInterrupt
            | StepAction::Drained(_)
            | StepAction::Delivered(_)
            | StepAction::SpeculationStarted(_)
            | StepAction::Evicted
            | StepAction::Picked(_) => (Origin::Nothing, true),
        };
        self.add(line, None, origin, shown);
    }

    /// Follows the accesses of a CPU: one that ends without having been made has faulted.
    fn follow_access(&mut self, step: &ScheduleStep) {
        let StepAction::Executed(point) = step.action else { return };
        if let StopPoint::Walk(..) | StopPoint::Fill(..) | StopPoint::Choose(_) = point {
            let place = self.lines.len() + 1;
            if let Some(open) = self.open.get_mut(&step.cpu) {
                (open.place, open.at) = (place, step.at);
            }
            return;
        }
        self.fault(step.cpu);
        if let StopPoint::Access(va, access) = point {
            self.open.insert(step.cpu, OpenAccess { va, access, place: self.lines.len(), at: step.at });
        }
    }

    fn fault(&mut self, cpu: CpuId) {
        let Some(OpenAccess { va, access, place, at }) = self.open.remove(&cpu) else { return };
        let line = Line { at, cpu, text: words::fault(va, access), why: Vec::new(), note: false, times: 1 };
        let merged = MergedLine { line, step: None, by_then: self.step, origin: Origin::Faults, shown: true };
        self.faults.push((place, merged));
    }

    fn entry(&mut self, entry: &JournalEntry, shown: bool) {
        self.step = self.step.max(entry.oracle_step);
        let text = words::event(&entry.event);
        let (at, cpu, why) = (entry.schedule_step, entry.cpu, Vec::new());
        match &entry.event {
            JournalEvent::Value(_) => {
                if let Some(last) = self.lines.iter_mut().rfind(|merged| merged.line.cpu == cpu) {
                    last.line.text = format!("{} {text}", last.line.text);
                }
            }
            JournalEvent::Note(_) => {
                self.fault(cpu);
                self.add(Line { at, cpu, text, why, note: true, times: 1 }, None, Origin::Nothing, shown);
            }
            JournalEvent::Access(made) => {
                self.open.remove(&cpu);
                let origin = if made.cached { Origin::Nothing } else { Origin::Fills(made.va) };
                self.add(Line { at, cpu, text, why, note: false, times: 1 }, Some(entry.oracle_step), origin, shown);
            }
            JournalEvent::PointerStore { at: slot, new: 0, reported: false, .. } => {
                if !self.clears_next(cpu, at, *slot) {
                    let origin = Origin::Clears(*slot, *slot);
                    self.add(Line { at, cpu, text, why, note: false, times: 1 }, None, origin, shown);
                }
            }
            JournalEvent::PointerStore { reported, .. } => {
                let step = reported.then_some(entry.oracle_step);
                self.add(Line { at, cpu, text, why, note: false, times: 1 }, step, Origin::Nothing, shown);
            }
            JournalEvent::Fact(_) | JournalEvent::Loaded { .. } | JournalEvent::KernelLoaded { .. } => {
                self.add(
                    Line { at, cpu, text, why, note: false, times: 1 },
                    Some(entry.oracle_step),
                    Origin::Nothing,
                    shown,
                );
            }
        }
    }

    /// Adds `slot` to the entries that the last line clears, if it is the next one in their table.
    fn clears_next(&mut self, cpu: CpuId, at: u32, slot: PhysAddr) -> bool {
        let Some(last) = self.lines.last_mut() else { return false };
        let Origin::Clears(first, end) = last.origin else { return false };
        let same_table = Pfn::containing(first) == Pfn::containing(slot);
        if (last.line.cpu, last.line.at) != (cpu, at) || end.add(8) != slot || !same_table {
            return false;
        }
        last.origin = Origin::Clears(first, slot);
        last.line.text = words::clears(first, slot);
        true
    }

    fn mark(&mut self, mark: Mark) {
        let (merged, why) = match mark {
            Mark::Step(step, why) => (self.lines.iter_mut().find(|merged| merged.step == Some(step)), why),
            Mark::Source { held, before, why } => {
                let comes_from = |merged: &&mut MergedLine| merged.by_then <= before && merged.is_source(&held);
                (self.lines.iter_mut().rfind(comes_from), why)
            }
        };
        if let Some(merged) = merged.filter(|merged| !merged.line.why.contains(&why)) {
            merged.line.why.push(why);
        }
    }

    fn lines(self) -> Vec<Line> {
        let mut faults = self.faults;
        // The sort is stable: two faults at one index stay in order.
        faults.sort_by_key(|(place, _)| *place);
        let mut faults = faults.into_iter().peekable();
        let mut all = Vec::new();
        for (index, merged) in self.lines.into_iter().enumerate() {
            while let Some((_, fault)) = faults.next_if(|(place, _)| *place <= index) {
                all.push(fault);
            }
            all.push(merged);
        }
        all.extend(faults.map(|(_, fault)| fault));
        let mut lines: Vec<Line> = Vec::new();
        let mut last = Origin::Nothing;
        for MergedLine { line, origin, .. } in
            all.into_iter().filter(|merged| merged.shown || !merged.line.why.is_empty())
        {
            match lines.last_mut().filter(|last| last.cpu == line.cpu && last.why.is_empty()) {
                // No other line is between the walk's read and the fill or access that it led to.
                Some(before) if matches!(last, Origin::Reads(..)) && origin != Origin::Nothing => *before = line,
                Some(before) if before.text == line.text && line.why.is_empty() => before.times += 1,
                Some(_) | None => lines.push(line),
            }
            last = origin;
        }
        // The lines after the last marked one follow the finding.
        if let Some(end) = lines.iter().rposition(|line| !line.why.is_empty()) {
            lines.truncate(end + 1);
        }
        lines
    }
}

impl MergedLine {
    /// Whether `held` may have been cached at this line.
    fn is_source(&self, held: &CachedEntry) -> bool {
        if self.line.cpu != held.cpu {
            return false;
        }
        match (self.origin, held.kind) {
            (Origin::Fills(va), CachedEntryKind::Translation { .. }) => held.range().contains(va),
            (Origin::Reads(va, slot), CachedEntryKind::Translation { .. }) => {
                held.range().contains(va) && usize::from(slot.index) == held.level.index_of(va)
            }
            (Origin::Reads(_, slot), CachedEntryKind::Table { table, .. } | CachedEntryKind::Walk { table, .. }) => {
                slot.table == table
            }
            (Origin::Fills(_), CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. }) => false,
            (Origin::Nothing | Origin::Faults | Origin::Clears(..), _) => false,
        }
    }
}

/// The entry that a step stores to, if any.
fn stored_by(what: StepAction) -> Option<PteSlot> {
    if let StepAction::Executed(
        StopPoint::Store(slot, _) | StopPoint::Swap(slot, _) | StopPoint::CompareExchange(slot, _),
    ) = what
    {
        Some(slot)
    } else {
        None
    }
}
