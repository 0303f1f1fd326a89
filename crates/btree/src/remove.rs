//! Removals, and the merges that keep the tree balanced.
//!
//! Key type: [`ChildChange`], the change of an inner node's children after a removal below.
//!
//! A child with fewer than [`MIN_FILL`] entries takes entries from a neighbour under the same
//! parent, or merges with it; the emptied node goes to the free list (INV-TREE-RETURN). A child
//! without such a neighbour is the last of its level: it may stay small, and is released when it is
//! empty. No removal allocates.

use super::arena::{Arena, NodeId};
use super::item::{SubtreeSummary, TreeItem, TreeKey};
use super::node::{Digest, Inner, MERGE_LIMIT, MIN_FILL, Node};
use super::{BPlusTree, Path};

/// How the children of an inner node have changed after a removal below.
enum ChildChange<K, S> {
    /// The child in `slot` has other entries.
    Updated { slot: usize, digest: Digest<K, S> },
    /// The child in `slot` and the next one have redistributed their entries.
    Redistributed { slot: usize, left: Digest<K, S>, right: Digest<K, S> },
    /// The child in `slot` has all entries of the next one, `emptied`.
    Merged { slot: usize, digest: Digest<K, S>, emptied: NodeId },
    /// The only child is empty.
    Emptied { slot: usize, emptied: NodeId },
}

impl<K, S> ChildChange<K, S> {
    /// Returns the node to release.
    fn emptied(&self) -> Option<NodeId> {
        match self {
            Self::Updated { .. } | Self::Redistributed { .. } => None,
            Self::Merged { emptied, .. } | Self::Emptied { emptied, .. } => Some(*emptied),
        }
    }
}

impl<V: TreeItem> BPlusTree<V> {
    /// Removes the item with key `key` and returns it, without allocating.
    pub fn remove(&mut self, key: V::Key) -> Option<V> {
        let path = self.descend(key)?;
        let leaf = &mut self.leaves[path.leaf];
        let slot = leaf.entries.keys.position(key).ok()?;
        let item = leaf.entries.remove(slot);
        self.len -= 1;
        self.rebalance(&path);
        Some(item)
    }

    /// Removes the item with the least key.
    pub fn pop_first(&mut self) -> Option<(V::Key, V)> {
        let (key, _) = self.first()?;
        self.remove(key).map(|item| (key, item))
    }

    /// Restores INV-TREE-FILL and INV-TREE-SUMMARY along `path`, whose leaf has lost an entry.
    fn rebalance(&mut self, path: &Path) {
        for (above_leaf, step) in path.steps.iter().rev().enumerate() {
            let siblings = Siblings::of(&self.inners[step.node], step.slot);
            let change = if above_leaf == 0 {
                siblings.rebalance(&mut self.leaves)
            } else {
                siblings.rebalance(&mut self.inners)
            };
            if let Some(emptied) = change.emptied() {
                if above_leaf == 0 { self.drop_leaf(emptied) } else { self.inners.release(emptied) }
            }
            if !self.inners[step.node].apply(change) {
                return;
            }
        }
        self.lower_root();
    }

    /// Removes inner roots with one child, and a root leaf that is empty.
    fn lower_root(&mut self) {
        while self.height > 0 && self.inners[self.root].len() == 1 {
            let old = self.root;
            self.root = self.inners[old].contents[0];
            self.inners[old].remove(0);
            self.inners.release(old);
            self.height -= 1;
        }
        if self.height == 0 && self.leaves[self.root].len() == 0 {
            self.leaves.release(self.root);
            self.root = NodeId::NONE;
        }
    }

    /// Unlinks an empty leaf from its neighbours and releases it.
    fn drop_leaf(&mut self, id: NodeId) {
        let leaf = &mut self.leaves[id];
        let prev = core::mem::replace(&mut leaf.prev, NodeId::NONE);
        let next = core::mem::replace(&mut leaf.next, NodeId::NONE);
        if prev != NodeId::NONE {
            self.leaves[prev].next = next;
        }
        if next != NodeId::NONE {
            self.leaves[next].prev = prev;
        }
        self.leaves.release(id);
    }
}

/// A child, and the neighbour with which it can share entries.
enum Siblings {
    Alone { slot: usize, child: NodeId },
    Pair { slot: usize, child: NodeId, left: usize, nodes: [NodeId; 2] },
}

impl Siblings {
    /// Returns the child in `slot` of `parent` with a neighbour, the left one if it has one.
    fn of<K: TreeKey, S: SubtreeSummary>(parent: &Inner<K, S>, slot: usize) -> Self {
        let child = parent.contents[slot];
        let left = if slot > 0 { slot - 1 } else { slot };
        match (parent.contents.get(left), parent.contents.get(left + 1)) {
            (Some(&a), Some(&b)) => Self::Pair { slot, child, left, nodes: [a, b] },
            (Some(_) | None, None) | (None, Some(_)) => Self::Alone { slot, child },
        }
    }

    /// Redistributes or merges the entries if the child has fewer than [`MIN_FILL`].
    fn rebalance<T: Node>(self, nodes: &mut Arena<T>) -> ChildChange<T::Key, T::Summary> {
        match self {
            Self::Alone { slot, child } if nodes[child].len() == 0 => ChildChange::Emptied { slot, emptied: child },
            Self::Alone { slot, child } => ChildChange::Updated { slot, digest: nodes[child].digest() },
            Self::Pair { slot, child, .. } if nodes[child].len() >= MIN_FILL => {
                ChildChange::Updated { slot, digest: nodes[child].digest() }
            }
            Self::Pair { left: slot, nodes: [left, right], .. } => {
                let total = nodes[left].len() + nodes[right].len();
                if total <= MERGE_LIMIT {
                    nodes.balance(left, right, total);
                    ChildChange::Merged { slot, digest: nodes[left].digest(), emptied: right }
                } else {
                    nodes.balance(left, right, total / 2);
                    ChildChange::Redistributed { slot, left: nodes[left].digest(), right: nodes[right].digest() }
                }
            }
        }
    }
}

impl<K: TreeKey, S: SubtreeSummary> Inner<K, S> {
    /// Applies the change of a child.
    ///
    /// Returns whether the digest or the length of this node may have changed.
    fn apply(&mut self, change: ChildChange<K, S>) -> bool {
        match change {
            ChildChange::Updated { slot, digest } => self.set_digest(slot, digest),
            ChildChange::Redistributed { slot, left, right } => {
                self.set_digest(slot, left);
                self.set_digest(slot + 1, right);
                true
            }
            ChildChange::Merged { slot, digest, .. } => {
                self.remove(slot + 1);
                self.set_digest(slot, digest);
                true
            }
            ChildChange::Emptied { slot, .. } => {
                self.remove(slot);
                true
            }
        }
    }
}
