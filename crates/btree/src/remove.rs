//! Removing, and the merging that keeps the tree balanced.
//!
//! Key type: [`Mended`], what became of a child after an entry left it.
//!
//! A child that falls below [`MIN_FILL`] takes entries from a neighbour under the same parent, or
//! the two become one; the node that this empties goes to the free list (INV-TREE-RETURN). Nothing
//! here allocates. A child without such a neighbour is the last of its level, may stay small, and
//! goes when it is empty.

use super::arena::{Arena, NodeId};
use super::item::{SubtreeSummary, TreeItem, TreeKey};
use super::node::{Digest, Inner, MERGE_LIMIT, MIN_FILL, Node};
use super::{BPlusTree, Path};

/// What became of a child (or of two) of an inner node.
enum Mended<K, S> {
    /// The child in `slot` has changed.
    Kept { slot: usize, digest: Digest<K, S> },
    /// The children in `slot` and the next have shared their entries out.
    Evened { slot: usize, left: Digest<K, S>, right: Digest<K, S> },
    /// The child in `slot` has taken in the next, which was `emptied`.
    Merged { slot: usize, digest: Digest<K, S>, emptied: NodeId },
    /// The only child is empty.
    Emptied { slot: usize, emptied: NodeId },
}

impl<K, S> Mended<K, S> {
    /// The node that is to leave the tree.
    fn emptied(&self) -> Option<NodeId> {
        match self {
            Self::Kept { .. } | Self::Evened { .. } => None,
            Self::Merged { emptied, .. } | Self::Emptied { emptied, .. } => Some(*emptied),
        }
    }
}

impl<V: TreeItem> BPlusTree<V> {
    /// Removes the item with key `key` and returns it.
    ///
    /// Never allocates.
    pub fn remove(&mut self, key: V::Key) -> Option<V> {
        let path = self.descend(key)?;
        let leaf = &mut self.leaves[path.leaf];
        let slot = leaf.entries.keys.position(key).ok()?;
        let item = leaf.entries.remove(slot);
        self.len -= 1;
        self.mend(&path);
        Some(item)
    }

    /// Removes the item with the least key.
    pub fn pop_first(&mut self) -> Option<(V::Key, V)> {
        let (key, _) = self.first()?;
        self.remove(key).map(|item| (key, item))
    }

    /// Restores INV-TREE-FILL and INV-TREE-SUMMARY along `path`, whose leaf has lost an entry.
    fn mend(&mut self, path: &Path) {
        for (above_leaf, step) in path.steps.iter().rev().enumerate() {
            let siblings = Siblings::of(&self.inners[step.node], step.slot);
            let mended =
                if above_leaf == 0 { siblings.mend(&mut self.leaves) } else { siblings.mend(&mut self.inners) };
            if let Some(emptied) = mended.emptied() {
                if above_leaf == 0 { self.drop_leaf(emptied) } else { self.inners.release(emptied) }
            }
            if !self.inners[step.node].accept(mended) {
                return;
            }
        }
        self.lower_root();
    }

    /// Removes root nodes that are no use any more.
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

    /// Takes an empty leaf out of the chain and releases it.
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

/// A child and the neighbour with which it can share.
enum Siblings {
    Alone { slot: usize, child: NodeId },
    Pair { slot: usize, child: NodeId, left: usize, nodes: [NodeId; 2] },
}

impl Siblings {
    /// The child in `slot` of `parent`, with the neighbour to its left if it has one, else with the
    /// one to its right.
    fn of<K: TreeKey, S: SubtreeSummary>(parent: &Inner<K, S>, slot: usize) -> Self {
        let child = parent.contents[slot];
        let left = if slot > 0 { slot - 1 } else { slot };
        match (parent.contents.get(left), parent.contents.get(left + 1)) {
            (Some(&a), Some(&b)) => Self::Pair { slot, child, left, nodes: [a, b] },
            (Some(_) | None, None) | (None, Some(_)) => Self::Alone { slot, child },
        }
    }

    /// Shares or merges if the child, one of `nodes`, has become too small.
    fn mend<T: Node>(self, nodes: &mut Arena<T>) -> Mended<T::Key, T::Summary> {
        match self {
            Self::Alone { slot, child } if nodes[child].len() == 0 => Mended::Emptied { slot, emptied: child },
            Self::Alone { slot, child } => Mended::Kept { slot, digest: nodes[child].digest() },
            Self::Pair { slot, child, .. } if nodes[child].len() >= MIN_FILL => {
                Mended::Kept { slot, digest: nodes[child].digest() }
            }
            Self::Pair { left: slot, nodes: [left, right], .. } => {
                let total = nodes[left].len() + nodes[right].len();
                if total <= MERGE_LIMIT {
                    nodes.balance(left, right, total);
                    Mended::Merged { slot, digest: nodes[left].digest(), emptied: right }
                } else {
                    nodes.balance(left, right, total / 2);
                    Mended::Evened { slot, left: nodes[left].digest(), right: nodes[right].digest() }
                }
            }
        }
    }
}

impl<K: TreeKey, S: SubtreeSummary> Inner<K, S> {
    /// Enters what became of a child; returns whether anything changed that the parent of this node
    /// keeps or decides on.
    fn accept(&mut self, mended: Mended<K, S>) -> bool {
        match mended {
            Mended::Kept { slot, digest } => self.renew(slot, digest),
            Mended::Evened { slot, left, right } => {
                self.renew(slot, left);
                self.renew(slot + 1, right);
                true
            }
            Mended::Merged { slot, digest, .. } => {
                self.remove(slot + 1);
                self.renew(slot, digest);
                true
            }
            Mended::Emptied { slot, .. } => {
                self.remove(slot);
                true
            }
        }
    }
}
