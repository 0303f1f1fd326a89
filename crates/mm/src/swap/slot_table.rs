//! The state of each slot of a swap device, in one word (`mm/swap_table.h`, `mm/swapfile.c`).
//!
//! ```text
//!            allocate                    evict                       reload
//!   Free ───────────────▶ Cached(folio) ───────▶ Evicted(shadow) ───────────▶ Cached(folio)
//!    ▲                        │ no entry left        │ no entry left
//!    └────────────────────────┴──────────────────────┘
//! ```
//!
//! The word combines Linux's swap table and swap map. A slot is named by swap entries, in page
//! tables and in caches of shared memory, and may have a folio in the swap cache. It is free when
//! it has neither.
//!
//! **INV-SWAP-COUNT** A slot's count is the number of entries that name it. A slot that no entry
//! names and no folio keeps is free.
//!
//! **INV-SWAP-CACHE** While a slot has a folio in the swap cache, a fault on an entry that names
//! the slot maps that folio and no other. A slot without a folio was written after the last store.
//! Otherwise two programs would see two pages, or one would see an old page.
//!
//! Not guaranteed: that a folio found here is up to date, or still in the cache once the device's
//! lock is released. The caller takes a reference under the lock, locks the folio, and then checks
//! its swap entry again.

use alloc::boxed::Box;
use pagewright_sync::{AllocError, try_boxed};
use pagewright_types::Pfn;

/// The state of a slot, without its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Free; `next` is the free slot after it.
    Free { next: u32 },
    /// A folio in the swap cache has the contents, and perhaps the device too.
    Cached(Pfn),
    /// Only the device has the contents; the shadow entry tells when the folio was evicted.
    Evicted { shadow: u32 },
}

/// A [`SlotState`] and its count in a word: value, kind, count from the low end.
///
/// The count has 30 bits, which suffice: a space names a slot at most once, and needs a frame of
/// its own for each level of its tables, of at most 2^32 frames.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const KIND_SHIFT: u32 = 32;
    const COUNT_SHIFT: u32 = 34;

    fn new(slot: SlotState, count: u32) -> Self {
        debug_assert!(count < 1 << (u64::BITS - Self::COUNT_SHIFT), "INV-SWAP-COUNT: {count} entries name {slot:?}");
        let (kind, value) = match slot {
            SlotState::Free { next } => (0, next),
            SlotState::Cached(pfn) => (1, pfn.raw()),
            SlotState::Evicted { shadow } => (2, shadow),
        };
        Self(u64::from(value) | kind << Self::KIND_SHIFT | u64::from(count) << Self::COUNT_SHIFT)
    }

    fn slot(self) -> SlotState {
        let value = self.0 as u32;
        match self.0 >> Self::KIND_SHIFT & 3 {
            0 => SlotState::Free { next: value },
            1 => SlotState::Cached(Pfn::new(value)),
            2 => SlotState::Evicted { shadow: value },
            other => unreachable!("no slot is of kind {other}"),
        }
    }

    fn count(self) -> u32 {
        (self.0 >> Self::COUNT_SHIFT) as u32
    }
}

/// The end of the list of free slots.
const END: u32 = u32::MAX;

/// All slots of one device; the lock of the area protects them.
pub(crate) struct SlotTable {
    words: Box<[Word]>,
    first_free: u32,
    free: u32,
    cached: u32,
    closed: bool,
}

/// The state of a slot after one of its entries was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotRelease {
    /// Other entries still name it.
    InUse,
    /// No entry names it, but its folio is in the swap cache.
    Unused(Pfn),
    /// It is free.
    Freed,
}

impl SlotTable {
    /// A table of `slots` free slots.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub(crate) fn try_new(slots: u32) -> Result<Self, AllocError> {
        let next = |slot| if slot + 1 < slots { slot + 1 } else { END };
        let free = |slot| Word::new(SlotState::Free { next: next(slot) }, 0);
        let words = try_boxed(slots as usize, (0..slots).map(free))?;
        Ok(Self { words, first_free: if slots > 0 { 0 } else { END }, free: slots, cached: 0, closed: false })
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// The number of free slots.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The numbers of slots and of free slots for the totals: zero once the table is closed.
    pub(super) fn room(&self) -> (u64, u64) {
        if self.closed { (0, 0) } else { (u64::from(self.len()), u64::from(self.free)) }
    }

    /// Whether no slot is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.free == self.len()
    }

    /// The number of slots whose folio is in the swap cache.
    pub(crate) fn cached(&self) -> u32 {
        self.cached
    }

    /// Stops allocation; returns whether it was stopped already.
    pub(crate) fn close(&mut self) -> bool {
        core::mem::replace(&mut self.closed, true)
    }

    /// Resumes allocation.
    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// The state of a slot, and the number of entries that name it.
    pub(crate) fn get(&self, slot: u32) -> (SlotState, u32) {
        let word = self.words[slot as usize];
        (word.slot(), word.count())
    }

    /// The state of the slot of a swap entry that may be stale.
    ///
    /// The device may have been removed meanwhile, and another, with fewer slots, may have its
    /// number.
    pub(crate) fn lookup(&self, slot: u32) -> SlotState {
        self.words.get(slot as usize).map_or(SlotState::Free { next: END }, |word| word.slot())
    }

    fn set(&mut self, slot: u32, to: SlotState, count: u32) {
        self.words[slot as usize] = Word::new(to, count);
    }

    /// Allocates a slot for a folio, which becomes its cached contents; no entry names it yet.
    pub(crate) fn allocate(&mut self, pfn: Pfn) -> Option<u32> {
        let slot = self.first_free;
        if slot == END || self.closed {
            return None;
        }
        let (SlotState::Free { next }, 0) = self.get(slot) else {
            unreachable!("INV-SWAP-COUNT: slot {slot} is on the free list and in use")
        };
        self.first_free = next;
        self.free -= 1;
        self.cached += 1;
        self.set(slot, SlotState::Cached(pfn), 0);
        Some(slot)
    }

    /// Counts one more entry that names a slot in use.
    ///
    /// # Panics
    /// In debug builds if the slot is free.
    pub(crate) fn duplicate(&mut self, slot: u32) {
        let (now, count) = self.get(slot);
        debug_assert!(
            !matches!(now, SlotState::Free { .. }),
            "INV-SWAP-COUNT: an entry names slot {slot}, which is free"
        );
        self.set(slot, now, count + 1);
    }

    /// Counts one entry less, and frees the slot if it was the last and no folio is cached.
    ///
    /// # Panics
    /// If no entry named the slot.
    pub(crate) fn release(&mut self, slot: u32) -> SlotRelease {
        let (now, count) = self.get(slot);
        assert!(count > 0, "INV-SWAP-COUNT: an entry of slot {slot} is released, but none was counted");
        self.set(slot, now, count - 1);
        match now {
            _ if count > 1 => SlotRelease::InUse,
            SlotState::Cached(pfn) => SlotRelease::Unused(pfn),
            SlotState::Evicted { .. } => {
                self.free_slot(slot);
                SlotRelease::Freed
            }
            SlotState::Free { .. } => unreachable!("INV-SWAP-COUNT: slot {slot} is free, but an entry named it"),
        }
    }

    /// Caches a folio for an evicted slot and returns its shadow entry.
    ///
    /// Returns `None` if the slot is not evicted.
    pub(crate) fn reload(&mut self, slot: u32, pfn: Pfn) -> Option<u32> {
        let (SlotState::Evicted { shadow }, count) = self.get(slot) else { return None };
        self.cached += 1;
        self.set(slot, SlotState::Cached(pfn), count);
        Some(shadow)
    }

    /// Replaces the folio of a cached slot.
    ///
    /// # Panics
    /// In debug builds if the slot has no cached folio.
    pub(crate) fn recache(&mut self, slot: u32, pfn: Pfn) {
        let (state, count) = self.get(slot);
        debug_assert!(matches!(state, SlotState::Cached(_)), "INV-SWAP-CACHE: slot {slot} is {state:?}");
        self.set(slot, SlotState::Cached(pfn), count);
    }

    /// Removes a slot's folio from the cache; returns whether the slot is free now.
    ///
    /// # Panics
    /// In debug builds if the slot has no cached folio.
    pub(crate) fn evict(&mut self, slot: u32, shadow: u32) -> bool {
        let (now, count) = self.get(slot);
        debug_assert!(matches!(now, SlotState::Cached(_)), "INV-SWAP-CACHE: slot {slot} is {now:?} and not cached");
        self.cached -= 1;
        if count == 0 {
            self.free_slot(slot);
        } else {
            self.set(slot, SlotState::Evicted { shadow }, count);
        }
        count == 0
    }

    fn free_slot(&mut self, slot: u32) {
        self.set(slot, SlotState::Free { next: self.first_free }, 0);
        self.first_free = slot;
        self.free += 1;
    }

    /// The slots in use from `from`, with their states and counts.
    pub(crate) fn in_use(&self, from: u32) -> impl Iterator<Item = (u32, SlotState, u32)> {
        let all = self.words.iter().enumerate().skip(from as usize);
        let all = all.map(|(slot, word)| (slot as u32, word.slot(), word.count()));
        all.filter(|(_, slot, _)| !matches!(slot, SlotState::Free { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn slots_are_allocated_in_order_and_reused() {
        let mut table = SlotTable::try_new(2).expect("two words");
        let (a, b) = (Pfn::new(7), Pfn::new(8));
        assert_eq!((table.allocate(a), table.allocate(b), table.allocate(b)), (Some(0), Some(1), None));
        assert!(table.evict(0, 5), "INV-SWAP-COUNT: no entry named it");
        assert_eq!((table.free(), table.allocate(b)), (1, Some(0)));
    }

    #[test]
    fn a_slot_is_in_use_while_named_or_cached() {
        let mut table = SlotTable::try_new(1).expect("a word");
        let pfn = Pfn::new(u32::MAX - 1);
        let slot = table.allocate(pfn).expect("it is free");
        table.duplicate(slot);
        table.duplicate(slot);
        assert_eq!(table.get(slot), (SlotState::Cached(pfn), 2));
        assert!(!table.evict(slot, 9));
        assert_eq!(table.get(slot), (SlotState::Evicted { shadow: 9 }, 2));
        assert_eq!(table.release(slot), SlotRelease::InUse);
        assert_eq!(table.reload(slot, pfn), Some(9));
        assert_eq!(table.reload(slot, pfn), None, "INV-SWAP-CACHE: a slot has one folio");
        assert_eq!(table.release(slot), SlotRelease::Unused(pfn));
        assert_eq!((table.free(), table.evict(slot, 1), table.free()), (0, true, 1));
        assert_eq!(table.in_use(0).count(), 0);
    }

    fn compare_states(table: &SlotTable, list: &[Option<(SlotState, u32)>]) {
        for (slot, state) in (0..).zip(list) {
            match *state {
                Some((state, count)) => assert_eq!((table.get(slot), table.lookup(slot)), ((state, count), state)),
                None => assert!(matches!(table.lookup(slot), SlotState::Free { .. }) && table.get(slot).1 == 0),
            }
        }
    }

    /// Runs random operations on a table of a few slots, and compares each answer with a list.
    ///
    /// A slot of the list is free, or has a cached folio or a shadow entry, and a count.
    #[test]
    fn a_table_says_what_a_list_of_its_slots_says() {
        const SLOTS: u32 = 5;
        let mut table = SlotTable::try_new(SLOTS).expect("five words");
        let mut list: [Option<(SlotState, u32)>; SLOTS as usize] = [None; SLOTS as usize];
        // The free slots, the next one last.
        let mut free: Vec<u32> = (0..SLOTS).rev().collect();
        let (mut closed, mut random) = (false, 11_u64);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let slot = (random >> 40) as u32 % SLOTS;
            let at = slot as usize;
            let pfn = Pfn::new(step.wrapping_mul(0x9e37_79b9));
            match (random >> 60, list[at]) {
                (0, _) => {
                    assert_eq!(table.close(), closed);
                    closed = true;
                }
                (1 | 2, _) => {
                    table.open();
                    closed = false;
                }
                (3..=6, _) => {
                    let expected = if closed { None } else { free.pop() };
                    assert_eq!(table.allocate(pfn), expected);
                    if let Some(slot) = expected {
                        list[slot as usize] = Some((SlotState::Cached(pfn), 0));
                    }
                }
                (7..=9, Some((state, count))) => {
                    table.duplicate(slot);
                    list[at] = Some((state, count + 1));
                }
                (10..=12, Some((state, count))) if count > 0 => {
                    let expected = match state {
                        _ if count > 1 => SlotRelease::InUse,
                        SlotState::Cached(pfn) => SlotRelease::Unused(pfn),
                        SlotState::Evicted { .. } | SlotState::Free { .. } => SlotRelease::Freed,
                    };
                    assert_eq!(table.release(slot), expected, "slot {slot}, {state:?} with {count} entries");
                    list[at] = (expected != SlotRelease::Freed).then_some((state, count - 1));
                }
                (13, Some((SlotState::Cached(_), count))) => {
                    assert_eq!(table.evict(slot, step), count == 0);
                    list[at] = (count > 0).then_some((SlotState::Evicted { shadow: step }, count));
                }
                (14, Some((SlotState::Evicted { shadow }, count))) => {
                    assert_eq!(table.reload(slot, pfn), Some(shadow));
                    list[at] = Some((SlotState::Cached(pfn), count));
                }
                (15, None | Some((SlotState::Cached(_), _))) => assert_eq!(table.reload(slot, pfn), None),
                _ => {}
            }
            if list[at].is_none() && !free.contains(&slot) {
                free.push(slot);
            }
            compare_states(&table, &list);
            let left = free.len() as u32;
            let cached = list.iter().flatten().filter(|(state, _)| matches!(state, SlotState::Cached(_))).count();
            assert_eq!((table.len(), table.free(), table.cached() as usize), (SLOTS, left, cached));
            assert_eq!(table.room(), if closed { (0, 0) } else { (u64::from(SLOTS), u64::from(left)) });
            assert_eq!(table.is_empty(), left == SLOTS);
            let used = (0..).zip(list).filter_map(|(slot, state)| state.map(|(state, count)| (slot, state, count)));
            let used: Vec<_> = used.filter(|(used, ..)| *used >= slot).collect();
            assert_eq!(table.in_use(slot).collect::<Vec<_>>(), used, "from slot {slot}");
        }
    }

    #[test]
    fn no_slot_is_beyond_the_end_of_a_table() {
        let mut none = SlotTable::try_new(0).expect("no word");
        assert_eq!((none.allocate(Pfn::new(1)), none.len(), none.is_empty()), (None, 0, true));
        assert_eq!(none.lookup(0), SlotState::Free { next: END });
        let full = Word::new(SlotState::Evicted { shadow: u32::MAX }, (1 << 30) - 1);
        assert_eq!((full.slot(), full.count()), (SlotState::Evicted { shadow: u32::MAX }, (1 << 30) - 1));
    }
}
