//! Memory before the first change: how many nodes a number of inserts can need, and getting them.
//!
//! Key type: [`TreeReserveError`]. Neighbours: `arena` holds the nodes; `insert` spends them.
//!
//! Two bounds hold at once, and the smaller one is reserved: an insert splits at most one node of
//! each level, and a level of `n` entries has at most `n / MIN_FILL + 1` nodes (INV-TREE-FILL). The
//! first is tight for one VMA, the second for a fork that copies 100 000.
//!
//! Not guaranteed: that a reservation outlives [`BPlusTree::clear`].

use super::node::MIN_FILL;
use super::{BPlusTree, TreeItem};
use core::fmt;

/// The memory for some inserts was refused, by the allocator or by the caller's permit.
///
/// The tree is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeReserveError {
    /// How many inserts were to be reserved.
    pub inserts: usize,
}

impl fmt::Display for TreeReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} more items in a tree", self.inserts)
    }
}

impl core::error::Error for TreeReserveError {}

/// Nodes of each kind.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    pub(super) leaves: usize,
    pub(super) inners: usize,
}

impl<V: TreeItem> BPlusTree<V> {
    /// Makes the next `inserts` calls of [`Self::insert`] infallible.
    ///
    /// Like [`Vec::try_reserve`](alloc::vec::Vec::try_reserve) it counts from now and doesn't add
    /// to an earlier reservation; what other operations do in between doesn't use it up.
    ///
    /// `permit` is asked, once, only if memory must really be allocated: fault injection and
    /// accounting stand there.
    ///
    /// # Errors
    /// [`TreeReserveError`] when `permit` or the allocator refuses; items and earlier reservations are
    /// as before.
    pub fn try_reserve(&mut self, inserts: usize, permit: impl FnOnce() -> bool) -> Result<(), TreeReserveError> {
        let demand = self.demand(inserts);
        if self.leaves.spare() < demand.leaves || self.inners.spare() < demand.inners {
            let refused = TreeReserveError { inserts };
            if !permit() {
                return Err(refused);
            }
            self.leaves.try_reserve(demand.leaves).map_err(|_| refused)?;
            self.inners.try_reserve(demand.inners).map_err(|_| refused)?;
        }
        self.reserved = self.reserved.max(inserts);
        Ok(())
    }

    /// The most spare nodes that `inserts` more items can take, whatever is removed in between.
    pub(super) fn demand(&self, inserts: usize) -> Demand {
        let most = |entries: usize| entries / MIN_FILL + 1;
        let leaves_now = self.leaves.used();
        let leaves = inserts.min(most(self.len.saturating_add(inserts)).saturating_sub(leaves_now));

        // By splits: one node of each level for each insert, and the levels above what was the
        // root.
        let mut by_splits = inserts.saturating_mul(self.height);
        let mut level = inserts.saturating_add(usize::from(leaves_now > 0));
        while level > 1 {
            level = most(level);
            by_splits = by_splits.saturating_add(level);
        }
        // By fill: every level as empty as it may be.
        let mut by_fill = 0;
        let mut level = leaves_now + leaves;
        while level > 1 {
            level = most(level);
            by_fill += level;
        }
        Demand { leaves, inners: by_splits.min(by_fill.saturating_sub(self.inners.used())) }
    }
}
