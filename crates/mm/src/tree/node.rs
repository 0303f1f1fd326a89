//! The two kinds of nodes, and what they have in common.
//!
//! Key types: [`Leaf`] (keys and items, linked to its neighbours), [`Inner`] (first key, summary and number of each child),
//! [`Digest`] (what a parent keeps of a child), [`Node`] (what rebalancing needs of either).
//!
//! A node keeps keys, items and summaries apart, so that a search touches the lines of the keys and one more.
//!
//! Not guaranteed: that an inner entry still agrees with its child; `insert`, `remove` and `update` restore that before they return.

use super::arena::NodeId;
use super::item::{Item, Key, Summary};
use super::keys::Keys;
use arrayvec::ArrayVec;

/// Entries that a node can hold.
pub const CAPACITY: usize = 15;

/// Entries that a node holds at least (INV-TREE-FILL). Less than half, so that a split and the merge that would undo it are some
/// operations apart.
pub const MIN_FILL: usize = 6;

/// Two neighbours with no more entries than this between them become one. More are spread evenly, at least [`MIN_FILL`] each.
pub(super) const MERGE_LIMIT: usize = 12;

const _: () = assert!(MERGE_LIMIT < CAPACITY && (MERGE_LIMIT + 1) / 2 >= MIN_FILL && CAPACITY / 2 >= MIN_FILL);

/// What a parent keeps of a child: its first key and the join of its summaries.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Digest<K, S> {
    pub(super) first: K,
    pub(super) summary: S,
}

/// What splitting and merging need of a node of either kind.
pub(super) trait Node {
    type Key: Key;
    type Summary: Summary;

    fn empty() -> Self;

    fn len(&self) -> usize;

    /// What the parent has to know, or `None` of an empty node.
    fn digest(&self) -> Option<Digest<Self::Key, Self::Summary>>;

    /// Moves entries between two neighbours until `self`, the left one, has `target`.
    fn balance(&mut self, right: &mut Self, target: usize);
}

/// A node of level 0.
#[repr(align(64))]
pub(super) struct Leaf<V: Item> {
    pub(super) keys: Keys<V::Key>,
    pub(super) items: ArrayVec<V, CAPACITY>,
    /// The leaf to the left, or [`NodeId::NONE`].
    pub(super) prev: NodeId,
    /// The leaf to the right, or [`NodeId::NONE`].
    pub(super) next: NodeId,
}

impl<V: Item> Leaf<V> {
    pub(super) fn insert(&mut self, slot: usize, key: V::Key, item: V) {
        self.keys.insert(slot, key);
        self.items.insert(slot, item);
    }

    pub(super) fn remove(&mut self, slot: usize) -> V {
        self.keys.remove(slot);
        self.items.remove(slot)
    }

    /// Key and item in `slot`, if it is in use.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Option<(V::Key, &V)> {
        Some((*self.keys.as_slice().get(slot)?, self.items.get(slot)?))
    }

    /// Keys and items in order.
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (V::Key, &V)> + ExactSizeIterator {
        self.keys.as_slice().iter().copied().zip(self.items.iter())
    }
}

impl<V: Item> Node for Leaf<V> {
    type Key = V::Key;
    type Summary = V::Summary;

    fn empty() -> Self {
        Self { keys: Keys::EMPTY, items: ArrayVec::new(), prev: NodeId::NONE, next: NodeId::NONE }
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn digest(&self) -> Option<Digest<V::Key, V::Summary>> {
        let summary = self.entries().map(|(key, item)| item.summary(key)).reduce(Summary::join)?;
        Some(Digest { first: *self.keys.as_slice().first()?, summary })
    }

    fn balance(&mut self, right: &mut Self, target: usize) {
        self.keys.balance(&mut right.keys, target);
        balance(&mut self.items, &mut right.items, target);
    }
}

/// The inner node of a tree of `V`.
pub(super) type InnerOf<V> = Inner<<V as Item>::Key, <V as Item>::Summary>;

/// A node of level 1 or above.
#[repr(align(64))]
pub(super) struct Inner<K, S> {
    /// First key below each child.
    pub(super) keys: Keys<K>,
    pub(super) children: ArrayVec<NodeId, CAPACITY>,
    pub(super) summaries: ArrayVec<S, CAPACITY>,
}

impl<K: Key, S: Summary> Inner<K, S> {
    /// The child that holds `key` if any does: the last one that doesn't begin above it, else the first.
    #[inline]
    pub(super) fn slot_for(&self, key: K) -> usize {
        self.keys.count_le(key).saturating_sub(1)
    }

    pub(super) fn insert(&mut self, slot: usize, digest: Digest<K, S>, child: NodeId) {
        self.keys.insert(slot, digest.first);
        self.summaries.insert(slot, digest.summary);
        self.children.insert(slot, child);
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.keys.remove(slot);
        self.summaries.remove(slot);
        self.children.remove(slot);
    }

    /// Renews what is kept of the child in `slot`; returns whether that changed anything.
    pub(super) fn renew(&mut self, slot: usize, digest: Digest<K, S>) -> bool {
        let before = Digest { first: self.keys.as_slice()[slot], summary: self.summaries[slot] };
        self.keys.set(slot, digest.first);
        self.summaries[slot] = digest.summary;
        before != digest
    }
}

impl<K: Key, S: Summary> Node for Inner<K, S> {
    type Key = K;
    type Summary = S;

    fn empty() -> Self {
        Self { keys: Keys::EMPTY, children: ArrayVec::new_const(), summaries: ArrayVec::new_const() }
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn digest(&self) -> Option<Digest<K, S>> {
        let summary = self.summaries.iter().copied().reduce(Summary::join)?;
        Some(Digest { first: *self.keys.as_slice().first()?, summary })
    }

    fn balance(&mut self, right: &mut Self, target: usize) {
        self.keys.balance(&mut right.keys, target);
        balance(&mut self.children, &mut right.children, target);
        balance(&mut self.summaries, &mut right.summaries, target);
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
