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
mod missing;
mod words;

use crate::journal::{CodeLocation, JournalEntry, JournalEvent};
use crate::testbench::Attempt;
pub(crate) use draw::rows;
use draw::{Line, LineLocation};
use marks::Mark;
use pagewright_arch::PteSlot;
use pagewright_sim::explore::{RunEnd, ScheduleStep, StepAction, StopPoint};
use pagewright_types::judge::{CachedEntry, CachedEntryKind};
use pagewright_types::{CpuId, IsaKind, Pfn, PhysAddr, VirtAddr};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Draws a run that was recorded with [`RunDetail::Full`](crate::RunDetail::Full).
pub fn explain(attempt: &Attempt) -> String {
    draw::draw(&marked_lines(attempt), draw::WIDTH)
}

/// Draws only the steps that the findings refer to and the stores to entries before them.
///
/// The drawing is at most `width` characters wide, and names no source lines.
pub fn explain_briefly(attempt: &Attempt, width: usize) -> String {
    let drawn = |line: &Line| line.stores || !line.why.is_empty();
    let lines = marked_lines(attempt).into_iter().filter(drawn).map(|line| Line { location: None, ..line });
    draw::draw(&lines.collect::<Vec<_>>(), width)
}

/// The lines of a run, in which those that the findings refer to say why.
fn marked_lines(attempt: &Attempt) -> Vec<Line> {
    let mut merged = Merged::new(attempt);
    merged.merge(attempt);
    let marks: Vec<Mark> = attempt.findings.iter().flat_map(marks::of).collect();
    marks.into_iter().for_each(|mark| merged.mark(mark));
    merged.lines()
}

/// Says which step was missing for each finding of a run, in their order.
///
/// The run was recorded with [`RunDetail::Full`](crate::RunDetail::Full). `None` stands for a
/// finding of the program itself, or of the results alone.
pub fn missing_steps(attempt: &Attempt) -> Vec<Option<String>> {
    let mut merged = Merged::new(attempt);
    merged.merge(attempt);
    attempt.findings.iter().map(|finding| merged.missing(finding)).collect()
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
    /// The step of the schedule that it is.
    action: Option<StepAction>,
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
    /// The entry at this address is stored to.
    Stores(PhysAddr),
    /// The entries from the first to the last address are cleared by pointer, in one step.
    Clears(PhysAddr, PhysAddr),
}

impl Origin {
    /// Whether it is a part of the walk that has read an entry just before.
    fn ends_walk(self) -> bool {
        matches!(self, Self::Reads(..) | Self::Fills(_) | Self::Faults)
    }
}

/// An access that has begun, and was neither made nor refused yet.
struct OpenAccess {
    va: VirtAddr,
    /// The CPU took an interrupt in the middle of it, and has not come back to it.
    interrupted: bool,
    /// The line of its fault, if it faults.
    line: Line,
    /// The index before which its fault is inserted, if it faults.
    place: usize,
}

/// The lines of a run, in order.
struct Merged {
    isa: IsaKind,
    lines: Vec<MergedLine>,
    /// The entries that the run stores to.
    stored: FxHashSet<PhysAddr>,
    /// The accesses of each CPU; those before the last were interrupted.
    open: BTreeMap<CpuId, Vec<OpenAccess>>,
    /// Faults, each with the index before which it is inserted.
    faults: Vec<(usize, MergedLine)>,
    /// The latest step of the oracle.
    step: u64,
    /// Where the code on each CPU has called the harness last.
    locations: BTreeMap<CpuId, CodeLocation>,
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
            | JournalEvent::Called(_)
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
            locations: BTreeMap::new(),
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
        self.lines.push(MergedLine { line, step, by_then: self.step, origin, shown, action: None });
    }

    /// A line that says what `cpu` does in step `at`.
    fn line(&self, at: u32, cpu: CpuId, text: String) -> Line {
        let location = self.locations.get(&cpu).map(|code| LineLocation { code: code.clone(), near: false });
        Line { at, cpu, text, why: Vec::new(), note: false, stores: false, times: 1, location }
    }

    fn schedule_step(&mut self, step: &ScheduleStep) {
        self.follow_access(step);
        let Some(text) = words::step(self.isa, *step) else { return };
        let demanded = matches!(step.action, StepAction::Executed(_));
        let line = self.line(step.at, step.cpu, text);
        // Code does nothing else by itself.
        let line = Line { location: line.location.filter(|_| demanded), ..line };
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
            | StepAction::Picked(_) => {
                (stored_by(step.action).map_or(Origin::Nothing, |slot| Origin::Stores(slot.addr())), true)
            }
        };
        let by_then = self.step;
        self.lines.push(MergedLine { line, step: None, by_then, origin, shown, action: Some(step.action) });
    }

    /// Follows the accesses of a CPU: one that ends without having been made has faulted.
    ///
    /// One that is interrupted has not ended: the steps of the handler come first, and then its
    /// next step or the access.
    fn follow_access(&mut self, step: &ScheduleStep) {
        let point = match step.action {
            StepAction::Executed(point) => point,
            StepAction::TookInterrupt => {
                self.open.entry(step.cpu).or_default().iter_mut().for_each(|open| open.interrupted = true);
                return;
            }
            _ => return,
        };
        let walked = match point {
            StopPoint::Walk(va, _) | StopPoint::Fill(va, _) => Some(va),
            _ => None,
        };
        if walked.is_some() || matches!(point, StopPoint::Choose(_)) {
            walked.into_iter().for_each(|va| self.come_back(step.cpu, va));
            let place = self.lines.len() + 1;
            if let Some(open) = self.open.get_mut(&step.cpu).and_then(|open| open.last_mut()) {
                (open.place, open.line.at, open.interrupted) = (place, step.at, false);
            }
            return;
        }
        self.fault(step.cpu);
        if let StopPoint::Access(va, access) = point {
            let line = self.line(step.at, step.cpu, words::fault(va, access));
            let open = OpenAccess { va, interrupted: false, line, place: self.lines.len() };
            self.open.entry(step.cpu).or_default().push(open);
        }
    }

    /// `cpu` goes on with its access of `va`: one that an interrupt handler made since has faulted.
    fn come_back(&mut self, cpu: CpuId, va: VirtAddr) {
        if self.open.get(&cpu).and_then(|open| open.last()).is_some_and(|open| open.va != va) {
            self.fault(cpu);
        }
    }

    /// The last access of `cpu` has faulted, unless it is interrupted.
    fn fault(&mut self, cpu: CpuId) {
        let Some(open) = self.open.get_mut(&cpu) else { return };
        let Some(OpenAccess { line, place, .. }) = open.pop_if(|open| !open.interrupted) else { return };
        let (by_then, origin) = (self.step, Origin::Faults);
        let merged = MergedLine { line, step: None, by_then, origin, shown: true, action: None };
        self.faults.push((place, merged));
    }

    fn entry(&mut self, entry: &JournalEntry, shown: bool) {
        self.step = self.step.max(entry.oracle_step);
        let (at, cpu) = (entry.schedule_step, entry.cpu);
        let line = self.line(at, cpu, words::event(&entry.event));
        match &entry.event {
            JournalEvent::Called(location) => _ = self.locations.insert(cpu, location.clone()),
            JournalEvent::Value(_) => {
                if let Some(last) = self.lines.iter_mut().rfind(|merged| merged.line.cpu == cpu) {
                    last.line.text = format!("{} {}", last.line.text, line.text);
                }
            }
            JournalEvent::Note(_) => {
                self.fault(cpu);
                self.add(Line { note: true, ..line }, None, Origin::Nothing, shown);
            }
            JournalEvent::Access(made) => {
                self.come_back(cpu, made.va);
                self.open.get_mut(&cpu).and_then(Vec::pop);
                let origin = if made.cached { Origin::Nothing } else { Origin::Fills(made.va) };
                self.add(line, Some(entry.oracle_step), origin, shown);
            }
            JournalEvent::PointerStore { at: slot, new, reported, .. } => {
                if *new == 0 && !reported && self.clears_next(cpu, at, *slot) {
                    return;
                }
                let is_trapped = |location: &LineLocation| matches!(location.code, CodeLocation::Instruction(_));
                let location = line.location.map(|location| LineLocation { near: !is_trapped(&location), ..location });
                let origin = if *new == 0 { Origin::Clears(*slot, *slot) } else { Origin::Stores(*slot) };
                self.add(Line { location, ..line }, reported.then_some(entry.oracle_step), origin, shown);
            }
            JournalEvent::Fact(_) | JournalEvent::Loaded { .. } | JournalEvent::KernelLoaded { .. } => {
                self.add(line, Some(entry.oracle_step), Origin::Nothing, shown);
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
        let (index, why) = match mark {
            Mark::Step(step, why) => (self.line_of(step), why),
            Mark::Source { held, before, why } => (self.source(&held, before), why),
        };
        let merged = index.map(|index| &mut self.lines[index]);
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
            let line = Line { stores: matches!(origin, Origin::Stores(_) | Origin::Clears(..)), ..line };
            match lines.last_mut().filter(|last| last.cpu == line.cpu && last.why.is_empty()) {
                // No other line is between the walk's read and the fill or access that it led to.
                Some(before) if matches!(last, Origin::Reads(..)) && origin.ends_walk() => *before = line,
                Some(before)
                    if (&before.text, &before.location) == (&line.text, &line.location) && line.why.is_empty() =>
                {
                    before.times += 1;
                }
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
            (Origin::Nothing | Origin::Faults | Origin::Stores(_) | Origin::Clears(..), _) => false,
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
