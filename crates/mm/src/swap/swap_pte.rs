//! The swap PTE: the entry that stands in a page table for a swapped-out page.

use pagewright_arch::{LeafFlags, SoftEntry, SoftKind};
use pagewright_table::LeafView;
use pagewright_types::SwapEntry;

/// A decoded swap PTE: the swap entry, and bits of the leaf that it replaced (`pte_swp_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwapPte {
    /// The slot that has the page.
    pub(crate) entry: SwapEntry,
    /// Whether the page was exclusive to the space.
    pub(crate) exclusive: bool,
    /// Whether the page counts as stored to since soft-dirty bits were last cleared.
    pub(crate) soft_dirty: bool,
}

impl SwapPte {
    const SOFT_DIRTY: u64 = 1 << 32;

    /// The swap PTE that replaces `leaf`.
    pub(crate) fn new(leaf: LeafView, entry: SwapEntry) -> Self {
        Self { entry, exclusive: leaf.is_exclusive(), soft_dirty: leaf.has(LeafFlags::SOFT_DIRTY) }
    }

    /// The soft entry to store.
    pub(crate) fn encode(self) -> SoftEntry {
        let soft_dirty = if self.soft_dirty { Self::SOFT_DIRTY } else { 0 };
        let payload = u64::from(self.entry.raw()) | soft_dirty;
        SoftEntry { kind: SoftKind::Swap, exclusive: self.exclusive, payload }
    }

    /// The swap PTE that a soft entry encodes, unless it is of another kind.
    pub(crate) fn decode(soft: SoftEntry) -> Option<Self> {
        (soft.kind == SoftKind::Swap).then(|| Self {
            entry: SwapEntry::from_raw(soft.payload as u32),
            exclusive: soft.exclusive,
            soft_dirty: soft.payload & Self::SOFT_DIRTY != 0,
        })
    }
}
