//! An augmented B+tree in arenas, for everything in `mm` that is ordered by page index or id.
//!
//! | user | key | summary | question |
//! | --- | --- | --- | --- |
//! | the VMAs of an address space | first page | [`Gaps`] | Which VMA contains this page? Where is a gap of n pages? |
//! | the file mappings of an address space, for the reverse map | first page of the file, first page of the mapping | [`MaxEnd`] | Which mappings show one of these pages? |
//! | the page cache of a file | page index | `()` | Which folio has this index? |
//! | files, spaces, and the spaces that map a file | id | `()` | Which object has this id? |
//!
//! Linux uses the maple tree (`lib/maple_tree.c`), the xarray and the interval tree of `i_mmap` for
//! these. All three need ordered keys and some arithmetic over subtrees, and differ only in that
//! arithmetic, the [`SubtreeSummary`].
//!
//! ```text
//!   inners   [ first key | summary | child ] × ≤ 15         Inner, levels 1 … height
//!              │                     └──────────┐
//!   leaves   [ key | summary | item ] × ≤ 15  ⇄  …                Leaf, level 0, linked in order
//! ```
//!
//! # Example
//! ```
//! use pagewright_btree::{BPlusTree, GapDirection, GapQuery, Gaps, TreeItem};
//!
//! /// A mapping of the pages from its key to `end`.
//! struct Mapping {
//!     end: u64,
//! }
//!
//! impl TreeItem for Mapping {
//!     type Key = u64;
//!     type Summary = Gaps;
//!
//!     fn summary(&self, _first: u64) -> Gaps {
//!         Gaps::until(self.end)
//!     }
//! }
//!
//! let mut mappings = BPlusTree::new();
//! mappings.try_reserve(2, || true)?; // The only step that allocates or fails.
//! mappings.insert(16, Mapping { end: 24 });
//! mappings.insert(48, Mapping { end: 64 });
//!
//! assert_eq!(mappings.at(20).map(|(first, _)| first), Some(16));
//! assert!(mappings.at(24).is_none());
//!
//! let direction = GapDirection::TopDown;
//! let query = GapQuery { pages: 8, low: 0, high: 64, align: 1, align_offset: 0, direction };
//! assert_eq!(mappings.find_gap(&query), Some(40));
//! # Ok::<(), pagewright_btree::TreeReserveError>(())
//! ```
//!
//! Key types: [`BPlusTree`], [`TreeItem`] (an item and its summary), [`TreeKey`], [`GapQuery`],
//! [`TreeReserveError`]. Neighbours: below, only `alloc`; above, the modules of `mm` that the table
//! names.
//!
//! Protocol: *validate, reserve, commit*. Only [`BPlusTree::try_reserve`] and its kin allocate.
//! Each asks a callback of its caller for permission first. After it has succeeded for `n`, the
//! next `n` calls of [`BPlusTree::insert`] neither allocate nor fail. Copies of whole trees have
//! exact reservations of their own ([`BPlusTree::try_reserve_copy`],
//! [`BPlusTree::try_reserve_fill`]). Removal never allocates: the nodes go to a free list, and
//! [`BPlusTree::clear`] frees them all.
//!
//! Invariants (the property tests check them after every step):
//! - **INV-TREE-ORDER** Keys of a `btree` tree rise strictly from left to right, and an entry of an
//!   inner node holds exactly the first key below it. So a look-up never has to search a second
//!   leaf.
//! - **INV-TREE-FILL** All leaves are at one depth; every node but the root and the last of its
//!   level has at least `MIN_FILL` entries; an inner root has at least two. So every operation
//!   takes O(log n) steps, and the number of items bounds the number of nodes.
//! - **INV-TREE-SUMMARY** The summary of an entry is the join of the summaries of all items below
//!   it, in order. Otherwise a search would miss a free gap, or a mapper of a page that is about to
//!   be reclaimed.
//! - **INV-TREE-LINKS** The links between leaves visit each leaf once, in key order, in both
//!   directions.
//! - **INV-TREE-RESERVE** After `try_reserve(n)` the next `n` inserts neither allocate nor fail,
//!   whatever is removed in between. Only `try_reserve` allocates. So a memory call that has
//!   reserved cannot fail half-way.
//! - **INV-TREE-RETURN** Each node is either reachable from the root or on the free list, and an
//!   item is dropped when it is removed. Otherwise an address space would grow with its history.
//!
//! Not guaranteed: thread safety (the caller holds the owner's lock); that items are disjoint: the
//! gap search and [`BPlusTree::at`] depend on it, and the caller's rules for VMAs provide it;
//! references to items across a change, because items move.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arena;
mod copy;
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

/// Maximum length of a path: more levels than 2^32 nodes of minimal fill can have.
const MAX_HEIGHT: usize = 16;

/// An ordered collection of items with a summary of each subtree.
///
/// See the [crate's documentation](self).
pub struct BPlusTree<V: TreeItem> {
    leaves: Arena<Leaf<V>>,
    inners: Arena<Inner<V::Key, V::Summary>>,
    /// The topmost node, or [`NodeId::NONE`] in an empty tree, which owns no node.
    root: NodeId,
    /// Levels of inner nodes above the leaves; at 0 the root is a leaf.
    height: usize,
    len: usize,
    /// Inserts that the last reservation still covers.
    reserved: usize,
}

/// One step of a descent: the inner node, and the slot of the entry that was followed.
#[derive(Clone, Copy)]
struct Step {
    node: NodeId,
    slot: usize,
}

/// The steps from the root to a leaf.
struct Path {
    steps: ArrayVec<Step, MAX_HEIGHT>,
    leaf: NodeId,
}

impl<V: TreeItem> BPlusTree<V> {
    /// Creates an empty tree, without allocating.
    pub const fn new() -> Self {
        Self { leaves: Arena::new(), inners: Arena::new(), root: NodeId::NONE, height: 0, len: 0, reserved: 0 }
    }

    /// Returns the number of items.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the tree has no item.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all items and frees all memory, including that of reservations.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the bytes of heap that the tree holds, including free nodes and reservations.
    ///
    /// Memory that items own is not counted.
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
