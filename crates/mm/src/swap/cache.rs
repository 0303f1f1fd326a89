//! The swap cache: folios whose contents have a slot (`mm/swap_state.c`).
//!
//! A folio is put in before the first entry that maps it is replaced, and leaves when the last
//! reference beside the cache's is given up by who reclaims it, or when no entry names its slot and
//! somebody wants to store to it. So whoever finds an entry of a page in swap finds either the
//! folio, with all that was ever stored to it, or a slot that was written after the last store
//! (INV-SWAP-CACHE).
//!
//! Protocol: who has the folio locked may rely on its being in the cache. Looking up and leaving
//! meet under the lock of the area.

use super::SwapBacking;
use super::area::SwapArea;
use super::table::{Released, Slot};
use crate::error::FaultError;
use crate::mm::Mm;
use crate::reclaim::Shadow;
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioRef};
use pagewright_types::{Counter, Errno, Order, Pfn, SwapEntry};

/// Who names the slot of a page that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// Anonymous memory: entries of page tables.
    Entries,
    /// Shared memory: the object's cache, which is locked, has the page, and will have the slot in
    /// its place.
    Object,
}

impl NamedBy {
    /// References that the caller and the caches have.
    const fn refs(self) -> u32 {
        match self {
            Self::Entries => 2,
            Self::Object => 3,
        }
    }
}

/// A page out of swap, locked.
pub(crate) struct FromSwap<'a> {
    /// A reference of the caller's own.
    pub(crate) folio: FolioRef,
    pub(crate) lock: FolioLock<'a>,
    /// Whether it had to be read.
    pub(crate) read: bool,
}

impl<P: Platform> Mm<P> {
    /// Finds a slot for a folio that the caller has locked, and puts it into the cache: dirty,
    /// since the slot has none of its contents yet (`folio_alloc_swap`). False: there is no slot.
    pub(crate) fn add_to_swap(&self, folio: Folio<'_>) -> bool {
        let mut next = self.swap.next_in_turn(None);
        while let Some((place, number, area)) = next {
            let mut slots = area.change(&self.swap.totals);
            if let Some(slot) = slots.allocate(folio.pfn()) {
                folio.get_raw(1);
                folio.set_flags(FolioFlags::DIRTY);
                folio.set_swap_entry(Some(SwapEntry::new(number, slot)));
                drop(slots);
                self.swap.take_turn(number);
                return true;
            }
            drop(slots);
            next = self.swap.next_in_turn(Some(place));
        }
        false
    }

    /// One more entry names a slot that is in use.
    ///
    /// The caller holds the lock under which he found it to be.
    pub(crate) fn swap_duplicate(&self, entry: SwapEntry) {
        let area = self.area_of(entry);
        area.change(&self.swap.totals).duplicate(entry.slot());
    }

    /// An entry that named a slot is gone (`free_swap_and_cache`).
    ///
    /// The caller may hold the lock of the table in which it stood.
    pub(crate) fn swap_release(&self, entry: SwapEntry) {
        let area = self.area_of(entry);
        let unused = {
            let mut slots = area.change(&self.swap.totals);
            match slots.release(entry.slot()) {
                Released::InUse => None,
                Released::Unused(pfn) => Some(self.frames().folio(pfn).get()),
                Released::Freed => {
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

    /// Takes a folio that nothing maps, and whose slot no entry names, out of the cache; unless
    /// somebody has it locked, who will ask for that himself. The caller has a reference.
    pub(crate) fn free_swap_cache(&self, folio: Folio<'_>) {
        if folio.flags().contains(FolioFlags::SWAPCACHE) && !folio.is_mapped() {
            self.try_free_swap(folio);
        }
    }

    /// [`Self::free_swap`], unless somebody has the folio locked.
    ///
    /// The caller has a reference, and has not locked it.
    pub(super) fn try_free_swap(&self, folio: Folio<'_>) {
        if let Some(lock) = folio.try_lock() {
            self.free_swap(folio);
            drop(lock);
        }
    }

    /// Takes a folio, which the caller has locked and has a reference to, out of the cache if no
    /// entry names its slot: what it says is nowhere else from now on (`folio_free_swap`).
    pub(crate) fn free_swap(&self, folio: Folio<'_>) {
        let Some(entry) = folio.swap_entry() else { return };
        let area = self.area_of(entry);
        let mut slots = area.change(&self.swap.totals);
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

    /// Whether the one reference to a folio is that of the entry by which the caller found it,
    /// whose table he has locked, but for the swap cache, which it then leaves
    /// (`wp_can_reuse_anon_folio`).
    pub(crate) fn is_alone(&self, folio: Folio<'_>) -> bool {
        if folio.flags().contains(FolioFlags::SWAPCACHE) && folio.refs() == 2 {
            self.try_free_swap(folio);
        }
        folio.refs() == 1
    }

    /// Takes a folio out of the cache and gives its slot alone the contents, if the caller, who has
    /// it locked, and the caches are all who have it (`__remove_mapping`). It was written to the
    /// slot after the last store: whoever has stored to it since still has it, or has left it
    /// dirty. `shadow` says when it went. Returns the slot; `None`: it stays.
    pub(crate) fn evict_to_swap(&self, folio: Folio<'_>, named_by: NamedBy, shadow: u32) -> Option<SwapEntry> {
        let entry = folio.swap_entry()?;
        let area = self.area_of(entry);
        let mut slots = area.change(&self.swap.totals);
        let refs = named_by.refs();
        let frozen = folio.freeze(refs).ok()?;
        if folio.flags().contains(FolioFlags::DIRTY) {
            frozen.thaw(refs);
            return None;
        }
        if named_by == NamedBy::Object {
            slots.duplicate(entry.slot());
        }
        if slots.evict(entry.slot(), shadow) {
            area.device.discard(&self.tlb, entry.slot());
        }
        folio.set_swap_entry(None);
        frozen.thaw(1);
        Some(entry)
    }

    /// Writes a folio, which the caller has locked and nothing maps, to its slot.
    ///
    /// False: it is dirty still, because the device can't take it, or because somebody may store to
    /// it unseen.
    pub(crate) fn write_to_swap(&self, folio: Folio<'_>, named_by: NamedBy) -> bool {
        let Some(entry) = folio.swap_entry() else { return false };
        let area = self.area_of(entry);
        folio.set_flags(FolioFlags::WRITEBACK);
        folio.clear_flags(FolioFlags::DIRTY);
        // Somebody may have unmapped shared memory himself and not flushed yet: the mark that went
        // just now may be all that told of the stores that still come. He has a reference until he
        // has flushed (INV-TLB-SHARED); whoever finds the page from here on leaves another mark.
        let unseen = plant!(PageOutReferenced; false, named_by == NamedBy::Object && folio.refs() != named_by.refs());
        let mut get = self.reader_of(folio.pfn());
        let written = !unseen && area.device.write_page(&self.tlb, entry.slot(), &mut get).is_ok();
        if written {
            self.tlb.count(Counter::PswpOut, 1);
        } else {
            folio.set_flags(FolioFlags::DIRTY);
        }
        folio.clear_flags(FolioFlags::WRITEBACK);
        written
    }

    /// Whether the page of an entry, which may be gone by now, could be had without its device
    /// (`mincore_swap`).
    pub(crate) fn is_in_swap_cache(&self, entry: SwapEntry) -> bool {
        self.swap.area(entry.device()).is_some_and(|area| match area.look().look_up(entry.slot()) {
            Slot::Cached(pfn) => self.frames().folio(pfn).flags().contains(FolioFlags::UPTODATE),
            Slot::Evicted { .. } | Slot::Free { .. } => false,
        })
    }

    /// The page in a slot: out of the cache, or read into it (`do_swap_page`).
    ///
    /// `None`: the slot means nothing any more; look at the entry again.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`], or [`FaultError::Device`]; nothing has changed.
    pub(crate) fn page_from_swap(&self, entry: SwapEntry) -> Result<Option<FromSwap<'_>>, FaultError> {
        let Some(area) = self.swap.area(entry.device()) else { return Ok(None) };
        let (folio, lock) = loop {
            let cached = {
                let slots = area.look();
                match slots.look_up(entry.slot()) {
                    Slot::Free { .. } => return Ok(None),
                    Slot::Cached(pfn) => Some(self.frames().folio(pfn).get()),
                    Slot::Evicted { .. } => None,
                }
            };
            let found = match cached {
                Some(folio) => self.lock_in_cache(folio, entry),
                None => self.make_for_slot(&area, entry)?,
            };
            // If not, somebody else was faster: the slot is something else now.
            if let Some(found) = found {
                break found;
            }
        };
        let view = self.frames().folio_of(&folio);
        let read = !view.flags().contains(FolioFlags::UPTODATE);
        if read && let Err(errno) = self.read_slot(&area, entry, view) {
            // It stays in the cache if somebody else has just found it, and is read when it is next
            // wanted.
            self.evict_to_swap(view, NamedBy::Entries, 0);
            drop(lock);
            self.free_swap_cache(view);
            self.put_folio(folio);
            return Err(FaultError::Device { index: u64::from(entry.slot()), errno });
        }
        Ok(Some(FromSwap { folio, lock, read }))
    }

    /// Waits for the lock of a folio that was found in the cache; `None` if it has left.
    ///
    /// Whoever has it locked waits for no lock above the tables', and what is wanted here does not
    /// go: our reference keeps it.
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

    /// Puts a new folio into the cache for a slot that has none; `None` if somebody else was
    /// faster, or freed the slot.
    fn make_for_slot(
        &self,
        area: &SwapArea<P>,
        entry: SwapEntry,
    ) -> Result<Option<(FolioRef, FolioLock<'_>)>, FaultError> {
        let folio = self.frames().new_folio(self.alloc(Order::ZERO)?);
        let view = self.frames().folio(folio.pfn());
        let lock = view.try_lock().expect("nobody else can find a folio that was just made");
        view.set_flags(FolioFlags::SWAPBACKED);
        let reloaded = {
            let mut slots = area.change(&self.swap.totals);
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

    fn read_slot(&self, area: &SwapArea<P>, entry: SwapEntry, folio: Folio<'_>) -> Result<(), Errno> {
        area.device.read_page(&self.tlb, entry.slot(), &mut self.writer_of(folio.pfn()))?;
        folio.set_flags(FolioFlags::UPTODATE);
        self.tlb.count(Counter::PswpIn, 1);
        Ok(())
    }

    /// The device of a slot that an entry names, or a folio in the cache: it stays while one does.
    fn area_of(&self, entry: SwapEntry) -> Arc<SwapArea<P>> {
        self.swap.area(entry.device()).expect("INV-SWAP-COUNT: a slot in use is on no device")
    }

    /// Calls `visit` with each folio in the cache.
    pub(crate) fn for_each_in_swap_cache(&self, mut visit: impl FnMut(Pfn)) {
        self.for_each_area(|_, area| {
            for (_, slot, _) in area.look().in_use(0) {
                if let Slot::Cached(pfn) = slot {
                    visit(pfn);
                }
            }
        });
    }

    /// Calls `visit` with each slot that somebody has, and how many entries name it.
    pub(crate) fn for_each_slot(&self, mut visit: impl FnMut(SwapEntry, u64)) {
        self.for_each_area(|number, area| {
            for (slot, _, entries) in area.look().in_use(0) {
                visit(SwapEntry::new(number, slot), u64::from(entries));
            }
        });
    }

    /// Calls `visit` with each frame that has compressed pages.
    pub(crate) fn for_each_zram_frame(&self, mut visit: impl FnMut(Pfn)) {
        self.for_each_area(|_, area| match &area.device {
            SwapBacking::Zram(zram) => zram.for_each_frame(&mut visit),
            SwapBacking::Device(_) => {}
        });
    }
}
