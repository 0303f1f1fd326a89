//! Whole trees from other trees or from sorted items, without a search for any of them.
//!
//! Fork copies the VMAs of a process. [`BPlusTree::copy_from`] copies node by node: keys and
//! summaries as they are, and each item by a function of the caller. [`BPlusTree::fill`] packs
//! items that come in order, for a copy that leaves some of them out.
//!
//! Neighbours: `reserve` has the reservations for inserts; a reservation for one of the functions
//! here is exact.
//!
//! Not guaranteed: that a tree is empty after the caller's function has panicked. Its nodes are
//! then in use, and are freed with the tree.

use super::arena::{Arena, NodeId};
use super::item::TreeItem;
use super::node::{CAPACITY, Digest, Node};
use super::reserve::Demand;
use super::{BPlusTree, MAX_HEIGHT, TreeReserveError};
use arrayvec::ArrayVec;

/// The nodes that [`BPlusTree::fill`] adds to, from the last leaf up to the topmost node.
type Spine = ArrayVec<NodeId, MAX_HEIGHT>;

impl<V: TreeItem> BPlusTree<V> {
    /// Makes [`Self::copy_from`] with `from` infallible, until either tree changes.
    ///
    /// Calls `permit` as [`Self::try_reserve`] does.
    ///
    /// # Errors
    /// [`TreeReserveError`]; the tree has not changed.
    pub fn try_reserve_copy(&mut self, from: &Self, permit: impl FnOnce() -> bool) -> Result<(), TreeReserveError> {
        let demand = Demand { leaves: from.leaves.used(), inners: from.inners.used() };
        self.reserve_nodes(demand, from.len, permit)
    }

    /// Makes [`Self::fill`] with `items` items infallible, until the tree changes.
    ///
    /// Calls `permit` as [`Self::try_reserve`] does.
    ///
    /// # Errors
    /// [`TreeReserveError`]; the tree has not changed.
    pub fn try_reserve_fill(&mut self, items: usize, permit: impl FnOnce() -> bool) -> Result<(), TreeReserveError> {
        let leaves = items.div_ceil(CAPACITY);
        let above = core::iter::successors(Some(leaves), |nodes| (*nodes > 1).then(|| nodes.div_ceil(CAPACITY)));
        self.reserve_nodes(Demand { leaves, inners: above.skip(1).sum() }, items, permit)
    }

    /// Copies the items of `from` into this empty tree, each as `copy` returns it.
    ///
    /// The copy of an item has the same summary. Earlier reservations for inserts end.
    ///
    /// # Panics
    /// If no reservation covers it (see [`Self::try_reserve_copy`]). In debug builds when this tree
    /// is not empty, or when a copy has another summary.
    pub fn copy_from(&mut self, from: &Self, mut copy: impl FnMut(V::Key, &V) -> V) {
        debug_assert!(self.is_empty(), "a copy into a tree of {} items", self.len);
        if from.root == NodeId::NONE {
            return;
        }
        let mut last = NodeId::NONE;
        self.root = self.copy_node(from, from.root, from.height, &mut last, &mut copy);
        (self.height, self.len, self.reserved) = (from.height, from.len, 0);
    }

    /// Copies a node and all below it; `last` is the leaf to the left of them, then their last.
    fn copy_node(
        &mut self,
        from: &Self,
        node: NodeId,
        level: usize,
        last: &mut NodeId,
        copy: &mut impl FnMut(V::Key, &V) -> V,
    ) -> NodeId {
        let Some(below) = level.checked_sub(1) else { return self.copy_leaf(from, node, last, copy) };
        let old = &from.inners[node];
        let children = old.contents.iter().map(|child| self.copy_node(from, *child, below, last, copy)).collect();
        let id = self.inners.take();
        let new = &mut self.inners[id];
        (new.keys, new.summaries, new.contents) = (old.keys.clone(), old.summaries.clone(), children);
        id
    }

    fn copy_leaf(
        &mut self,
        from: &Self,
        leaf: NodeId,
        last: &mut NodeId,
        copy: &mut impl FnMut(V::Key, &V) -> V,
    ) -> NodeId {
        let id = self.leaves.take();
        if *last != NodeId::NONE {
            self.leaves[*last].next = id;
        }
        let (old, new) = (&from.leaves[leaf].entries, &mut self.leaves[id]);
        (new.prev, new.next) = (core::mem::replace(last, id), NodeId::NONE);
        let new = &mut new.entries;
        (new.keys, new.summaries) = (old.keys.clone(), old.summaries.clone());
        new.contents.extend(old.keys.as_slice().iter().zip(&old.contents).map(|(key, item)| copy(*key, item)));
        debug_assert!(
            new.contents.iter().zip(old.keys.as_slice()).zip(&old.summaries).all(|((i, k), s)| i.summary(*k) == *s),
            "INV-TREE-SUMMARY: the copy of an item has another summary"
        );
        id
    }

    /// Adds `items`, whose keys rise strictly, to this empty tree.
    ///
    /// All nodes but the last of each level are full. Earlier reservations for inserts end.
    ///
    /// # Panics
    /// If no reservation covers it (see [`Self::try_reserve_fill`]). In debug builds when the tree
    /// is not empty, or when a key does not rise.
    pub fn fill(&mut self, items: impl Iterator<Item = (V::Key, V)>) {
        debug_assert!(self.is_empty(), "{} items in a tree that is filled", self.len);
        let mut spine = Spine::new();
        for (key, item) in items {
            let leaf = self.open_leaf(&mut spine);
            let leaf = &mut self.leaves[leaf];
            debug_assert!(
                leaf.entries.last().is_none_or(|(last, _)| last < key),
                "INV-TREE-ORDER: a key does not rise"
            );
            leaf.insert(leaf.len(), key, item);
            self.len += 1;
        }
        // The nodes that are still open, the last of each level, join the level above, which may
        // begin one more.
        let mut level = 1;
        while let Some(child) = spine.get(level - 1).copied().filter(|_| level < spine.len()) {
            self.append_child(&mut spine, level, child);
            level += 1;
        }
        self.reserved = 0;
        (self.root, self.height) = (spine.last().copied().unwrap_or(NodeId::NONE), spine.len().saturating_sub(1));
    }

    /// Returns the last leaf, or a new one if it is full.
    fn open_leaf(&mut self, spine: &mut Spine) -> NodeId {
        let last = spine.first().copied();
        if let Some(last) = last.filter(|last| self.leaves[*last].len() < CAPACITY) {
            return last;
        }
        let new = self.leaves.take();
        (self.leaves[new].prev, self.leaves[new].next) = (last.unwrap_or(NodeId::NONE), NodeId::NONE);
        match last {
            None => spine.push(new),
            Some(full) => {
                self.leaves[full].next = new;
                self.append_child(spine, 1, full);
                spine[0] = new;
            }
        }
        new
    }

    /// Adds `child`, which gets no more entries, to the last node of `level`.
    fn append_child(&mut self, spine: &mut Spine, level: usize, child: NodeId) {
        let digest = if level == 1 { self.leaves[child].digest() } else { self.inners[child].digest() };
        if level == spine.len() {
            spine.push(self.inners.take());
        } else if self.inners[spine[level]].len() == CAPACITY {
            self.append_child(spine, level + 1, spine[level]);
            spine[level] = self.inners.take();
        }
        append(&mut self.inners, spine[level], digest, child);
    }
}

/// Adds an entry at the end of a node.
fn append<K: super::TreeKey, S: super::SubtreeSummary>(
    inners: &mut Arena<super::Inner<K, S>>,
    node: NodeId,
    digest: Digest<K, S>,
    child: NodeId,
) {
    let slot = inners[node].len();
    inners[node].insert(slot, digest, child);
}
