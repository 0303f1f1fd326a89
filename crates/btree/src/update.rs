//! Changing an item where it stands, and carrying the change up into the summaries.
//!
//! Neighbours: `insert` and `remove` use [`BPlusTree::refresh`] too.
//!
//! Not guaranteed: nothing stops a change that makes items overlap; that is for the caller to rule
//! out.

use super::item::TreeItem;
use super::node::Node;
use super::{BPlusTree, Path};

impl<V: TreeItem> BPlusTree<V> {
    /// Changes the item with key `key` and brings the summaries up to date (INV-TREE-SUMMARY).
    ///
    /// Returns what `change` returns, or `None` if there is no such item. Never allocates.
    pub fn update<R>(&mut self, key: V::Key, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let path = self.descend(key)?;
        let leaf = &mut self.leaves[path.leaf];
        let slot = leaf.entries.keys.position(key).ok()?;
        let result = leaf.change(slot, key, change);
        self.refresh(&path);
        Some(result)
    }

    /// Gives the item with key `old` the key `new`, which must not carry it past a neighbour, and
    /// changes it: a VMA that loses or gains pages at its front. Returns what `change` returns, or
    /// `None` if there is no such item. Never allocates.
    ///
    /// # Panics
    /// When `new` is not between the neighbours of `old`: the tree is then unchanged and `change`
    /// was not called.
    pub fn rekey<R>(&mut self, old: V::Key, new: V::Key, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let path = self.descend(old)?;
        let slot = self.leaves[path.leaf].entries.keys.position(old).ok()?;
        let above_prev = self.prev(old).is_none_or(|(prev, _)| prev < new);
        let below_next = self.next(old).is_none_or(|(next, _)| new < next);
        assert!(above_prev && below_next, "a new key may not pass a neighbour");

        let result = self.leaves[path.leaf].change(slot, new, change);
        self.refresh(&path);
        Some(result)
    }

    /// Renews what the parents along `path` keep of its leaf, up to the first that keeps the same.
    pub(super) fn refresh(&mut self, path: &Path) {
        let mut below = self.leaves[path.leaf].digest();
        for step in path.steps.iter().rev() {
            let parent = &mut self.inners[step.node];
            if !parent.renew(step.slot, below) {
                return;
            }
            below = parent.digest();
        }
    }
}
