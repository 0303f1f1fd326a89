//! Iteration over the items in key order, along the leaf links.
//!
//! Key type: [`TreeIter`]. A step within a leaf increments an index; a step past its last item
//! follows a link (INV-TREE-LINKS).
//!
//! The tree cannot change while an iterator borrows it. A loop that changes the tree uses
//! [`BPlusTree::next`] instead.

use super::BPlusTree;
use super::arena::NodeId;
use super::item::{Gaps, TreeItem};
use super::node::Leaf;

impl<V: TreeItem> BPlusTree<V> {
    /// Returns all items in key order.
    pub fn iter(&self) -> TreeIter<'_, V> {
        let first = self.first().map(|(key, _)| key);
        first.map_or(TreeIter { tree: self, leaf: None, slot: 0 }, |key| self.iter_from(key))
    }

    /// Returns the items whose key is at least `key`, in key order.
    pub fn iter_from(&self, key: V::Key) -> TreeIter<'_, V> {
        let leaf = self.leaf_id_for(key).map(|id| &self.leaves[id]);
        TreeIter { tree: self, leaf, slot: leaf.map_or(0, |leaf| leaf.entries.keys.count_lt(key)) }
    }
}

impl<V: TreeItem<Summary = Gaps>> BPlusTree<V> {
    /// Returns the items from that of [`BPlusTree::at_or_after`] on, in key order.
    pub fn iter_at_or_after(&self, page: u64) -> TreeIter<'_, V> {
        match self.slot_at_or_after(page) {
            Some((leaf, slot)) => TreeIter { tree: self, leaf: Some(leaf), slot },
            None => TreeIter { tree: self, leaf: None, slot: 0 },
        }
    }
}

/// The iterator of [`BPlusTree::iter`] and its kin.
pub struct TreeIter<'a, V: TreeItem> {
    tree: &'a BPlusTree<V>,
    leaf: Option<&'a Leaf<V>>,
    slot: usize,
}

// Not derived: the items need not be cloned.
impl<V: TreeItem> Clone for TreeIter<'_, V> {
    fn clone(&self) -> Self {
        Self { tree: self.tree, leaf: self.leaf, slot: self.slot }
    }
}

impl<'a, V: TreeItem> Iterator for TreeIter<'a, V> {
    type Item = (V::Key, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let leaf = self.leaf?;
            if let Some(entry) = leaf.entries.get(self.slot) {
                self.slot += 1;
                return Some(entry);
            }
            self.leaf = (leaf.next != NodeId::NONE).then(|| &self.tree.leaves[leaf.next]);
            self.slot = 0;
        }
    }
}

impl<'a, V: TreeItem> IntoIterator for &'a BPlusTree<V> {
    type Item = (V::Key, &'a V);
    type IntoIter = TreeIter<'a, V>;

    fn into_iter(self) -> TreeIter<'a, V> {
        self.iter()
    }
}
