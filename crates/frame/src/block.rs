//! Runs of frames as values: whoever has the value has the frames.
//!
//! Key types: [`Block`], frames to be used; [`UnsettledBlock`], frames whose debt must be settled first.
//!
//! Invariants:
//! - INV-FRAME-LINEAR: a block, reference, pin or frozen folio is consumed by the call that ends it
//!   and never dropped.
//! - INV-FRAME-SETTLED: the allocator hands out frames as `UnsettledBlock` only, and the only way from
//!   there to a `Block` is a call that is given the debt's key.
//!
//! Not guaranteed: that whoever settles does so. Only `tlb` names these calls.

use crate::clear::Residency;
use pagewright_sync::bomb;
use pagewright_types::{DebtKey, Order, Pfn};

/// 2^order frames that belong to whoever has this value.
#[must_use = "dropping a block leaks its frames"]
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pfn: Pfn,
    order: Order,
    residency: Residency,
}

impl Block {
    pub(crate) const fn new(pfn: Pfn, order: Order) -> Self {
        Self { pfn, order, residency: Residency::Unknown }
    }

    /// The same block, of whose lines somebody knows this.
    pub const fn with_residency(mut self, residency: Residency) -> Self {
        self.residency = residency;
        self
    }

    /// What is known of its lines, since it was allocated.
    #[inline]
    pub const fn residency(&self) -> Residency {
        self.residency
    }

    /// First frame; aligned to the order.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// log2 of the number of frames.
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Gives up the value for its first frame number, for a list.
    ///
    /// [`Frames::block_from_raw`](crate::Frames::block_from_raw) makes it a block again.
    #[inline]
    pub const fn into_raw(self) -> Pfn {
        let pfn = self.pfn;
        core::mem::forget(self);
        pfn
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked block of order {} at {}", self.order, self.pfn));
    }
}

/// Frames fresh from the allocator, and the debt under which they were freed.
#[must_use = "dropping unsettled frames leaks them"]
#[derive(Debug, PartialEq, Eq)]
pub struct UnsettledBlock {
    block: Block,
    key: DebtKey,
}

impl UnsettledBlock {
    pub(crate) const fn new(block: Block, key: DebtKey) -> Self {
        Self { block, key }
    }

    /// The debt; [`DebtKey::NONE`] for none.
    #[inline]
    pub const fn key(&self) -> DebtKey {
        self.key
    }

    /// Makes the frames usable after `pay` has settled the debt; `pay` is not called when there is
    /// none.
    #[inline]
    pub fn settle(self, pay: impl FnOnce(DebtKey)) -> Block {
        if self.key != DebtKey::NONE {
            pay(self.key);
        }
        self.block
    }

    /// The frames and the debt, still together, for whoever gives them back.
    pub(crate) fn into_parts(self) -> (Block, DebtKey) {
        (self.block, self.key)
    }
}
