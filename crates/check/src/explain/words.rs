//! What happened, in a few words each: the CPU is the column, so no line names it.

use crate::journal::JournalEvent;
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, Pte, PteSlot};
use pagewright_sim::explore::{ScheduleStep, StepAction, StopPoint};
use pagewright_types::judge::{Fact, MemoryAccess};
use pagewright_types::{Access, CpuMask, IsaKind, Order, Pfn, PhysAddr};
use std::fmt;

/// An entry: table and index.
struct At(PhysAddr);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}[{}]", Pfn::containing(self.0), self.0.page_offset() / 8)
    }
}

fn at(slot: PteSlot) -> At {
    At(slot.addr())
}

/// What an entry holds.
struct Word(Pte);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("empty") } else { write!(f, "{:#x}", self.0.raw()) }
    }
}

/// CPUs, with commas.
struct Cpus(CpuMask);

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.count() == 1 { "" } else { "s" };
        write!(f, "CPU{plural} ")?;
        for (index, cpu) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{cpu}")?;
        }
        Ok(())
    }
}

/// What an invalidation names.
///
/// On x86-64 there is no form for the last level alone.
struct Named(IsaKind, InvalidateTarget);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = |last_level| if last_level && self.0 == IsaKind::Aarch64 { ", leaf alone" } else { "" };
        match self.1 {
            InvalidateTarget::Page { tag, va, last_level, .. } => write!(f, "{va} (tag {tag}{})", alone(last_level)),
            InvalidateTarget::Range { tag, range, last_level, .. } => {
                write!(f, "{range} (tag {tag}{})", alone(last_level))
            }
            InvalidateTarget::Tag(tag) => write!(f, "all of tag {tag}"),
            InvalidateTarget::AllTags => f.write_str("everything"),
        }
    }
}

fn flush(isa: IsaKind, Invalidate { scope, target }: Invalidate) -> String {
    let named = Named(isa, target);
    match (isa, scope) {
        (IsaKind::X86_64, _) => format!("flushes {named}"),
        (IsaKind::Aarch64, InvalidateScope::Local) => format!("flushes {named}, here only"),
        (IsaKind::Aarch64, InvalidateScope::Broadcast) => format!("broadcasts a flush of {named}"),
    }
}

/// What a CPU did by itself, unless it is not worth a line.
fn point(isa: IsaKind, point: StopPoint) -> Option<String> {
    Some(match point {
        StopPoint::Store(slot, pte) => format!("{} := {}", at(slot), Word(pte)),
        StopPoint::Swap(slot, pte) => format!("{} := {} (exchange)", at(slot), Word(pte)),
        StopPoint::CompareExchange(slot, pte) => format!("{} := {} if unchanged", at(slot), Word(pte)),
        StopPoint::Publish if isa == IsaKind::Aarch64 => "dsb ishst: its stores are visible".to_owned(),
        StopPoint::Complete if isa == IsaKind::Aarch64 => "dsb ish: its broadcasts are done".to_owned(),
        StopPoint::Invalidate(op) => flush(isa, op),
        StopPoint::SendIpi(targets) if !targets.is_empty() => format!("interrupts {}", Cpus(targets)),
        StopPoint::Lazy(true) => "goes lazy".to_owned(),
        StopPoint::Lazy(false) => "is lazy no more".to_owned(),
        StopPoint::Walk(va, slot) => format!("walk for {va} reads {}", at(slot)),
        StopPoint::Fill(va, pfn) => format!("TLB filled: {va} is frame {pfn}"),
        // What is declared, accessed and loaded is told by the journal.
        StopPoint::Start
        | StopPoint::Lock
        | StopPoint::Wait
        | StopPoint::Relax
        | StopPoint::Load(_)
        | StopPoint::Publish
        | StopPoint::Complete
        | StopPoint::SendIpi(_)
        | StopPoint::InstallRoot(..)
        | StopPoint::Declare(_)
        | StopPoint::Access(..)
        | StopPoint::Choose(_)
        | StopPoint::Idle => return None,
    })
}

/// A step of the schedule, unless it is not worth a line.
pub(super) fn step(isa: IsaKind, step: ScheduleStep) -> Option<String> {
    Some(match step.action {
        StepAction::Executed(did) => return point(isa, did),
        StepAction::SpeculativeWalk(walked) => return point(isa, walked).map(|words| format!("(speculative) {words}")),
        StepAction::TookInterrupt => "takes an interrupt".to_owned(),
        StepAction::Drained(addr) => format!("its store to {} is visible now", At(addr)),
        StepAction::Delivered(target) => format!("the flush of {} arrives", Named(isa, target)),
        StepAction::Evicted => "its TLB loses an entry".to_owned(),
        StepAction::Picked(0) => "of two translations the newer answers".to_owned(),
        StepAction::Picked(_) => "of two translations the older answers".to_owned(),
        StepAction::SpeculationStarted(_) => return None,
    })
}

struct Frames(Pfn, Order);

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Order::ZERO => write!(f, "frame {}", self.0),
            order => write!(f, "{} frames from {}", order.frames(), self.0),
        }
    }
}

fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Exec => "executes",
    }
}

/// An access that was made.
fn made(made: &MemoryAccess) -> String {
    let by = if made.cached { "TLB" } else { "walk" };
    format!("{} {}: frame {} ({by})", verb(made.access), made.va, Pfn::containing(made.at))
}

/// An access that was refused.
pub(super) fn fault(va: pagewright_types::VirtAddr, access: Access) -> String {
    format!("{} {va}: fault", verb(access))
}

/// A line of the journal.
pub(super) fn told(told: &JournalEvent) -> String {
    match told {
        JournalEvent::Fact(Fact::FrameFreed { pfn, order }) => format!("gives {} back", Frames(*pfn, *order)),
        JournalEvent::Fact(Fact::FrameReused { pfn, order }) => format!("gets {}", Frames(*pfn, *order)),
        JournalEvent::Fact(Fact::RightReduced { range, left, .. }) if left.is_empty() => {
            format!("takes all rights from {range}")
        }
        JournalEvent::Fact(Fact::RightReduced { range, left, .. }) => format!("leaves {left} of {range}"),
        JournalEvent::Fact(Fact::CallReturned) => "returns".to_owned(),
        JournalEvent::Access(access) => made(access),
        JournalEvent::Loaded { root, tag } => format!("loads root {root}, tag {tag}"),
        JournalEvent::Note(text) => text.clone(),
        JournalEvent::Value(value) => format!("= {value:#x}"),
    }
}
