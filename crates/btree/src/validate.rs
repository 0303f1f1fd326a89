//! Checks of every invariant over a whole tree, which the tests run after each step.
//!
//! They use the definitions, not the code under test: depth, fill and summaries are recomputed from
//! the items.

use super::arena::NodeId;
use super::item::{SubtreeSummary, TreeItem, TreeKey};
use super::node::{CAPACITY, Digest, MIN_FILL, Node};
use super::{BPlusTree, MAX_HEIGHT};
use alloc::vec::Vec;

/// What a walk of the whole tree has found.
struct Walk<K, S> {
    leaves: Vec<NodeId>,
    inners: usize,
    /// The key and the own summary of each item.
    items: Vec<(K, S)>,
}

impl<V: TreeItem<Key: core::fmt::Debug, Summary: core::fmt::Debug>> BPlusTree<V> {
    /// Checks every invariant.
    ///
    /// # Panics
    /// If an invariant is violated; the message names it.
    pub(super) fn validate(&self) {
        let mut walk = Walk { leaves: Vec::new(), inners: 0, items: Vec::new() };
        assert!(self.height < MAX_HEIGHT);
        assert_eq!(self.root == NodeId::NONE, self.len == 0, "INV-TREE-RETURN: only an empty tree has no root");
        if self.root != NodeId::NONE {
            self.validate_node(self.root, self.height, true, true, &mut walk);
        }
        assert!(walk.items.is_sorted_by(|a, b| a.0 < b.0), "INV-TREE-ORDER: keys do not rise strictly");
        assert_eq!(walk.items.len(), self.len, "number of items and length");
        assert_eq!(walk.leaves.len(), self.leaves.used(), "INV-TREE-RETURN: leaves reached and used");
        assert_eq!(walk.inners, self.inners.used(), "INV-TREE-RETURN: inner nodes reached and used");
        self.validate_links(&walk.leaves);
    }

    fn validate_node(
        &self,
        id: NodeId,
        level: usize,
        is_root: bool,
        is_last: bool,
        walk: &mut Walk<V::Key, V::Summary>,
    ) {
        let first_item = walk.items.len();
        let (len, digest) = if level == 0 {
            let leaf = &self.leaves[id];
            for (slot, item) in leaf.entries.contents.iter().enumerate() {
                let key = leaf.entries.keys.as_slice()[slot];
                assert!(leaf.entries.summaries[slot] == item.summary(key), "INV-TREE-SUMMARY: item {key:?}");
                walk.items.push((key, item.summary(key)));
            }
            walk.leaves.push(id);
            assert_eq!(leaf.entries.summaries.len(), leaf.len());
            assert_eq!(leaf.entries.contents.len(), leaf.len());
            (leaf.len(), leaf.digest())
        } else {
            let inner = &self.inners[id];
            walk.inners += 1;
            assert_eq!(inner.summaries.len(), inner.len());
            assert_eq!(inner.contents.len(), inner.len());
            for (slot, child) in inner.contents.iter().enumerate() {
                let from = walk.items.len();
                self.validate_node(*child, level - 1, false, is_last && slot + 1 == inner.len(), walk);
                let below = join_all(&walk.items[from..]);
                assert!(
                    inner.digest_at(slot) == Some(below),
                    "INV-TREE-ORDER, INV-TREE-SUMMARY: the entry for {:?} must be {:?}",
                    below.first,
                    below.summary
                );
            }
            (inner.len(), inner.digest())
        };
        let least = if is_root {
            1 + usize::from(level > 0)
        } else if is_last {
            1
        } else {
            MIN_FILL
        };
        assert!((least..=CAPACITY).contains(&len), "INV-TREE-FILL: {len} entries at level {level}");
        assert!(digest == join_all(&walk.items[first_item..]), "INV-TREE-SUMMARY: digest of node {id:?}");
    }

    fn validate_links(&self, in_order: &[NodeId]) {
        for (i, id) in in_order.iter().enumerate() {
            let prev = i.checked_sub(1).map_or(NodeId::NONE, |i| in_order[i]);
            let next = in_order.get(i + 1).copied().unwrap_or(NodeId::NONE);
            assert_eq!((self.leaves[*id].prev, self.leaves[*id].next), (prev, next), "INV-TREE-LINKS: leaf {i}");
        }
    }
}

/// Returns the digest that an entry above these items must have.
fn join_all<K: TreeKey, S: SubtreeSummary>(items: &[(K, S)]) -> Digest<K, S> {
    let (first, summary) = items[0];
    let join = |run: S, &(key, next): &(K, S)| run.join(key.start(), next);
    Digest { first, summary: items[1..].iter().fold(summary, join) }
}
