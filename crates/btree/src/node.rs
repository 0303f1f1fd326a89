//! The two kinds of nodes, and what they have in common.
//!
//! Key types: [`Entries`] (keys, summaries and contents), of which [`Inner`] is the kind with
//! children; [`Leaf`] (entries with items, linked to its neighbours); [`Digest`] (key and summary
//! of an entry), [`Node`] (what rebalancing needs of either).
//!
//! Keys, summaries and contents lie apart, so that a search touches the lines of the keys and one
//! more, and a change that alters no summary reads no other item: at 100 000 VMAs each line that is
//! not touched is a cache miss saved.
//!
//! Not guaranteed: that an inner entry still agrees with its child; `insert`, `remove` and `update`
//! restore that before they return.

use super::arena::NodeId;
use super::item::{SubtreeSummary, TreeItem, TreeKey};
use super::keys::Keys;
use arrayvec::ArrayVec;

/// Entries that a node can hold.
pub const CAPACITY: usize = 15;

/// Entries that a node holds at least (INV-TREE-FILL).
///
/// Less than half, so that a split and the merge that would undo it are some operations apart.
pub const MIN_FILL: usize = 6;

/// Two neighbours with no more entries than this between them become one.
///
/// More are spread evenly, at least [`MIN_FILL`] each.
pub(super) const MERGE_LIMIT: usize = 12;

const _: () = assert!(MERGE_LIMIT < CAPACITY && MERGE_LIMIT.div_ceil(2) >= MIN_FILL && CAPACITY / 2 >= MIN_FILL);

/// Key and summary of an entry.
///
/// Of an entry for a child: the first key below it and the join of all summaries below it.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Digest<K, S> {
    pub(super) first: K,
    pub(super) summary: S,
}

/// What splitting and merging need of a node of either kind.
pub(super) trait Node {
    type Key: TreeKey;
    type Summary: SubtreeSummary;

    fn empty() -> Self;

    fn len(&self) -> usize;

    /// What the parent has to know.
    ///
    /// # Panics
    /// When the node is empty, which none in the tree is (INV-TREE-FILL).
    fn digest(&self) -> Digest<Self::Key, Self::Summary>;

    /// Moves entries between two neighbours until `self`, the left one, has `target`.
    fn balance(&mut self, right: &mut Self, target: usize);
}

/// The entries of a node, each part in an array of its own.
#[repr(C, align(64))]
pub(super) struct Entries<K, S, C> {
    /// Key of the item, or first key below the child.
    pub(super) keys: Keys<K>,
    pub(super) summaries: ArrayVec<S, CAPACITY>,
    /// TreeItem or child.
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

    /// Renews key and summary in `slot`; returns whether that changed anything.
    pub(super) fn renew(&mut self, slot: usize, digest: Digest<K, S>) -> bool {
        let before = Digest { first: self.keys.as_slice()[slot], summary: self.summaries[slot] };
        self.keys.set(slot, digest.first);
        self.summaries[slot] = digest.summary;
        before != digest
    }

    /// Key and summary in `slot`, if it is in use.
    #[inline]
    pub(super) fn digest_at(&self, slot: usize) -> Option<Digest<K, S>> {
        Some(Digest { first: *self.keys.as_slice().get(slot)?, summary: *self.summaries.get(slot)? })
    }

    /// Key and content in `slot`, if it is in use.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<(K, &C)> {
        Some((*self.keys.as_slice().get(slot)?, self.contents.get(slot)?))
    }

    /// Key and content of the last entry.
    pub(super) fn last(&self) -> Option<(K, &C)> {
        self.get(self.len().checked_sub(1)?)
    }

    /// In an inner node: the child that holds `key` if any does, the last one that doesn't begin
    /// above it, else the first.
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
    /// Inserts `item` with its summary.
    pub(super) fn insert(&mut self, slot: usize, key: V::Key, item: V) {
        self.entries.insert(slot, Digest { first: key, summary: item.summary(key) }, item);
    }

    /// Lets `change` at the item in `slot`, whose key is `key` from now on, and renews its summary.
    pub(super) fn change<R>(&mut self, slot: usize, key: V::Key, change: impl FnOnce(&mut V) -> R) -> R {
        let item = &mut self.entries.contents[slot];
        let result = change(item);
        let summary = item.summary(key);
        self.entries.renew(slot, Digest { first: key, summary });
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

/// Moves elements between two neighbouring arrays until `left` has `target`.
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
