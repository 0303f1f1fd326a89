//! The text of each line: what the CPU of its column does.

use crate::journal::JournalEvent;
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, Pte, PteSlot};
use pagewright_sim::explore::{ScheduleStep, StepAction, StopPoint};
use pagewright_types::judge::{Fact, MemoryAccess};
use pagewright_types::{Access, CpuMask, IsaKind, Order, Pfn, PhysAddr};
use std::fmt;

/// A page-table entry, as table and index.
struct EntryAt(PhysAddr);

impl fmt::Display for EntryAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}[{}]", Pfn::containing(self.0), self.0.page_offset() / 8)
    }
}

fn at(slot: PteSlot) -> EntryAt {
    EntryAt(slot.addr())
}

/// The text for stores of zero by pointer to the entries of a table, from `first` to `last`.
pub(super) fn clears(first: PhysAddr, last: PhysAddr) -> String {
    format!("clears {} to [{}] by pointer", EntryAt(first), last.page_offset() / 8)
}

/// The store of `pte` to the entry at `slot`.
fn store(slot: PteSlot, pte: Pte) -> String {
    if pte.is_empty() { format!("clears {}", at(slot)) } else { format!("stores {:#x} to {}", pte.raw(), at(slot)) }
}

/// A list of CPUs.
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

/// The target of an invalidation.
///
/// x86-64 has no form that invalidates only the last level.
struct FlushTarget(IsaKind, InvalidateTarget);

impl fmt::Display for FlushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let only = |last_level| if last_level && self.0 == IsaKind::Aarch64 { ", last level only" } else { "" };
        match self.1 {
            InvalidateTarget::Page { tag, va, last_level, .. } => write!(f, "{va} (tag {tag}{})", only(last_level)),
            InvalidateTarget::Range { tag, range, last_level, .. } => {
                write!(f, "{range} (tag {tag}{})", only(last_level))
            }
            InvalidateTarget::Tag(tag) => write!(f, "all of tag {tag}"),
            InvalidateTarget::PageOfAllTags { va, last_level, .. } => {
                write!(f, "{va} (all tags{})", only(last_level))
            }
            InvalidateTarget::AllTags if self.0 == IsaKind::X86_64 => f.write_str("all tags, not globals"),
            InvalidateTarget::AllTags | InvalidateTarget::Everything => f.write_str("everything"),
        }
    }
}

fn flush(isa: IsaKind, Invalidate { scope, target }: Invalidate) -> String {
    let target = FlushTarget(isa, target);
    match (isa, scope) {
        (IsaKind::X86_64, InvalidateScope::Local) => format!("flushes {target}"),
        (IsaKind::X86_64, InvalidateScope::Broadcast) => format!("broadcasts a flush of {target} (INVLPGB)"),
        (IsaKind::Aarch64, InvalidateScope::Local) => format!("flushes {target} on this CPU only"),
        (IsaKind::Aarch64, InvalidateScope::Broadcast) => format!("broadcasts a flush of {target}"),
    }
}

/// The text for what a CPU did, or `None` if it gets no line.
fn point(isa: IsaKind, point: StopPoint) -> Option<String> {
    Some(match point {
        StopPoint::Store(slot, pte) => store(slot, pte),
        StopPoint::Swap(slot, pte) => format!("{} (atomic exchange)", store(slot, pte)),
        StopPoint::CompareExchange(slot, pte) => format!("{} (compare and exchange)", store(slot, pte)),
        StopPoint::Publish if isa == IsaKind::Aarch64 => "dsb ishst: its stores are visible to walkers".to_owned(),
        StopPoint::Complete if isa == IsaKind::Aarch64 => "dsb ish: its broadcast flushes are complete".to_owned(),
        StopPoint::Invalidate(op) => flush(isa, op),
        StopPoint::SendIpi(targets) if !targets.is_empty() => format!("sends an IPI to {}", Cpus(targets)),
        StopPoint::Lazy(true) => "enters lazy TLB mode".to_owned(),
        StopPoint::Lazy(false) => "leaves lazy TLB mode".to_owned(),
        StopPoint::Walk(va, slot) => format!("walk for {va} reads {}", at(slot)),
        StopPoint::Fill(va, pfn) => format!("fills its TLB: {va} maps to frame {pfn}"),
        // The journal has the lines for facts, accesses and loaded roots.
        StopPoint::Start
        | StopPoint::Lock
        | StopPoint::Wait
        | StopPoint::Relax
        | StopPoint::Load(_)
        | StopPoint::Publish
        | StopPoint::Complete
        | StopPoint::SendIpi(_)
        | StopPoint::InstallRoot(..)
        | StopPoint::InstallKernelRoot(_)
        | StopPoint::PointerStore(_)
        | StopPoint::Declare(_)
        | StopPoint::Access(..)
        | StopPoint::Choose(_)
        | StopPoint::Idle => return None,
    })
}

/// The text for a step of the schedule, or `None` if it gets no line.
pub(super) fn step(isa: IsaKind, step: ScheduleStep) -> Option<String> {
    Some(match step.action {
        StepAction::Executed(executed) => return point(isa, executed),
        StepAction::SpeculativeWalk(step) => return point(isa, step).map(|text| format!("(speculative) {text}")),
        StepAction::TookInterrupt => "takes an IPI".to_owned(),
        StepAction::Drained(addr) => format!("its store to {} becomes visible to walkers", EntryAt(addr)),
        StepAction::Delivered(target) => format!("the broadcast flush of {} arrives", FlushTarget(isa, target)),
        StepAction::Evicted => "evicts a TLB or walk-cache entry".to_owned(),
        StepAction::Picked(0) => "uses the newest of several conflicting translations".to_owned(),
        StepAction::Picked(_) => "uses an older one of several conflicting translations".to_owned(),
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

/// The text for an access that was made.
fn made(made: &MemoryAccess) -> String {
    let by = if made.cached { "TLB hit" } else { "walk" };
    format!("{} {}: frame {} ({by})", verb(made.access), made.va, Pfn::containing(made.at))
}

/// The text for an access that faulted.
pub(super) fn fault(va: pagewright_types::VirtAddr, access: Access) -> String {
    format!("{} {va}: page fault", verb(access))
}

/// The text for an event of the journal.
pub(super) fn event(event: &JournalEvent) -> String {
    match event {
        JournalEvent::Fact(Fact::FrameFreed { pfn, order }) => format!("parks {}", Frames(*pfn, *order)),
        JournalEvent::Fact(Fact::FrameReleased { pfn, order }) => format!("frees {}", Frames(*pfn, *order)),
        JournalEvent::Fact(Fact::FrameReused { pfn, order }) => format!("allocates {}", Frames(*pfn, *order)),
        JournalEvent::Fact(Fact::RightReduced { range, left, .. }) if left.is_empty() => {
            format!("will remove all rights to {range}")
        }
        JournalEvent::Fact(Fact::RightReduced { range, left, .. }) => {
            format!("will reduce rights to {range} to {left}")
        }
        JournalEvent::Fact(Fact::CallReturned) => "returns".to_owned(),
        JournalEvent::Fact(Fact::RightDeferred { range, frame, .. }) => {
            format!("defers the flush of {range}, read-only, of frame {frame}")
        }
        JournalEvent::Fact(Fact::PageMoved { frame, copy }) => format!("has moved a page from {frame} to {copy}"),
        JournalEvent::Fact(Fact::PageFilled { page, frame }) => format!("reads {page:?} into {frame}"),
        JournalEvent::Fact(Fact::PagesRemoved { file, first, end }) => {
            format!("removes pages {first} to {} of file {file}", end - 1)
        }
        JournalEvent::Fact(Fact::PageReplaced { page }) => format!("replaces {page:?}"),
        JournalEvent::Fact(Fact::TableShared { table, shared: true, .. }) => format!("shares table {table}"),
        JournalEvent::Fact(Fact::TableShared { table, shared: false, .. }) => {
            format!("table {table} is not shared any more")
        }
        JournalEvent::Fact(Fact::EditInPlace { table, begins: true }) => format!("edits table {table} for all sharers"),
        JournalEvent::Fact(Fact::EditInPlace { table, begins: false }) => format!("has edited table {table}"),
        JournalEvent::PointerStore { at, old, new: 0, .. } => {
            format!("clears {} by pointer (was {old:#x})", EntryAt(*at))
        }
        JournalEvent::PointerStore { at, old, new, .. } => {
            format!("stores {new:#x} to {} by pointer (was {old:#x})", EntryAt(*at))
        }
        JournalEvent::Access(access) => made(access),
        JournalEvent::KernelLoaded { root } => format!("loads the kernel's root {root}"),
        JournalEvent::Loaded { root, tag } => format!("loads root {root}, tag {tag}"),
        JournalEvent::Note(text) => text.clone(),
        JournalEvent::Value(value) => format!("= {value:#x}"),
        JournalEvent::Called(location) => format!("calls at {location}"),
    }
}
