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
use crate::mm::Mm;
use crate::reclaim::Shadow;
use pagewright_plant::{plant, planted};
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, FolioRef};
use pagewright_types::{Counter, Pfn, SwapEntry};

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

impl<P: Platform> Mm<P> {
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
    pub(crate) fn try_free_swap(&self, folio: Folio<'_>) {
        if let Some(_lock) = folio.try_lock() {
            self.free_swap(folio);
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
        let cached = folio.leave_swap_cache();
        plant!(SlotDiscardedLate; (), area.device.discard(&self.tlb, entry.slot()));
        slots.evict(entry.slot(), 0);
        drop(slots);
        plant!(SlotDiscardedLate => self.discard_late(&area, entry));
        if let Some(cached) = cached {
            self.put_folio(cached);
        }
    }

    planted! {
        /// Discards a slot that another page may have by now.
        fn discard_late(&self, area: &SwapArea<P>, entry: SwapEntry) {
            <P::Locks as pagewright_sync::Backend>::point();
            area.device.discard(&self.tlb, entry.slot());
        }
    }

    /// Evicts a folio from the cache, so that only its slot has the contents (`__remove_mapping`).
    ///
    /// The caller holds the folio's lock and a reference. Returns the swap entry, and leaves the
    /// shadow entry that `shadow` makes in the slot. Returns `None` if the folio is dirty or has
    /// references other than those of the caller and the caches; then `shadow` is not called.
    /// Otherwise the slot was written after the last store: a later store would have left a
    /// reference or the dirty flag.
    pub(crate) fn evict_to_swap(
        &self,
        folio: Folio<'_>,
        owner: SwapOwner,
        shadow: impl FnOnce() -> Shadow,
    ) -> Option<SwapEntry> {
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
        if slots.evict(entry.slot(), shadow().raw()) {
            area.device.discard(&self.tlb, entry.slot());
        }
        // The freeze took the reference of the cache, and the thaw leaves the caller's.
        let _ = folio.leave_swap_cache().map(FolioRef::into_raw);
        frozen.thaw(1);
        Some(entry)
    }

    /// Makes a slot name the frame `to`, if `exchange` succeeds under the lock of the slots.
    ///
    /// The caller holds the lock of the folio in the slot, so it is in the cache.
    ///
    /// # Errors
    /// That of `exchange`; nothing has changed.
    pub(crate) fn exchange_cached_slot<T, E>(
        &self,
        entry: SwapEntry,
        to: Pfn,
        exchange: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let area = self.area_of(entry);
        let mut slots = area.slots_mut(&self.swap.totals);
        let exchanged = exchange()?;
        slots.recache(entry.slot(), to);
        Ok(exchanged)
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
            plant!(PageOutCleansLate => { folio.clear_flags(FolioFlags::DIRTY); });
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
