//! One augmented B+tree for everything in `mm` that is ordered by page index.
//!
//! | user | key | summary | question it is asked |
//! | --- | --- | --- | --- |
//! | the VMAs of an address space | first page | [`Gaps`] | which VMA holds this page? where is a hole of so many pages? |
//! | the page cache of a file | page index | `()` | which folio holds this index? |
//! | the mappers of a file | first page and a tie-breaker | [`MaxEnd`] | who maps any of these pages? |
//!
//! It stands where Linux has the maple tree (`lib/maple_tree.c`), the xarray and the interval tree
//! of `i_mmap`: all three want ordered keys and a little arithmetic over subtrees, and differ only
//! in that arithmetic, the [`SubtreeSummary`].
//!
//! ```text
//!   inners   [ first key | summary | child ] × ≤ 15         Inner, levels 1 … height
//!              │                     └──────────┐
//!   leaves   [ key | summary | item ] × ≤ 15  ⇄  …                Leaf, level 0, linked in order
//! ```
//!
//! Key types: [`BPlusTree`], [`TreeItem`] (what is stored, and its summary), [`TreeKey`], [`GapQuery`],
//! [`TreeReserveError`]. Neighbours: none below but `alloc`; above, the rooms of `mm` that are named in
//! the table.
//!
//! Protocol: *validate, reserve, commit*. [`BPlusTree::try_reserve`] is the only function that
//! allocates, and it asks its caller's permission first; after it has succeeded for `n`, the next
//! `n` calls of [`BPlusTree::insert`] neither allocate nor fail. Removal never needs memory: nodes go to
//! a free list, and [`BPlusTree::clear`] gives everything back.
//!
//! Invariants (checked after every step of the property tests):
//! - **INV-TREE-ORDER** keys rise strictly from left to right, and a child's entry holds exactly
//!   the first key below it.
//! - **INV-TREE-FILL** all leaves lie at one depth; every node has at least [`MIN_FILL`] entries,
//!   except the root and the last node of each level; an inner root has at least two children. So a
//!   search takes O(log n) steps, whatever was done before.
//! - **INV-TREE-SUMMARY** an entry's summary is the [`SubtreeSummary::join`] of all items below it, in
//!   order.
//! - **INV-TREE-LINKS** the leaf links visit every leaf once, in key order, both ways.
//! - **INV-TREE-RESERVE** within a reservation no operation grows the arenas; outside
//!   [`BPlusTree::try_reserve`] nothing ever does.
//! - **INV-TREE-RETURN** every node is either reachable or on its arena's free list.
//!
//! Not guaranteed: thread safety (the lock of the owner is taken by the caller); that items don't
//! overlap – the gap search and [`BPlusTree::at`] assume it and the caller's VMA rules provide it;
//! references to items that outlive a change, since items move.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arena;
mod gap;
mod insert;
mod item;
mod iter;
mod keys;
mod node;
mod overlap;
mod remove;
mod reserve;
mod search;
mod update;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod validate;

pub use gap::{GapDirection, GapQuery};
pub use item::{EndSummary, Gaps, MaxEnd, SubtreeSummary, TreeItem, TreeKey};
pub use iter::TreeIter;
pub use node::{CAPACITY, MIN_FILL};
pub use overlap::Overlapping;
pub use reserve::TreeReserveError;

use arena::{Arena, NodeId};
use arrayvec::ArrayVec;
use node::{Inner, Leaf};

/// More levels than 2^32 nodes of minimal fill can have, so that a path fits in an array.
const MAX_HEIGHT: usize = 16;

/// An ordered collection of items with a summary of each subtree.
///
/// See the [module's documentation](self).
pub struct BPlusTree<V: TreeItem> {
    leaves: Arena<Leaf<V>>,
    inners: Arena<Inner<V::Key, V::Summary>>,
    /// The topmost node; [`NodeId::NONE`] in an empty tree, which owns no node.
    root: NodeId,
    /// Levels of inner nodes above the leaves: with 0 the root is a leaf.
    height: usize,
    len: usize,
    /// Inserts that the last reservation still covers.
    reserved: usize,
}

/// One turn of a descent: which entry of which inner node was followed.
#[derive(Clone, Copy)]
struct Step {
    node: NodeId,
    slot: usize,
}

/// The way from the root to a leaf.
struct Path {
    steps: ArrayVec<Step, MAX_HEIGHT>,
    leaf: NodeId,
}

impl<V: TreeItem> BPlusTree<V> {
    /// An empty tree.
    ///
    /// Allocates nothing.
    pub const fn new() -> Self {
        Self { leaves: Arena::new(), inners: Arena::new(), root: NodeId::NONE, height: 0, len: 0, reserved: 0 }
    }

    /// Number of items.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all items and gives all memory back, reservations included.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Bytes of heap that the tree holds, free nodes and reservations included; what items own
    /// themselves is not counted.
    pub fn memory_bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes()
    }
}

impl<V: TreeItem> Default for BPlusTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: TreeItem<Key: core::fmt::Debug> + core::fmt::Debug> core::fmt::Debug for BPlusTree<V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
