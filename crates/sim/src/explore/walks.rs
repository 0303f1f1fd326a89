//! Walks in flight, and broadcast invalidations that have not reached every CPU.
//!
//! A walk reads one entry a step and holds the entry that it read last. An invalidation removes
//! entries of TLBs and walk caches. Its effect on walks in flight depends on the architecture:
//!
//! - On x86-64 it cancels the walks of its own CPU under its tag: INVLPG and MOV CR3 invalidate the
//!   paging-structure caches too.
//! - On arm64 it *dooms* the walks that hold an entry which it names, on each CPU where it arrives.
//!   A doomed walk may still fill until the DSB of the issuing CPU. The DSB cancels it, and removes
//!   what it filled (Arm ARM D8.16, "completion of TLB maintenance").
//!
//! A walk that has not read the named entry yet is not affected: it reads the new entry.

use crate::core::Root;
use crate::tlb::Key;
use crate::walk::{WalkPosition, WalkedLeaf};
use pagewright_arch::InvalidateTarget;
use pagewright_types::{Access, CpuId, CpuMask, Level, PageRange, Tag, VirtAddr};

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum WalkState {
    /// It is about to read an entry of a table.
    Table(WalkPosition),
    /// It is about to fill the TLBs with a translation.
    Leaf(WalkedLeaf),
}

/// The number of a walk or a broadcast in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serial(pub(crate) u64);

/// A walk in flight.
#[derive(Debug)]
pub(crate) struct WalkInFlight {
    pub(crate) serial: Serial,
    pub(crate) va: VirtAddr,
    pub(crate) access: Access,
    pub(crate) root: Root,
    pub(crate) state: WalkState,
    /// Whether an access of a program waits for it; otherwise it is speculative.
    pub(crate) demanded: bool,
    /// The broadcasts that doomed it.
    pub(crate) doomed_by: Vec<Serial>,
}

/// A broadcast invalidation that its issuer has not completed by a DSB.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) serial: Serial,
    /// Its number among the broadcasts of the run.
    pub(crate) number: u64,
    pub(crate) issuer: CpuId,
    pub(crate) target: InvalidateTarget,
    /// The CPUs that it has not reached.
    pub(crate) undelivered: CpuMask,
    /// The CPUs on which a walk that it doomed has filled.
    pub(crate) late_fills: CpuMask,
}

/// The level of the entry that an arm64 walk read last, above its current table.
fn entry_read(position: WalkPosition) -> Option<Level> {
    let level = position.level;
    (level < level.granule().top()).then(|| level.of_same_tree(level.raw() + 1))
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
        let tag = |tag: Tag| match self.state {
            WalkState::Table(_) => self.root.tag == tag,
            WalkState::Leaf(found) => found.global || self.root.tag == tag,
        };
        match target {
            InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
            InvalidateTarget::PageOfAllTags { va, level, last_level } => {
                self.holds(last_level.then_some(level), |level| covers(self.va, level, va))
            }
            InvalidateTarget::Tag(tag) => self.root.tag == tag,
            InvalidateTarget::Page { tag: named, va, level, last_level } => {
                tag(named) && self.holds(last_level.then_some(level), |level| covers(self.va, level, va))
            }
            InvalidateTarget::Range { tag: named, range, level, last_level } => {
                tag(named) && self.holds(last_level.then_some(level), |level| within(range, level, self.va))
            }
        }
    }

    /// Whether it holds an entry of a level for which `concerns` is true.
    ///
    /// `only` restricts that to leaves of one level.
    fn holds(&self, only: Option<Level>, concerns: impl Fn(Level) -> bool) -> bool {
        match self.state {
            WalkState::Table(walk) => only.is_none() && entry_read(walk).is_some_and(concerns),
            WalkState::Leaf(found) => only.is_none_or(|only| only == found.level) && concerns(found.level),
        }
    }
}

/// Whether an arm64 invalidation removes a translation under `key`.
pub(crate) fn removes(target: InvalidateTarget, key: Key) -> bool {
    match target {
        InvalidateTarget::AllTags | InvalidateTarget::Everything => true,
        InvalidateTarget::PageOfAllTags { va, level, last_level } => {
            covers(key.start(), key.level(), va) && (!last_level || key.level() == level)
        }
        InvalidateTarget::Tag(tag) => !key.is_global() && key.is_valid_under(tag),
        InvalidateTarget::Page { tag, va, level, last_level } => {
            key.is_valid_under(tag) && covers(key.start(), key.level(), va) && (!last_level || key.level() == level)
        }
        InvalidateTarget::Range { tag, range, level, last_level } => {
            key.is_valid_under(tag) && within(range, key.level(), key.start()) && (!last_level || key.level() == level)
        }
    }
}

/// The tag whose walks in flight an x86-64 invalidation cancels; `None` for all tags.
pub(crate) fn tag_named(target: InvalidateTarget) -> Option<Tag> {
    match target {
        InvalidateTarget::Page { tag, .. } | InvalidateTarget::Range { tag, .. } | InvalidateTarget::Tag(tag) => {
            Some(tag)
        }
        InvalidateTarget::PageOfAllTags { .. } | InvalidateTarget::AllTags | InvalidateTarget::Everything => None,
    }
}
