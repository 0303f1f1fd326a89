//! Runs of frames as values: the owner of the value owns the frames.
//!
//! Key types: [`Block`], frames that may be used; [`UnsettledBlock`], frames whose debt must be
//! settled first.
//!
//! Invariants:
//! - **INV-FRAME-LINEAR** A block, list of blocks, reference, pin or frozen folio is ended by the
//!   call that takes it, and never dropped. Debug builds panic on a drop.
//! - **INV-FRAME-SETTLED** The allocator hands out frames only together with the key of their debt,
//!   as [`UnsettledBlock`]. The only way from there to a usable block is
//!   [`UnsettledBlock::settle`], which passes the key to its caller.
//!
//! Not guaranteed: that the caller of `settle` flushes. Only `tlb` can name that call.

use crate::clear::Residency;
use pagewright_sync::bomb;
use pagewright_types::{DebtKey, Order, Pfn};

/// 2^order naturally aligned frames with one owner.
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

    /// Sets what is known about the cache lines of the frames.
    pub const fn with_residency(mut self, residency: Residency) -> Self {
        self.residency = residency;
        self
    }

    /// What was known about the cache lines of the frames when they were allocated.
    #[inline]
    pub const fn residency(&self) -> Residency {
        self.residency
    }

    /// The first frame, aligned to the order.
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The base-2 logarithm of the number of frames.
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Turns the value into its first frame number, which then owns the frames.
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

/// A block fresh from the allocator, with the debt under which its frames were freed.
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

    /// The key of the debt; [`DebtKey::NONE`] for none.
    #[inline]
    pub const fn key(&self) -> DebtKey {
        self.key
    }

    /// Returns the block after `flush` has settled its debt.
    ///
    /// Does not call `flush` if there is no debt.
    #[inline]
    pub fn settle(self, flush: impl FnOnce(DebtKey)) -> Block {
        if self.key != DebtKey::NONE {
            flush(self.key);
        }
        self.block
    }

    /// The block and its debt, for a caller that frees them unsettled.
    pub(crate) fn into_parts(self) -> (Block, DebtKey) {
        (self.block, self.key)
    }
}
