//! What is known of each slot of a swap device: one word (Linux's swap table and swap map,
//! `mm/swap_table.h`, `mm/swapfile.c`).
//!
//! ```text
//!            allocate                    evict                       reload
//!   Free ───────────────▶ Cached(folio) ───────▶ Evicted(shadow) ───────────▶ Cached(folio)
//!    ▲                        │ no entry left        │ no entry left
//!    └────────────────────────┴──────────────────────┘
//! ```
//!
//! A slot has entries that name it – in page tables, and in caches of shared memory – and may have
//! a folio in the swap cache. It is free when it has neither.
//!
//! INV-SWAP-COUNT: a slot's count is the number of entries that name it. INV-SWAP-CACHE: while a
//! slot has a folio in the cache, that folio alone may be mapped in the place of an entry that
//! names the slot.
//!
//! Not guaranteed: that a folio out of the cache is up to date, or still in it once the device's
//! lock is let go; who wants it takes a reference here, locks the folio, and asks it for its entry.

use alloc::vec::Vec;
use pagewright_types::Pfn;

/// What a slot is beside its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Nobody's.
    ///
    /// `next` is the free slot after it.
    Free { next: u32 },
    /// Its contents are in a folio, and perhaps on the device.
    Cached(Pfn),
    /// Its contents are on the device alone; when they went there, by the clock of reclaim.
    Evicted { shadow: u32 },
}

/// A [`Slot`] and its count in a word: value, kind, count from the low end.
///
/// The count's 30 bits are enough: a space names a slot once, and takes a frame of its own for each
/// level of its tables, of 2^32 frames at most.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const KIND_SHIFT: u32 = 32;
    const COUNT_SHIFT: u32 = 34;

    fn new(slot: Slot, count: u32) -> Self {
        debug_assert!(count < 1 << (u64::BITS - Self::COUNT_SHIFT), "INV-SWAP-COUNT: {count} entries name {slot:?}");
        let (kind, value) = match slot {
            Slot::Free { next } => (0, next),
            Slot::Cached(pfn) => (1, pfn.raw()),
            Slot::Evicted { shadow } => (2, shadow),
        };
        Self(u64::from(value) | kind << Self::KIND_SHIFT | u64::from(count) << Self::COUNT_SHIFT)
    }

    fn slot(self) -> Slot {
        let value = self.0 as u32;
        match self.0 >> Self::KIND_SHIFT & 3 {
            0 => Slot::Free { next: value },
            1 => Slot::Cached(Pfn::new(value)),
            2 => Slot::Evicted { shadow: value },
            other => unreachable!("no slot is of kind {other}"),
        }
    }

    fn count(self) -> u32 {
        (self.0 >> Self::COUNT_SHIFT) as u32
    }
}

/// End of the list of free slots.
const END: u32 = u32::MAX;

/// All slots of one device.
///
/// Its owner's lock protects it.
pub(crate) struct SlotTable {
    words: Vec<Word>,
    first_free: u32,
    free: u32,
    cached: u32,
    closed: bool,
}

/// What became of a slot that lost an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Other entries name it.
    InUse,
    /// None does; its folio is in the cache.
    Unused(Pfn),
    /// It is free.
    Freed,
}

impl SlotTable {
    /// A table of `slots` free slots; `None` when there is no memory for it.
    pub(crate) fn try_new(slots: u32) -> Option<Self> {
        let mut words = Vec::new();
        words.try_reserve_exact(slots as usize).ok()?;
        let next = |slot| if slot + 1 < slots { slot + 1 } else { END };
        words.extend((0..slots).map(|slot| Word::new(Slot::Free { next: next(slot) }, 0)));
        Some(Self { words, first_free: if slots > 0 { 0 } else { END }, free: slots, cached: 0, closed: false })
    }

    /// Slots in all.
    pub(crate) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// Slots that are free.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Slots in all and free ones that count as swap: none once it is closed.
    pub(super) fn room(&self) -> (u64, u64) {
        if self.closed { (0, 0) } else { (u64::from(self.len()), u64::from(self.free)) }
    }

    /// Whether no slot is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.free == self.len()
    }

    /// Slots whose folio is in the cache.
    pub(crate) fn cached(&self) -> u32 {
        self.cached
    }

    /// Gives out no slot any more; returns whether it did not before either.
    pub(crate) fn close(&mut self) -> bool {
        core::mem::replace(&mut self.closed, true)
    }

    /// Gives out slots again.
    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// What a slot is, and how many entries name it.
    pub(crate) fn get(&self, slot: u32) -> (Slot, u32) {
        let word = self.words[slot as usize];
        (word.slot(), word.count())
    }

    /// What a slot is that an entry named which may be gone by now, and with it the whole device:
    /// another may have its number, and fewer slots.
    pub(crate) fn look_up(&self, slot: u32) -> Slot {
        self.words.get(slot as usize).map_or(Slot::Free { next: END }, |word| word.slot())
    }

    fn set(&mut self, slot: u32, to: Slot, count: u32) {
        self.words[slot as usize] = Word::new(to, count);
    }

    /// A free slot for a folio, which is its cached contents from now on; no entry names it yet.
    pub(crate) fn allocate(&mut self, pfn: Pfn) -> Option<u32> {
        let slot = self.first_free;
        if slot == END || self.closed {
            return None;
        }
        let (Slot::Free { next }, 0) = self.get(slot) else {
            unreachable!("INV-SWAP-COUNT: slot {slot} is on the free list and in use")
        };
        self.first_free = next;
        self.free -= 1;
        self.cached += 1;
        self.set(slot, Slot::Cached(pfn), 0);
        Some(slot)
    }

    /// One more entry names a slot that is in use.
    ///
    /// # Panics
    /// In debug builds when the slot is free.
    pub(crate) fn duplicate(&mut self, slot: u32) {
        let (now, count) = self.get(slot);
        debug_assert!(!matches!(now, Slot::Free { .. }), "INV-SWAP-COUNT: an entry names slot {slot}, which is free");
        self.set(slot, now, count + 1);
    }

    /// One entry fewer names it.
    ///
    /// # Panics
    /// When none did.
    pub(crate) fn release(&mut self, slot: u32) -> Released {
        let (now, count) = self.get(slot);
        assert!(count > 0, "INV-SWAP-COUNT: slot {slot} lost an entry that it did not have");
        self.set(slot, now, count - 1);
        match now {
            _ if count > 1 => Released::InUse,
            Slot::Cached(pfn) => Released::Unused(pfn),
            Slot::Evicted { .. } => {
                self.give_back(slot);
                Released::Freed
            }
            Slot::Free { .. } => unreachable!("INV-SWAP-COUNT: slot {slot} is free and was named"),
        }
    }

    /// The folio with a slot's contents is in the cache from now on.
    ///
    /// Returns when they went; `None`: the slot is not one that waits for that.
    pub(crate) fn reload(&mut self, slot: u32, pfn: Pfn) -> Option<u32> {
        let (Slot::Evicted { shadow }, count) = self.get(slot) else { return None };
        self.cached += 1;
        self.set(slot, Slot::Cached(pfn), count);
        Some(shadow)
    }

    /// A slot's folio leaves the cache; true if the slot is free now.
    ///
    /// # Panics
    /// In debug builds when it is not in the cache.
    pub(crate) fn evict(&mut self, slot: u32, shadow: u32) -> bool {
        let (now, count) = self.get(slot);
        debug_assert!(matches!(now, Slot::Cached(_)), "INV-SWAP-CACHE: slot {slot} is {now:?} and not cached");
        self.cached -= 1;
        if count == 0 {
            self.give_back(slot);
        } else {
            self.set(slot, Slot::Evicted { shadow }, count);
        }
        count == 0
    }

    fn give_back(&mut self, slot: u32) {
        self.set(slot, Slot::Free { next: self.first_free }, 0);
        self.first_free = slot;
        self.free += 1;
    }

    /// Slots in use, in order, the first at or after `from`.
    pub(crate) fn in_use(&self, from: u32) -> impl Iterator<Item = (u32, Slot, u32)> {
        let all = self.words.iter().enumerate().skip(from as usize);
        let all = all.map(|(slot, word)| (slot as u32, word.slot(), word.count()));
        all.filter(|(_, slot, _)| !matches!(slot, Slot::Free { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_in_order_and_come_back() {
        let mut table = SlotTable::try_new(2).expect("two words");
        let (a, b) = (Pfn::new(7), Pfn::new(8));
        assert_eq!((table.allocate(a), table.allocate(b), table.allocate(b)), (Some(0), Some(1), None));
        assert!(table.evict(0, 5), "no entry ever named it: INV-SWAP-COUNT");
        assert_eq!((table.free(), table.allocate(b)), (1, Some(0)));
    }

    #[test]
    fn a_slot_stays_while_it_is_named_or_cached() {
        let mut table = SlotTable::try_new(1).expect("a word");
        let pfn = Pfn::new(u32::MAX - 1);
        let slot = table.allocate(pfn).expect("it is free");
        table.duplicate(slot);
        table.duplicate(slot);
        assert_eq!(table.get(slot), (Slot::Cached(pfn), 2));
        assert!(!table.evict(slot, 9));
        assert_eq!(table.get(slot), (Slot::Evicted { shadow: 9 }, 2));
        assert_eq!(table.release(slot), Released::InUse);
        assert_eq!(table.reload(slot, pfn), Some(9));
        assert_eq!(table.reload(slot, pfn), None, "INV-SWAP-CACHE: one folio a slot");
        assert_eq!(table.release(slot), Released::Unused(pfn));
        assert_eq!((table.free(), table.evict(slot, 1), table.free()), (0, true, 1));
        assert_eq!(table.in_use(0).count(), 0);
    }
}
