//! Bringing a page back from swap (`do_swap_page`, `mm/memory.c`; `swap_cache_alloc_folio`).

use super::area::SwapArea;
use super::cache::SwapOwner;
use super::slot_table::SlotState;
use crate::error::FaultError;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::reclaim::Shadow;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioRef};
use pagewright_types::{Counter, Errno, Order, SwapEntry};

/// A locked folio of the swap cache with the contents of a slot.
pub(crate) struct SwapInFolio<'a> {
    /// The caller's reference.
    pub(crate) folio: FolioRef,
    pub(crate) lock: FolioLock<'a>,
    /// Whether it was read from the device.
    pub(crate) read: bool,
}

impl<P: Platform> Mm<P> {
    /// Swaps in a page: finds its folio in the cache, or reads it into a new one (`do_swap_page`).
    ///
    /// A new one is allocated by `policy`.
    ///
    /// Returns `None` if the entry is stale and must be read again.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`], or [`FaultError::Device`]; nothing has changed.
    pub(crate) fn swap_in_folio(
        &self,
        entry: SwapEntry,
        policy: MemPolicy,
    ) -> Result<Option<SwapInFolio<'_>>, FaultError> {
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
                None => self.cache_new_folio(&area, entry, policy)?,
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
            self.evict_to_swap(view, SwapOwner::Anon, || Shadow::NONE);
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
        let lock = loop {
            match view.try_lock() {
                Some(lock) => break lock,
                None => self.fx().relax(),
            }
        };
        if view.swap_entry() == Some(entry) {
            return Some((folio, lock));
        }
        drop(lock);
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
        policy: MemPolicy,
    ) -> Result<Option<(FolioRef, FolioLock<'_>)>, FaultError> {
        let folio = self.frames().new_folio(self.alloc(self.request(Order::ZERO, policy))?);
        let view = self.frames().folio(folio.pfn());
        let lock = view.try_lock().expect("a new folio is not locked");
        view.set_flags(FolioFlags::SWAPBACKED);
        let reloaded = {
            let mut slots = area.slots_mut(&self.swap.totals);
            let reloaded = slots.reload(entry.slot(), folio.pfn());
            if reloaded.is_some() {
                view.join_swap_cache(entry);
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
}
