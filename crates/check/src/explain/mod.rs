//! How a finding came about, as a drawing in a terminal.
//!
//! ```text
//!   step    CPU 0                             │ CPU 1
//!  ►   12                                     │ reads 0x400000: frame 0x6 (walk)
//!                                             │ └ CPU 1 holds rw- from here on
//!      14  entry 0x5[0] := empty              │
//! ```
//!
//! The steps of the schedule and the lines of the journal are laid side by side, put into words
//! (`words`), marked where the findings speak of them (`marks`), and set in columns (`draw`). Left
//! out is what nobody needs who asks how a stale translation came to matter: loads of entries,
//! locks and waits, reads of a walk that are not of an entry which was stored to.
//!
//! Not guaranteed: that what is left out did not matter. [`Attempt::report`] has every step.

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
use pagewright_types::{Access, CpuId, IsaKind, PhysAddr, VirtAddr};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Draws a run that was made in full detail.
pub fn explain(attempt: &Attempt) -> String {
    let mut merged = Merged::new(attempt);
    merged.merge(attempt);
    let marks: Vec<Mark> = attempt.findings.iter().flat_map(marks::of).collect();
    marks.into_iter().for_each(|mark| merged.mark(mark));
    draw::draw(&merged.lines())
}

/// A line, and what marks find it by.
struct Noted {
    line: Line,
    /// Step of the oracle, if it is one.
    step: Option<u64>,
    /// Steps of the oracle by then.
    by_then: u64,
    /// What it says about where translations come from.
    origin: Origin,
    /// Whether it is drawn though no finding speaks of it.
    shown: bool,
}

/// What a line says about where translations come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Nothing,
    /// A walk for this address reads an entry here.
    Reads(VirtAddr, PteSlot),
    /// A TLB is filled for this address.
    Fills(VirtAddr),
    /// An access came to nothing.
    Faults,
}

/// An access that has begun.
#[derive(Clone, Copy)]
struct Begun {
    va: VirtAddr,
    access: Access,
    /// Where in the list its fault stands, if it comes to nothing.
    place: usize,
    at: u32,
}

struct Merged {
    isa: IsaKind,
    noted: Vec<Noted>,
    /// Entries stored to in the run.
    stored: FxHashSet<PhysAddr>,
    begun: BTreeMap<CpuId, Begun>,
    /// Faults, and before which line each stands.
    faults: Vec<(usize, Noted)>,
    step: u64,
}

impl Merged {
    fn new(attempt: &Attempt) -> Self {
        let stored = attempt.report.log.iter().filter_map(|step| stored_by(step.action));
        Self {
            isa: attempt.isa,
            noted: Vec::new(),
            stored: stored.map(PteSlot::addr).collect(),
            begun: BTreeMap::new(),
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
        // The set-up is the story only where nothing came after it.
        let whole = attempt.report.log.is_empty();
        before.iter().for_each(|entry| self.entry(entry, whole));
        let mut during = during.iter().peekable();
        let log = &attempt.report.log;
        for (index, step) in log.iter().enumerate() {
            self.step_of(step);
            let last = log.get(index + 1).is_none_or(|next| next.at != step.at);
            while let Some(entry) = during.next_if(|entry| last && entry.schedule_step <= step.at) {
                self.entry(entry, true);
            }
        }
        // Others may be in the middle of theirs; who panicked has its answer.
        if let RunEnd::Panicked { cpu, .. } = attempt.report.end {
            self.fault(cpu);
        }
        after.iter().filter(|entry| entry.schedule_step == 0).for_each(|entry| self.entry(entry, true));
    }

    fn add(&mut self, line: Line, step: Option<u64>, origin: Origin, shown: bool) {
        self.noted.push(Noted { line, step, by_then: self.step, origin, shown });
    }

    fn step_of(&mut self, step: &ScheduleStep) {
        self.follow_access(step);
        let Some(text) = words::step(self.isa, *step) else { return };
        let line = Line { at: step.at, cpu: step.cpu, text, why: Vec::new(), note: false, times: 1 };
        let demanded = matches!(step.action, StepAction::Executed(_));
        let (origin, shown) = match step.action {
            StepAction::Executed(StopPoint::Walk(va, slot))
            | StepAction::SpeculativeWalk(StopPoint::Walk(va, slot)) => {
                (Origin::Reads(va, slot), self.stored.contains(&slot.addr()))
            }
            // The access that asked for it says so.
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

    /// An access that ends in something else than an access that was made is a fault.
    fn follow_access(&mut self, step: &ScheduleStep) {
        let StepAction::Executed(point) = step.action else { return };
        if let StopPoint::Walk(..) | StopPoint::Fill(..) | StopPoint::Choose(_) = point {
            let place = self.noted.len() + 1;
            if let Some(begun) = self.begun.get_mut(&step.cpu) {
                (begun.place, begun.at) = (place, step.at);
            }
            return;
        }
        self.fault(step.cpu);
        if let StopPoint::Access(va, access) = point {
            self.begun.insert(step.cpu, Begun { va, access, place: self.noted.len(), at: step.at });
        }
    }

    fn fault(&mut self, cpu: CpuId) {
        let Some(Begun { va, access, place, at }) = self.begun.remove(&cpu) else { return };
        let line = Line { at, cpu, text: words::fault(va, access), why: Vec::new(), note: false, times: 1 };
        let noted = Noted { line, step: None, by_then: self.step, origin: Origin::Faults, shown: true };
        self.faults.push((place, noted));
    }

    fn entry(&mut self, entry: &JournalEntry, shown: bool) {
        self.step = self.step.max(entry.oracle_step);
        let text = words::told(&entry.event);
        let (at, cpu, why) = (entry.schedule_step, entry.cpu, Vec::new());
        match &entry.event {
            JournalEvent::Value(_) => {
                if let Some(last) = self.noted.iter_mut().rfind(|noted| noted.line.cpu == cpu) {
                    last.line.text = format!("{} {text}", last.line.text);
                }
            }
            JournalEvent::Note(_) => {
                self.fault(cpu);
                self.add(Line { at, cpu, text, why, note: true, times: 1 }, None, Origin::Nothing, shown);
            }
            JournalEvent::Access(made) => {
                self.begun.remove(&cpu);
                let origin = if made.cached { Origin::Nothing } else { Origin::Fills(made.va) };
                self.add(Line { at, cpu, text, why, note: false, times: 1 }, Some(entry.oracle_step), origin, shown);
            }
            JournalEvent::Fact(_) | JournalEvent::Loaded { .. } => {
                self.add(
                    Line { at, cpu, text, why, note: false, times: 1 },
                    Some(entry.oracle_step),
                    Origin::Nothing,
                    shown,
                );
            }
        }
    }

    fn mark(&mut self, mark: Mark) {
        let (noted, why) = match mark {
            Mark::Step(step, why) => (self.noted.iter_mut().find(|noted| noted.step == Some(step)), why),
            Mark::Source { held, before, why } => {
                let comes_from = |noted: &&mut Noted| noted.by_then <= before && noted.is_source(&held);
                (self.noted.iter_mut().rfind(comes_from), why)
            }
        };
        if let Some(noted) = noted.filter(|noted| !noted.line.why.contains(&why)) {
            noted.line.why.push(why);
        }
    }

    fn lines(self) -> Vec<Line> {
        let mut faults = self.faults;
        // Stable: two that stand in one place stay in order.
        faults.sort_by_key(|(place, _)| *place);
        let mut faults = faults.into_iter().peekable();
        let mut all = Vec::new();
        for (index, noted) in self.noted.into_iter().enumerate() {
            while let Some((_, fault)) = faults.next_if(|(place, _)| *place <= index) {
                all.push(fault);
            }
            all.push(noted);
        }
        all.extend(faults.map(|(_, fault)| fault));
        let mut lines: Vec<Line> = Vec::new();
        let mut last = Origin::Nothing;
        for Noted { line, origin, .. } in all.into_iter().filter(|noted| noted.shown || !noted.line.why.is_empty()) {
            match lines.last_mut().filter(|last| last.cpu == line.cpu && last.why.is_empty()) {
                // Nobody came between the read and what it led to.
                Some(before) if matches!(last, Origin::Reads(..)) && origin != Origin::Nothing => *before = line,
                Some(before) if before.text == line.text && line.why.is_empty() => before.times += 1,
                Some(_) | None => lines.push(line),
            }
            last = origin;
        }
        // What a program does until its next stop is past what the finding speaks of.
        if let Some(end) = lines.iter().rposition(|line| !line.why.is_empty()) {
            lines.truncate(end + 1);
        }
        lines
    }
}

impl Noted {
    /// Whether this line may be where its CPU got what it holds.
    fn is_source(&self, held: &CachedEntry) -> bool {
        if self.line.cpu != held.cpu {
            return false;
        }
        match (self.origin, held.kind) {
            (Origin::Fills(va), CachedEntryKind::Translation { .. }) => held.range().contains(va),
            (Origin::Reads(va, slot), CachedEntryKind::Translation { .. }) => {
                held.range().contains(va) && usize::from(slot.index) == held.level.index_of(va)
            }
            (Origin::Reads(_, slot), CachedEntryKind::Table { table } | CachedEntryKind::Walk { table }) => {
                slot.table == table
            }
            (Origin::Fills(_), CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. }) => false,
            (Origin::Nothing | Origin::Faults, _) => false,
        }
    }
}

/// The entry that a step stores to.
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
