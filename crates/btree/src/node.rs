//! The two kinds of nodes, and what they have in common.
//!
//! Key types: [`Entries`] (keys, summaries and contents); [`Inner`], entries whose contents are
//! children; [`Leaf`], entries whose contents are items, linked to its neighbours; [`Digest`] (key
//! and summary of an entry); [`Node`] (what rebalancing needs of either kind).
//!
//! Keys, summaries and contents are in separate arrays. So a search reads the cache lines of the
//! keys and one more, and a change that alters no summary reads no other item. With 100 000 VMAs
//! each cache line that is not read saves a miss.
//!
//! Not guaranteed: that an inner entry agrees with its child during an operation; `insert`,
//! `remove` and `update` restore that before they return.

use super::arena::NodeId;
use super::item::{SubtreeSummary, TreeItem, TreeKey};
use super::keys::Keys;
use arrayvec::ArrayVec;

/// Maximum number of entries in a node.
pub const CAPACITY: usize = 15;

/// Minimum number of entries in a node (INV-TREE-FILL).
///
/// Less than half of [`CAPACITY`], so that several operations lie between a split and the merge
/// that undoes it.
pub const MIN_FILL: usize = 6;

/// Two neighbours with at most this many entries in total are merged.
///
/// If they have more, the entries are spread evenly, at least [`MIN_FILL`] in each.
pub(super) const MERGE_LIMIT: usize = 12;

const _: () = assert!(MERGE_LIMIT < CAPACITY && MERGE_LIMIT.div_ceil(2) >= MIN_FILL && CAPACITY / 2 >= MIN_FILL);

/// The key and the summary of an entry.
///
/// In an entry for a child, they are the first key and the join of all summaries below it.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Digest<K, S> {
    pub(super) first: K,
    pub(super) summary: S,
}

/// A node of either kind, as splits and merges need it.
pub(super) trait Node {
    type Key: TreeKey;
    type Summary: SubtreeSummary;

    fn empty() -> Self;

    fn len(&self) -> usize;

    /// Returns the key and the summary that the parent stores.
    ///
    /// # Panics
    /// If the node is empty; no node in the tree is (INV-TREE-FILL).
    fn digest(&self) -> Digest<Self::Key, Self::Summary>;

    /// Moves entries between two neighbours until `self`, the left one, has `target` entries.
    fn balance(&mut self, right: &mut Self, target: usize);
}

/// The entries of a node, with each part in its own array.
#[repr(C, align(64))]
pub(super) struct Entries<K, S, C> {
    /// Keys of the items, or first keys below the children.
    pub(super) keys: Keys<K>,
    pub(super) summaries: ArrayVec<S, CAPACITY>,
    /// Items or children.
    pub(super) contents: ArrayVec<C, CAPACITY>,
}

impl<K: TreeKey, S: SubtreeSummary, C> Entries<K, S, C> {
    pub(super) fn insert(&mut self, slot: usize, digest: Digest<K, S>, content: C) {
        self.keys.insert(slot, digest.first);
        self.summaries.insert(slot, digest.summary);
        self.contents.insert(slot, content);
    }

    pub(super) fn remove(&mut self, slot: usize) -> C {
        self.keys.remove(slot);
        self.summaries.remove(slot);
        self.contents.remove(slot)
    }

    /// Sets the key and the summary in `slot`; returns whether either has changed.
    pub(super) fn set_digest(&mut self, slot: usize, digest: Digest<K, S>) -> bool {
        let before = Digest { first: self.keys.as_slice()[slot], summary: self.summaries[slot] };
        self.keys.set(slot, digest.first);
        self.summaries[slot] = digest.summary;
        before != digest
    }

    /// Returns the key and the summary in `slot`, if it is in use.
    #[inline]
    pub(super) fn digest_at(&self, slot: usize) -> Option<Digest<K, S>> {
        Some(Digest { first: *self.keys.as_slice().get(slot)?, summary: *self.summaries.get(slot)? })
    }

    /// Returns the key and the content in `slot`, if it is in use.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<(K, &C)> {
        Some((*self.keys.as_slice().get(slot)?, self.contents.get(slot)?))
    }

    /// Returns the key and the content of the last entry.
    pub(super) fn last(&self) -> Option<(K, &C)> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns, in an inner node, the slot of the only child that can have `key`.
    ///
    /// That is the last child that does not begin above `key`, or else the first child.
    #[inline]
    pub(super) fn slot_for(&self, key: K) -> usize {
        self.keys.count_le(key).saturating_sub(1)
    }
}

impl<K: TreeKey, S: SubtreeSummary, C> Node for Entries<K, S, C> {
    type Key = K;
    type Summary = S;

    fn empty() -> Self {
        Self { keys: Keys::EMPTY, summaries: ArrayVec::new_const(), contents: ArrayVec::new_const() }
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn digest(&self) -> Digest<K, S> {
        let runs = self.keys.as_slice().iter().zip(&self.summaries).map(|(&first, &summary)| Digest { first, summary });
        runs.reduce(|run, next| Digest {
            first: run.first,
            summary: run.summary.join(next.first.start(), next.summary),
        })
        .expect("INV-TREE-FILL: a node in the tree has entries")
    }

    fn balance(&mut self, right: &mut Self, target: usize) {
        self.keys.balance(&mut right.keys, target);
        balance(&mut self.summaries, &mut right.summaries, target);
        balance(&mut self.contents, &mut right.contents, target);
    }
}

/// A node of level 1 or above.
pub(super) type Inner<K, S> = Entries<K, S, NodeId>;

/// A node of level 0.
pub(super) struct Leaf<V: TreeItem> {
    pub(super) entries: Entries<V::Key, V::Summary, V>,
    /// The leaf to the left, or [`NodeId::NONE`].
    pub(super) prev: NodeId,
    /// The leaf to the right, or [`NodeId::NONE`].
    pub(super) next: NodeId,
}

impl<V: TreeItem> Leaf<V> {
    /// Inserts `item`, its key and its summary.
    pub(super) fn insert(&mut self, slot: usize, key: V::Key, item: V) {
        self.entries.insert(slot, Digest { first: key, summary: item.summary(key) }, item);
    }

    /// Calls `change` with the item in `slot`, sets its key to `key` and updates its summary.
    pub(super) fn change<R>(&mut self, slot: usize, key: V::Key, change: impl FnOnce(&mut V) -> R) -> R {
        let item = &mut self.entries.contents[slot];
        let result = change(item);
        let summary = item.summary(key);
        self.entries.set_digest(slot, Digest { first: key, summary });
        result
    }
}

impl<V: TreeItem> Node for Leaf<V> {
    type Key = V::Key;
    type Summary = V::Summary;

    fn empty() -> Self {
        Self { entries: Entries::empty(), prev: NodeId::NONE, next: NodeId::NONE }
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn digest(&self) -> Digest<V::Key, V::Summary> {
        self.entries.digest()
    }

    fn balance(&mut self, right: &mut Self, target: usize) {
        self.entries.balance(&mut right.entries, target);
    }
}

/// Moves elements between two neighbouring arrays until `left` has `target` elements.
fn balance<T>(left: &mut ArrayVec<T, CAPACITY>, right: &mut ArrayVec<T, CAPACITY>, target: usize) {
    if target < left.len() {
        let after = core::mem::take(right);
        right.extend(left.drain(target..));
        right.extend(after);
    } else {
        let moved = target - left.len();
        left.extend(right.drain(..moved));
    }
}
