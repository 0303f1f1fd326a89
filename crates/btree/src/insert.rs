//! Inserts, and the splits that they cause.
//!
//! Neighbours: `reserve` has reserved the nodes; `search` finds the slot.
//!
//! A full node is split in halves, with one exception: an item appended after all others leaves the
//! last leaf full and starts a new one. So a fork that copies VMAs in order, and a file that is
//! read from front to back, produce full nodes. This is why INV-TREE-FILL excepts the last node of
//! each level.
//!
//! Not guaranteed: an insert that no reservation covers.

use super::arena::{Arena, NodeId};
use super::item::TreeItem;
use super::node::{CAPACITY, Digest, Node};
use super::{BPlusTree, Path};

/// A node that a split has created and that is not yet in the parent of its left neighbour.
struct NewNode<K, S> {
    node: NodeId,
    digest: Digest<K, S>,
}

impl<V: TreeItem> BPlusTree<V> {
    /// Inserts `item` at `key`, and returns the item that it replaces, if any.
    ///
    /// # Panics
    /// If no reservation covers it (see [`Self::try_reserve`]): in debug builds always, in release
    /// builds only if it needs a node and none is spare.
    pub fn insert(&mut self, key: V::Key, item: V) -> Option<V> {
        debug_assert!(self.reserved > 0, "INV-TREE-RESERVE: no reservation covers this insert");
        self.reserved = self.reserved.saturating_sub(1);
        let Some(path) = self.descend(key) else {
            self.root = self.leaves.take();
            self.leaves[self.root].insert(0, key, item);
            self.len = 1;
            return None;
        };
        let leaf = &mut self.leaves[path.leaf];
        match leaf.entries.keys.position(key) {
            Ok(slot) => {
                let old = leaf.change(slot, key, |old| core::mem::replace(old, item));
                self.refresh(&path);
                return Some(old);
            }
            Err(slot) if leaf.len() < CAPACITY => {
                leaf.insert(slot, key, item);
                self.refresh(&path);
            }
            Err(slot) => self.split_leaf(&path, slot, key, item),
        }
        self.len += 1;
        None
    }

    /// Inserts into the full leaf at the end of `path`.
    fn split_leaf(&mut self, path: &Path, slot: usize, key: V::Key, item: V) {
        let left = path.leaf;
        let next = self.leaves[left].next;
        let append = slot == CAPACITY && next == NodeId::NONE;
        let keep = if append { CAPACITY } else { CAPACITY / 2 };
        let right = split(&mut self.leaves, left, keep);

        self.leaves[left].next = right;
        self.leaves[right].prev = left;
        self.leaves[right].next = next;
        if next != NodeId::NONE {
            self.leaves[next].prev = right;
        }
        if slot < keep {
            self.leaves[left].insert(slot, key, item);
        } else {
            self.leaves[right].insert(slot - keep, key, item);
        }
        let new = NewNode { node: right, digest: self.leaves[right].digest() };
        let left = self.leaves[left].digest();
        self.attach(path, append, left, new);
    }

    /// Adds `new` to the right of the child at the end of `path`, and splits full parents.
    ///
    /// `left` is the present digest of that child.
    fn attach(
        &mut self,
        path: &Path,
        append: bool,
        mut left: Digest<V::Key, V::Summary>,
        new: NewNode<V::Key, V::Summary>,
    ) {
        let mut new = Some(new);
        for step in path.steps.iter().rev() {
            let parent = &mut self.inners[step.node];
            let changed = parent.set_digest(step.slot, left);
            if let Some(NewNode { node, digest: entry }) = new.take() {
                let slot = step.slot + 1;
                if parent.len() < CAPACITY {
                    parent.insert(slot, entry, node);
                } else {
                    let keep = if append { CAPACITY } else { CAPACITY / 2 };
                    let right = split(&mut self.inners, step.node, keep);
                    if slot < keep {
                        self.inners[step.node].insert(slot, entry, node);
                    } else {
                        self.inners[right].insert(slot - keep, entry, node);
                    }
                    new = Some(NewNode { node: right, digest: self.inners[right].digest() });
                }
            } else if !changed {
                return;
            }
            left = self.inners[step.node].digest();
        }
        if let Some(new) = new {
            let root = self.inners.take();
            self.inners[root].insert(0, left, self.root);
            self.inners[root].insert(1, new.digest, new.node);
            self.root = root;
            self.height += 1;
        }
    }
}

/// Moves all but the first `keep` entries of `left` to a new node, its right neighbour.
fn split<T: Node>(nodes: &mut Arena<T>, left: NodeId, keep: usize) -> NodeId {
    let right = nodes.take();
    nodes.balance(left, right, keep);
    right
}
