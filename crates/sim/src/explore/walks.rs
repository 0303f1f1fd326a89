//! Walks in flight, and broadcast invalidations that have not reached every CPU.
//!
//! A walk reads one entry a step and holds what it read. An invalidation removes what TLBs and walk
//! caches hold; of the walks in flight
//!
//! - on x86-64 it cancels those of its own CPU under its tag: INVLPG and MOV CR3 drop what the
//!   walker remembers of the tables too;
//! - on arm64 it *dooms*, where it arrives, those that hold an entry it names. They may still fill,
//!   until the DSB of the CPU that issued it: then they are cancelled, and what they filled
//!   meanwhile is removed (Arm ARM D8.16, "completion of TLB maintenance").
//!
//! A walk that has not yet read the entry concerned is left alone: it will read what memory holds
//! by then.

use crate::core::Root;
use crate::tlb::Key;
use crate::walk::{Walk, WalkedLeaf};
use pagewright_arch::InvalidateTarget;
use pagewright_types::{Access, CpuId, CpuMask, Level, PageRange, Tag, VirtAddr};

/// What a walk holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// The table whose entry it reads next.
    Table(Walk),
    /// A translation that it is about to fill.
    Leaf(WalkedLeaf),
}

/// Names a walk or a broadcast of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serial(pub(crate) u64);

/// A walk in flight.
#[derive(Debug)]
pub(crate) struct WalkInFlight {
    pub(crate) serial: Serial,
    pub(crate) va: VirtAddr,
    pub(crate) access: Access,
    pub(crate) root: Root,
    pub(crate) held: Held,
    /// Whether a program waits for it.
    pub(crate) demanded: bool,
    /// Invalidations that found it here.
    pub(crate) doomed_by: Vec<Serial>,
}

/// A broadcast invalidation that its issuer has not completed.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) serial: Serial,
    pub(crate) issuer: CpuId,
    pub(crate) target: InvalidateTarget,
    /// CPUs that it has not reached.
    pub(crate) on_its_way: CpuMask,
    /// CPUs where a walk that it doomed has filled since.
    pub(crate) filled_since: CpuMask,
}

/// Level of the entry that a walk read last, above the table it holds.
fn entry_read(walk: Walk) -> Option<Level> {
    (walk.level < Level::PGD).then(|| Level::new(walk.level.raw() + 1))
}

fn covers(va: VirtAddr, level: Level, other: VirtAddr) -> bool {
    va.align_down(level.span()) == other.align_down(level.span())
}

fn within(range: PageRange, level: Level, va: VirtAddr) -> bool {
    let start = va.align_down(level.span());
    start < range.end() && range.start() < start.add(level.span())
}

impl WalkInFlight {
    /// Whether an arm64 invalidation concerns the entry that this walk holds.
    pub(crate) fn concerned_by(&self, target: InvalidateTarget) -> bool {
        let tag = |tag: Tag| match self.held {
            Held::Table(_) => self.root.tag == tag,
            Held::Leaf(found) => found.global || self.root.tag == tag,
        };
        match target {
            InvalidateTarget::AllTags => true,
            InvalidateTarget::Tag(tag) => self.root.tag == tag,
            InvalidateTarget::Page { tag: named, va, level, last_level } => {
                tag(named) && self.holds(last_level.then_some(level), |level| covers(self.va, level, va))
            }
            InvalidateTarget::Range { tag: named, range, level, last_level } => {
                tag(named) && self.holds(last_level.then_some(level), |level| within(range, level, self.va))
            }
        }
    }

    /// Whether it holds an entry for which `concerns` is true; with `only`, a leaf of that level.
    fn holds(&self, only: Option<Level>, concerns: impl Fn(Level) -> bool) -> bool {
        match self.held {
            Held::Table(walk) => only.is_none() && entry_read(walk).is_some_and(concerns),
            Held::Leaf(found) => only.is_none_or(|only| only == found.level) && concerns(found.level),
        }
    }
}

/// Whether an arm64 invalidation removes a translation under `key`.
pub(crate) fn removes(target: InvalidateTarget, key: Key) -> bool {
    match target {
        InvalidateTarget::AllTags => true,
        InvalidateTarget::Tag(tag) => !key.is_global() && key.answers(tag),
        InvalidateTarget::Page { tag, va, level, last_level } => {
            key.answers(tag) && covers(key.start(), key.level(), va) && (!last_level || key.level() == level)
        }
        InvalidateTarget::Range { tag, range, level, last_level } => {
            key.answers(tag) && within(range, key.level(), key.start()) && (!last_level || key.level() == level)
        }
    }
}

/// The tag under which x86-64 cancels walks in flight; `None` for all.
pub(crate) fn tag_named(target: InvalidateTarget) -> Option<Tag> {
    match target {
        InvalidateTarget::Page { tag, .. } | InvalidateTarget::Range { tag, .. } | InvalidateTarget::Tag(tag) => {
            Some(tag)
        }
        InvalidateTarget::AllTags => None,
    }
}
