//! The swap cache: folios whose contents have a slot (`mm/swap_state.c`).
//!
//! A folio enters the cache before the first entry that maps it is replaced. It leaves in two
//! cases: reclaim evicts it and holds the last reference beside the cache's, or no entry names its
//! slot and the folio is about to be stored to. So an operation that finds a swap entry finds
//! either the folio, with every store ever made to it, or a slot that was written after the last
//! store (INV-SWAP-CACHE).
//!
//! Protocol: a folio that is locked does not enter or leave the cache, except by the lock's holder.
//! Lookup and removal exclude each other by the lock of the area's slots.

use super::SwapBacking;
use super::area::SwapArea;
use super::slot_table::{SlotRelease, SlotState};
use crate::error::FaultError;
use crate::mm::Mm;
use crate::reclaim::Shadow;
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioRef};
use pagewright_types::{Counter, Errno, Order, Pfn, SwapEntry};

/// The kind of memory that a swapped folio belongs to, and so what names its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapOwner {
    /// Anonymous memory, whose swap PTEs name the slot.
    Anon,
    /// Shared memory, whose locked page cache holds the page and then the swap entry in its place.
    Shmem,
}

impl SwapOwner {
    /// The references of the caller and of the caches.
    const fn refs(self) -> u32 {
        match self {
            Self::Anon => 2,
            Self::Shmem => 3,
        }
    }
}

/// A locked folio of the swap cache with the contents of a slot.
pub(crate) struct SwapInFolio<'a> {
    /// The caller's reference.
    pub(crate) folio: FolioRef,
    pub(crate) lock: FolioLock<'a>,
    /// Whether it was read from the device.
    pub(crate) read: bool,
}

impl<P: Platform> Mm<P> {
    /// Allocates a slot for a folio that the caller has locked, and adds the folio to the cache.
    ///
    /// Linux: `folio_alloc_swap`. The folio becomes dirty, because its slot is not written yet.
    /// Returns whether a slot was free.
    pub(crate) fn add_to_swap(&self, folio: Folio<'_>) -> bool {
        let mut next = self.swap.next_device(None);
        while let Some((place, number, area)) = next {
            let mut slots = area.slots_mut(&self.swap.totals);
            if let Some(slot) = slots.allocate(folio.pfn()) {
                folio.get_raw(1);
                folio.set_flags(FolioFlags::DIRTY);
                folio.set_swap_entry(Some(SwapEntry::new(number, slot)));
                drop(slots);
                self.swap.count_allocation(number);
                return true;
            }
            drop(slots);
            next = self.swap.next_device(Some(place));
        }
        false
    }

    /// Counts one more entry that names a slot in use (`swap_duplicate`).
    ///
    /// The caller holds the lock under which it found that the slot is in use.
    pub(crate) fn swap_duplicate(&self, entry: SwapEntry) {
        let area = self.area_of(entry);
        area.slots_mut(&self.swap.totals).duplicate(entry.slot());
    }

    /// Releases an entry that named a slot (`free_swap_and_cache`).
    ///
    /// The caller may hold the lock of the table in which the entry stood.
    pub(crate) fn swap_release(&self, entry: SwapEntry) {
        let area = self.area_of(entry);
        let unused = {
            let mut slots = area.slots_mut(&self.swap.totals);
            match slots.release(entry.slot()) {
                SlotRelease::InUse => None,
                SlotRelease::Unused(pfn) => Some(self.frames().folio(pfn).get()),
                SlotRelease::Freed => {
                    area.device.discard(&self.tlb, entry.slot());
                    None
                }
            }
        };
        if let Some(folio) = unused {
            self.free_swap_cache(self.frames().folio_of(&folio));
            self.put_folio(folio);
        }
    }

    /// Removes an unmapped folio from the cache if no entry names its slot.
    ///
    /// The caller holds a reference. If the folio is locked, the holder of its lock does this
    /// instead.
    pub(crate) fn free_swap_cache(&self, folio: Folio<'_>) {
        if folio.flags().contains(FolioFlags::SWAPCACHE) && !folio.is_mapped() {
            self.try_free_swap(folio);
        }
    }

    /// As [`Self::free_swap`], unless the folio is locked.
    ///
    /// The caller holds a reference, and not the folio's lock.
    pub(super) fn try_free_swap(&self, folio: Folio<'_>) {
        if let Some(lock) = folio.try_lock() {
            self.free_swap(folio);
            drop(lock);
        }
    }

    /// Removes a folio from the cache and frees its slot, if no entry names the slot.
    ///
    /// Linux: `folio_free_swap`. The caller holds the folio's lock and a reference. The folio
    /// becomes dirty, because it has the only copy of its contents.
    pub(crate) fn free_swap(&self, folio: Folio<'_>) {
        let Some(entry) = folio.swap_entry() else { return };
        let area = self.area_of(entry);
        let mut slots = area.slots_mut(&self.swap.totals);
        if slots.get(entry.slot()).1 > 0 {
            return;
        }
        folio.set_flags(FolioFlags::DIRTY);
        folio.set_swap_entry(None);
        area.device.discard(&self.tlb, entry.slot());
        slots.evict(entry.slot(), 0);
        drop(slots);
        self.put_folio(self.frames().folio_ref_from_raw(folio.pfn()));
    }

    /// Whether the caller's entry holds the only reference to a folio (`wp_can_reuse_anon_folio`).
    ///
    /// The caller has locked the table of that entry. If the swap cache holds the only other
    /// reference, this first tries to remove the folio from it.
    pub(crate) fn can_reuse_anon(&self, folio: Folio<'_>) -> bool {
        if folio.flags().contains(FolioFlags::SWAPCACHE) && folio.refs() == 2 {
            self.try_free_swap(folio);
        }
        folio.refs() == 1
    }

    /// Evicts a folio from the cache, so that only its slot has the contents (`__remove_mapping`).
    ///
    /// The caller holds the folio's lock and a reference. Returns the swap entry, and leaves
    /// `shadow` in the slot. Returns `None` if the folio is dirty or has references other than
    /// those of the caller and the caches. Otherwise the slot was written after the last store: a
    /// later store would have left a reference or the dirty flag.
    pub(crate) fn evict_to_swap(&self, folio: Folio<'_>, owner: SwapOwner, shadow: u32) -> Option<SwapEntry> {
        let entry = folio.swap_entry()?;
        let area = self.area_of(entry);
        let mut slots = area.slots_mut(&self.swap.totals);
        let refs = owner.refs();
        let frozen = folio.freeze(refs).ok()?;
        if folio.flags().contains(FolioFlags::DIRTY) {
            frozen.thaw(refs);
            return None;
        }
        if owner == SwapOwner::Shmem {
            slots.duplicate(entry.slot());
        }
        if slots.evict(entry.slot(), shadow) {
            area.device.discard(&self.tlb, entry.slot());
        }
        folio.set_swap_entry(None);
        frozen.thaw(1);
        Some(entry)
    }

    /// Writes an unmapped folio that the caller has locked to its slot, and returns whether it did.
    ///
    /// The folio stays dirty if the device fails, or if stores to it may still be in flight.
    pub(crate) fn write_to_swap(&self, folio: Folio<'_>, owner: SwapOwner) -> bool {
        let Some(entry) = folio.swap_entry() else { return false };
        let area = self.area_of(entry);
        folio.set_flags(FolioFlags::WRITEBACK);
        folio.clear_flags(FolioFlags::DIRTY);
        // Another CPU may have unmapped a shared-memory page and not flushed yet. Stores that are
        // still possible through its stale translations set no dirty flag again. Until it flushes,
        // it holds a reference (INV-TLB-SHARED). An operation that finds the page from here on sets
        // the flag itself.
        let in_flight = plant!(PageOutReferenced; false, owner == SwapOwner::Shmem && folio.refs() != owner.refs());
        let mut get = self.reader_of(folio.pfn());
        let written = !in_flight && area.device.write_page(&self.tlb, entry.slot(), &mut get).is_ok();
        if written {
            self.tlb.count(Counter::PswpOut, 1);
        } else {
            folio.set_flags(FolioFlags::DIRTY);
        }
        folio.clear_flags(FolioFlags::WRITEBACK);
        written
    }

    /// Whether the swap cache has the page of an entry that may be stale (`mincore_swap`).
    pub(crate) fn is_in_swap_cache(&self, entry: SwapEntry) -> bool {
        self.swap.area(entry.device()).is_some_and(|area| match area.slots().lookup(entry.slot()) {
            SlotState::Cached(pfn) => self.frames().folio(pfn).flags().contains(FolioFlags::UPTODATE),
            SlotState::Evicted { .. } | SlotState::Free { .. } => false,
        })
    }

    /// Swaps in a page: finds its folio in the cache, or reads it into a new one (`do_swap_page`).
    ///
    /// Returns `None` if the entry is stale and must be read again.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`], or [`FaultError::Device`]; nothing has changed.
    pub(crate) fn swap_in_folio(&self, entry: SwapEntry) -> Result<Option<SwapInFolio<'_>>, FaultError> {
        let Some(area) = self.swap.area(entry.device()) else { return Ok(None) };
        let (folio, lock) = loop {
            let cached = {
                let slots = area.slots();
                match slots.lookup(entry.slot()) {
                    SlotState::Free { .. } => return Ok(None),
                    SlotState::Cached(pfn) => Some(self.frames().folio(pfn).get()),
                    SlotState::Evicted { .. } => None,
                }
            };
            let found = match cached {
                Some(folio) => self.lock_in_cache(folio, entry),
                None => self.cache_new_folio(&area, entry)?,
            };
            // Otherwise another CPU has changed the slot meanwhile.
            if let Some(found) = found {
                break found;
            }
        };
        let view = self.frames().folio_of(&folio);
        let read = !view.flags().contains(FolioFlags::UPTODATE);
        if read && let Err(errno) = self.read_slot(&area, entry, view) {
            // If another CPU has just found the folio, it stays in the cache, and the next lookup
            // reads it again.
            self.evict_to_swap(view, SwapOwner::Anon, 0);
            drop(lock);
            self.free_swap_cache(view);
            self.put_folio(folio);
            return Err(FaultError::Device { index: u64::from(entry.slot()), errno });
        }
        Ok(Some(SwapInFolio { folio, lock, read }))
    }

    /// Locks a folio that was found in the cache; `None` if it has left the cache.
    ///
    /// The wait cannot deadlock: the lock's holder waits only for page-table locks and locks below
    /// them. The caller's reference keeps the folio.
    fn lock_in_cache(&self, folio: FolioRef, entry: SwapEntry) -> Option<(FolioRef, FolioLock<'_>)> {
        let view = self.frames().folio_of(&folio);
        while view.swap_entry() == Some(entry) {
            match view.try_lock() {
                Some(lock) if view.swap_entry() == Some(entry) => return Some((folio, lock)),
                Some(_) => break,
                None => self.fx().relax(),
            }
        }
        self.put_folio(folio);
        None
    }

    /// Adds a new, locked folio to the cache for an evicted slot.
    ///
    /// Returns `None` if another CPU has added one or freed the slot.
    fn cache_new_folio(
        &self,
        area: &SwapArea<P>,
        entry: SwapEntry,
    ) -> Result<Option<(FolioRef, FolioLock<'_>)>, FaultError> {
        let folio = self.frames().new_folio(self.alloc(Order::ZERO)?);
        let view = self.frames().folio(folio.pfn());
        let lock = view.try_lock().expect("a new folio is not locked");
        view.set_flags(FolioFlags::SWAPBACKED);
        let reloaded = {
            let mut slots = area.slots_mut(&self.swap.totals);
            let reloaded = slots.reload(entry.slot(), folio.pfn());
            if reloaded.is_some() {
                view.get_raw(1);
                view.set_swap_entry(Some(entry));
            }
            reloaded
        };
        let Some(shadow) = reloaded else {
            drop(lock);
            self.put_folio(folio);
            return Ok(None);
        };
        self.note_refault(view, Shadow::from_raw(shadow));
        self.frames().lru_add(view);
        Ok(Some((folio, lock)))
    }

    /// Reads a slot into its locked folio.
    fn read_slot(&self, area: &SwapArea<P>, entry: SwapEntry, folio: Folio<'_>) -> Result<(), Errno> {
        area.device.read_page(&self.tlb, entry.slot(), &mut self.writer_of(folio.pfn()))?;
        folio.set_flags(FolioFlags::UPTODATE);
        self.tlb.count(Counter::PswpIn, 1);
        Ok(())
    }

    /// The device of a slot in use, which cannot be removed meanwhile.
    fn area_of(&self, entry: SwapEntry) -> Arc<SwapArea<P>> {
        self.swap.area(entry.device()).expect("INV-SWAP-COUNT: the device of a slot in use is gone")
    }

    /// Calls `visit` with each folio in the cache.
    pub(crate) fn for_each_in_swap_cache(&self, mut visit: impl FnMut(Pfn)) {
        self.for_each_area(|_, area| {
            for (_, slot, _) in area.slots().in_use(0) {
                if let SlotState::Cached(pfn) = slot {
                    visit(pfn);
                }
            }
        });
    }

    /// Calls `visit` with each slot in use and the number of entries that name it.
    pub(crate) fn for_each_slot(&self, mut visit: impl FnMut(SwapEntry, u64)) {
        self.for_each_area(|number, area| {
            for (slot, _, entries) in area.slots().in_use(0) {
                visit(SwapEntry::new(number, slot), u64::from(entries));
            }
        });
    }

    /// Calls `visit` with each frame in which a [`Zram`](super::Zram) stores pages.
    pub(crate) fn for_each_zram_frame(&self, mut visit: impl FnMut(Pfn)) {
        self.for_each_area(|_, area| match &area.device {
            SwapBacking::Zram(zram) => zram.for_each_frame(&mut visit),
            SwapBacking::Device(_) => {}
        });
    }
}
