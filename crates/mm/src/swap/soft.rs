//! What stands in a page table in the place of a page in swap.

use pagewright_arch::{Leaf, LeafFlags, SoftEntry, SoftKind};
use pagewright_types::SwapEntry;

/// What such an entry remembers of the leaf that stood there (`pte_swp_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swapped {
    /// Where the page is.
    pub(crate) entry: SwapEntry,
    /// Whether the page was the space's alone.
    pub(crate) exclusive: bool,
    /// Whether it counts as stored to since soft-dirty bits were last cleared.
    pub(crate) soft_dirty: bool,
}

impl Swapped {
    const SOFT_DIRTY: u64 = 1 << 32;

    /// What remembers `leaf`.
    pub(crate) fn of(leaf: Leaf, entry: SwapEntry) -> Self {
        let has = |flag| leaf.flags.contains(flag);
        Self { entry, exclusive: has(LeafFlags::EXCLUSIVE), soft_dirty: has(LeafFlags::SOFT_DIRTY) }
    }

    /// The entry to be stored.
    pub(crate) fn soft(self) -> SoftEntry {
        let mark = if self.soft_dirty { Self::SOFT_DIRTY } else { 0 };
        let payload = u64::from(self.entry.raw()) | mark;
        SoftEntry { kind: SoftKind::Swap, exclusive: self.exclusive, payload }
    }
}

/// What an entry says of a page in swap, if it is one of those.
pub(crate) fn swapped(soft: SoftEntry) -> Option<Swapped> {
    (soft.kind == SoftKind::Swap).then(|| Swapped {
        entry: SwapEntry::from_raw(soft.payload as u32),
        exclusive: soft.exclusive,
        soft_dirty: soft.payload & Swapped::SOFT_DIRTY != 0,
    })
}
