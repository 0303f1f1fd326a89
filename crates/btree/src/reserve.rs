//! Reserving nodes for inserts: how many they can need, and their allocation.
//!
//! Key type: [`TreeReserveError`]. Neighbours: `arena` has the nodes; `insert` uses them.
//!
//! Two bounds hold, and the smaller one is reserved. An insert splits at most one node of each
//! level; this bound is tight for one VMA. A level of `n` entries has at most
//! `n / MIN_FILL + 1` nodes (INV-TREE-FILL); this bound is tight for a fork that copies 100 000
//! VMAs.
//!
//! Not guaranteed: that a reservation outlives [`BPlusTree::clear`].

use super::node::MIN_FILL;
use super::{BPlusTree, TreeItem};
use thiserror::Error;

/// A reservation failed, because the allocator or the caller's permit refused it.
///
/// The tree has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory to reserve {inserts} inserts into a tree")]
pub struct TreeReserveError {
    /// Number of inserts that were to be reserved.
    pub inserts: usize,
}

/// Numbers of nodes, of each kind.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    pub(super) leaves: usize,
    pub(super) inners: usize,
}

impl<V: TreeItem> BPlusTree<V> {
    /// Makes the next `inserts` calls of [`Self::insert`] infallible.
    ///
    /// As with [`Vec::try_reserve`](alloc::vec::Vec::try_reserve), the number counts from now and
    /// does not add to an earlier reservation. Other operations do not use the reservation up.
    ///
    /// Calls `permit` once, if it must allocate memory. There the caller injects faults or accounts
    /// for the memory.
    ///
    /// # Errors
    /// [`TreeReserveError`] if `permit` or the allocator refuses. Items and earlier reservations
    /// have not changed.
    pub fn try_reserve(&mut self, inserts: usize, permit: impl FnOnce() -> bool) -> Result<(), TreeReserveError> {
        self.reserve_nodes(self.demand(inserts), inserts, permit)?;
        self.reserved = self.reserved.max(inserts);
        Ok(())
    }

    /// Makes the spare nodes at least `demand`, for `inserts` items.
    pub(super) fn reserve_nodes(
        &mut self,
        demand: Demand,
        inserts: usize,
        permit: impl FnOnce() -> bool,
    ) -> Result<(), TreeReserveError> {
        if self.leaves.spare() < demand.leaves || self.inners.spare() < demand.inners {
            let refused = TreeReserveError { inserts };
            if !permit() {
                return Err(refused);
            }
            self.leaves.try_reserve(demand.leaves).map_err(|_| refused)?;
            self.inners.try_reserve(demand.inners).map_err(|_| refused)?;
        }
        Ok(())
    }

    /// Returns the maximum number of spare nodes that `inserts` inserts use.
    ///
    /// The bound also holds if items are removed in between.
    pub(super) fn demand(&self, inserts: usize) -> Demand {
        let max_nodes = |entries: usize| entries / MIN_FILL + 1;
        let leaves_now = self.leaves.used();
        let leaves = inserts.min(max_nodes(self.len.saturating_add(inserts)).saturating_sub(leaves_now));

        // First bound: one node of each level for each insert, and the levels above the present
        // root.
        let mut by_splits = inserts.saturating_mul(self.height);
        let mut level = inserts.saturating_add(usize::from(leaves_now > 0));
        while level > 1 {
            level = max_nodes(level);
            by_splits = by_splits.saturating_add(level);
        }
        // Second bound: every node has the minimal fill.
        let mut by_fill = 0;
        let mut level = leaves_now + leaves;
        while level > 1 {
            level = max_nodes(level);
            by_fill += level;
        }
        Demand { leaves, inners: by_splits.min(by_fill.saturating_sub(self.inners.used())) }
    }
}
