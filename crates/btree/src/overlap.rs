//! Searches for the items that overlap a range.
//!
//! Key type: [`Overlapping`]. As in Linux's interval tree
//! (`include/linux/interval_tree_generic.h`), the search skips a subtree that ends before the range
//! or begins after it. It takes O(log n + k) steps for k results if items are about equally long.
//! One long item before many short ones adds little, because the search enters only the subtrees
//! that contain it.
//!
//! Not guaranteed: whether an empty item (its end at most its start) is found.

use super::arena::NodeId;
use super::item::{EndSummary, TreeItem, TreeKey};
use super::{BPlusTree, MAX_HEIGHT, Step};
use arrayvec::ArrayVec;

impl<V: TreeItem<Summary: EndSummary>> BPlusTree<V> {
    /// Returns the items that contain any of the pages `from..to`, in key order.
    ///
    /// Linux: `interval_tree_iter_first` and `interval_tree_iter_next`.
    pub fn overlapping(&self, from: u64, to: u64) -> Overlapping<'_, V> {
        let mut steps = ArrayVec::new();
        if self.root != NodeId::NONE && from < to {
            steps.push(Step { node: self.root, slot: 0 });
        }
        Overlapping { tree: self, from, to, steps }
    }
}

/// The iterator of [`BPlusTree::overlapping`].
pub struct Overlapping<'a, V: TreeItem> {
    tree: &'a BPlusTree<V>,
    from: u64,
    to: u64,
    /// The next entry of each node on the path; empty at the end.
    steps: ArrayVec<Step, { MAX_HEIGHT + 1 }>,
}

impl<'a, V: TreeItem<Summary: EndSummary>> Iterator for Overlapping<'a, V> {
    type Item = (V::Key, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let depth = self.steps.len();
            let step = self.steps.last_mut()?;
            let slot = step.slot;
            step.slot += 1;
            if depth > self.tree.height {
                let entries = &self.tree.leaves[step.node].entries;
                match entries.digest_at(slot) {
                    Some(entry) if entry.first.start() >= self.to => self.steps.clear(),
                    Some(entry) if entry.summary.end() > self.from => return entries.get(slot),
                    Some(_) => {}
                    None => drop(self.steps.pop()),
                }
            } else {
                let inner = &self.tree.inners[step.node];
                match inner.digest_at(slot) {
                    Some(entry) if entry.first.start() >= self.to => self.steps.clear(),
                    Some(entry) if entry.summary.end() > self.from => {
                        self.steps.push(Step { node: inner.contents[slot], slot: 0 });
                    }
                    Some(_) => {}
                    None => drop(self.steps.pop()),
                }
            }
        }
    }
}
