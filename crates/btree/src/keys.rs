//! The sorted keys of one node, padded so that a search needs no branch.
//!
//! Key type: [`Keys`]. With the length in front, 15 keys of 8 bytes fill exactly two cache lines. A
//! search takes two rounds of three comparisons. No branch depends on the data, so none is
//! mispredicted, which would be the main cost of random look-ups.
//!
//! Not guaranteed: that keys rise; the tree ensures that (INV-TREE-ORDER).

use super::item::TreeKey;
use super::node::CAPACITY;

/// Up to [`CAPACITY`] keys in order, with [`TreeKey::MAX`] in unused slots.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Keys<K> {
    len: usize,
    slots: [K; CAPACITY],
}

impl<K: TreeKey> Keys<K> {
    pub(super) const EMPTY: Self = Self { len: 0, slots: [K::MAX; CAPACITY] };

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[K] {
        &self.slots[..self.len]
    }

    /// Returns the number of keys that are at most `key`.
    #[inline]
    pub(super) fn count_le(&self, key: K) -> usize {
        // If `key` is the greatest key, the padding counts too, hence the `min`.
        self.rank(|slot| slot <= key).min(self.len)
    }

    /// Returns the number of keys that are less than `key`.
    #[inline]
    pub(super) fn count_lt(&self, key: K) -> usize {
        self.rank(|slot| slot < key)
    }

    /// Returns the number of slots for which `before` holds; it must hold for a prefix of them.
    ///
    /// The first three comparisons find the quarter of the slots, the other three the slot in it.
    #[inline]
    fn rank(&self, before: impl Fn(K) -> bool) -> usize {
        const { assert!(CAPACITY == 15, "the search is written for 15 slots") };
        let before = |slot: usize| usize::from(before(self.slots[slot]));
        let quarter = 4 * (before(3) + before(7) + before(11));
        quarter + before(quarter) + before(quarter + 1) + before(quarter + 2)
    }

    /// Returns the slot of `key`, or as an error the slot at which to insert it.
    #[inline]
    pub(super) fn position(&self, key: K) -> Result<usize, usize> {
        let slot = self.count_lt(key);
        if self.as_slice().get(slot) == Some(&key) { Ok(slot) } else { Err(slot) }
    }

    pub(super) fn set(&mut self, slot: usize, key: K) {
        debug_assert!(slot < self.len);
        self.slots[slot] = key;
    }

    pub(super) fn insert(&mut self, slot: usize, key: K) {
        self.slots.copy_within(slot..self.len, slot + 1);
        self.slots[slot] = key;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.slots.copy_within(slot + 1..self.len, slot);
        self.len -= 1;
        self.slots[self.len] = K::MAX;
    }

    /// Moves keys between two neighbours until `self`, the left one, has `target` keys.
    pub(super) fn balance(&mut self, right: &mut Self, target: usize) {
        if target < self.len {
            let moved = self.len - target;
            right.slots.copy_within(..right.len, moved);
            right.slots[..moved].copy_from_slice(&self.slots[target..self.len]);
            self.slots[target..self.len].fill(K::MAX);
            right.len += moved;
        } else {
            let moved = target - self.len;
            self.slots[self.len..target].copy_from_slice(&right.slots[..moved]);
            right.slots.copy_within(moved..right.len, 0);
            right.slots[right.len - moved..right.len].fill(K::MAX);
            right.len -= moved;
        }
        self.len = target;
    }
}
