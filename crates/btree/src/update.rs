//! Changes of an item in place, and their propagation to the summaries.
//!
//! Neighbours: `insert` uses [`BPlusTree::refresh`] too.
//!
//! Not guaranteed: that a change leaves items disjoint; the caller must ensure that.

use super::item::TreeItem;
use super::node::Node;
use super::{BPlusTree, Path};

impl<V: TreeItem> BPlusTree<V> {
    /// Changes the item with key `key` and updates the summaries (INV-TREE-SUMMARY).
    ///
    /// Returns the result of `change`, or `None` if there is no such item. Does not allocate.
    pub fn update<R>(&mut self, key: V::Key, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let path = self.descend(key)?;
        let leaf = &mut self.leaves[path.leaf];
        let slot = leaf.entries.keys.position(key).ok()?;
        let result = leaf.change(slot, key, change);
        self.refresh(&path);
        Some(result)
    }

    /// Changes the key of an item from `old` to `new`, and changes the item.
    ///
    /// A VMA that loses or gains pages at its front is such a change. Returns the result of
    /// `change`, or `None` if there is no such item. Does not allocate.
    ///
    /// # Panics
    /// If `new` is not between the neighbours of `old`. The tree has not changed and `change` was
    /// not called.
    pub fn rekey<R>(&mut self, old: V::Key, new: V::Key, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let path = self.descend(old)?;
        let slot = self.leaves[path.leaf].entries.keys.position(old).ok()?;
        let above_prev = self.prev(old).is_none_or(|(prev, _)| prev < new);
        let below_next = self.next(old).is_none_or(|(next, _)| new < next);
        assert!(above_prev && below_next, "the new key passes a neighbour");

        let result = self.leaves[path.leaf].change(slot, new, change);
        self.refresh(&path);
        Some(result)
    }

    /// Updates the digests in the parents along `path`, up to the first that does not change.
    pub(super) fn refresh(&mut self, path: &Path) {
        let mut below = self.leaves[path.leaf].digest();
        for step in path.steps.iter().rev() {
            let parent = &mut self.inners[step.node];
            if !parent.set_digest(step.slot, below) {
                return;
            }
            below = parent.digest();
        }
    }
}
