//! Look-ups by key or by page.
//!
//! Neighbours: `keys` finds a key in a node; `insert`, `remove` and `update` begin with
//! [`BPlusTree::descend`].
//!
//! An entry holds exactly the first key below it (INV-TREE-ORDER). So the greatest key at most `k`
//! is always in the leaf to which `k` leads, and only the step to the next item may cross to the
//! neighbouring leaf.
//!
//! Not guaranteed: that [`BPlusTree::at`] and [`BPlusTree::at_or_after`] are right if items
//! overlap.

use super::arena::NodeId;
use super::item::{EndSummary, Gaps, TreeItem, TreeKey};
use super::node::{Digest, Leaf, Node};
use super::{BPlusTree, Path, Step};
use arrayvec::ArrayVec;

impl<V: TreeItem> BPlusTree<V> {
    /// Returns the item with key `key`.
    #[inline]
    pub fn get(&self, key: V::Key) -> Option<&V> {
        let entries = &self.leaf_for(key)?.entries;
        entries.contents.get(entries.keys.position(key).ok()?)
    }

    /// Returns whether an item has key `key`.
    #[inline]
    pub fn contains_key(&self, key: V::Key) -> bool {
        self.get(key).is_some()
    }

    /// Returns the item with the greatest key that is at most `key`.
    #[inline]
    pub fn floor(&self, key: V::Key) -> Option<(V::Key, &V)> {
        let entries = &self.leaf_for(key)?.entries;
        entries.get(entries.keys.count_le(key).checked_sub(1)?)
    }

    /// Returns the item with the least key that is at least `key`.
    #[inline]
    pub fn ceiling(&self, key: V::Key) -> Option<(V::Key, &V)> {
        let leaf = self.leaf_for(key)?;
        self.entry_or_next(leaf, leaf.entries.keys.count_lt(key))
    }

    /// Returns the item with the least key above `key`; no item need have `key` itself.
    #[inline]
    pub fn next(&self, key: V::Key) -> Option<(V::Key, &V)> {
        let leaf = self.leaf_for(key)?;
        self.entry_or_next(leaf, leaf.entries.keys.count_le(key))
    }

    /// Returns the item with the greatest key below `key`; no item need have `key` itself.
    #[inline]
    pub fn prev(&self, key: V::Key) -> Option<(V::Key, &V)> {
        let leaf = self.leaf_for(key)?;
        match leaf.entries.keys.count_lt(key).checked_sub(1) {
            Some(slot) => leaf.entries.get(slot),
            None if leaf.prev == NodeId::NONE => None,
            None => self.leaves[leaf.prev].entries.last(),
        }
    }

    /// Returns the item with the least key.
    pub fn first(&self) -> Option<(V::Key, &V)> {
        self.edge_leaf(|_| 0)?.entries.get(0)
    }

    /// Returns the item with the greatest key.
    pub fn last(&self) -> Option<(V::Key, &V)> {
        self.edge_leaf(|len| len - 1)?.entries.last()
    }

    /// Returns the summary of all items, or `None` in an empty tree.
    pub fn summary(&self) -> Option<V::Summary> {
        self.digest().map(|digest| digest.summary)
    }

    /// Returns the first key and the summary of all items, or `None` in an empty tree.
    pub(super) fn digest(&self) -> Option<Digest<V::Key, V::Summary>> {
        match (self.root == NodeId::NONE, self.height) {
            (true, _) => None,
            (false, 0) => Some(self.leaves[self.root].digest()),
            (false, _) => Some(self.inners[self.root].digest()),
        }
    }

    /// Returns the entry in `slot` of `leaf`, or if that is past the last, the next leaf's first.
    fn entry_or_next<'a>(&'a self, leaf: &'a Leaf<V>, slot: usize) -> Option<(V::Key, &'a V)> {
        match leaf.entries.get(slot) {
            Some(entry) => Some(entry),
            None if leaf.next == NodeId::NONE => None,
            None => self.leaves[leaf.next].entries.get(0),
        }
    }

    /// Returns the only leaf that can have `key`, or `None` in an empty tree.
    #[inline]
    pub(super) fn leaf_id_for(&self, key: V::Key) -> Option<NodeId> {
        if self.root == NodeId::NONE {
            return None;
        }
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            node = inner.contents[inner.slot_for(key)];
        }
        Some(node)
    }

    #[inline]
    fn leaf_for(&self, key: V::Key) -> Option<&Leaf<V>> {
        self.leaf_id_for(key).map(|leaf| &self.leaves[leaf])
    }

    /// Does the same as [`Self::leaf_id_for`], and records the path.
    pub(super) fn descend(&self, key: V::Key) -> Option<Path> {
        if self.root == NodeId::NONE {
            return None;
        }
        let mut steps = ArrayVec::new();
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            let slot = inner.slot_for(key);
            steps.push(Step { node, slot });
            node = inner.contents[slot];
        }
        Some(Path { steps, leaf: node })
    }

    /// Returns the leaf that is reached by slot `choose(len)` of each inner node of `len` entries.
    fn edge_leaf(&self, choose: impl Fn(usize) -> usize) -> Option<&Leaf<V>> {
        if self.root == NodeId::NONE {
            return None;
        }
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            node = inner.contents[choose(inner.len())];
        }
        Some(&self.leaves[node])
    }
}

impl<V: TreeItem<Summary = Gaps>> BPlusTree<V> {
    /// Returns the item that contains page `page`.
    ///
    /// Linux: `vma_lookup`.
    #[inline]
    pub fn at(&self, page: u64) -> Option<(V::Key, &V)> {
        let key = V::Key::last_at(page);
        let entries = &self.leaf_for(key)?.entries;
        let slot = entries.keys.count_le(key).checked_sub(1)?;
        if page < entries.summaries.get(slot)?.end() { entries.get(slot) } else { None }
    }

    /// Returns the item that contains page `page`, or else the first one above it.
    ///
    /// Linux: `find_vma`.
    #[inline]
    pub fn at_or_after(&self, page: u64) -> Option<(V::Key, &V)> {
        let (leaf, slot) = self.slot_at_or_after(page)?;
        self.entry_or_next(leaf, slot)
    }

    /// Returns the leaf that leads to the item of [`Self::at_or_after`], and its slot there.
    ///
    /// The slot is past the last one if the item is the first of the next leaf.
    #[inline]
    pub(super) fn slot_at_or_after(&self, page: u64) -> Option<(&Leaf<V>, usize)> {
        let key = V::Key::last_at(page);
        let leaf = self.leaf_for(key)?;
        let after = leaf.entries.keys.count_le(key);
        let contains = |slot: &usize| leaf.entries.summaries.get(*slot).is_some_and(|gaps| page < gaps.end());
        Some((leaf, after.checked_sub(1).filter(contains).unwrap_or(after)))
    }
}
