//! Paging out one list of pages (`shrink_folio_list`).
//!
//! All pages are unmapped into one batch, one settle flushes it, and only then are they written and
//! freed.
//!
//! **INV-RECLAIM-SMALL** Only small folios are paged out. A large one has no slot for each of its
//! pages, and is split first, or stays.
//!
//! **INV-RECLAIM-UNEVICTABLE** Reclaim takes no page of an unevictable object (`SHM_LOCK`) that it
//! had not selected before the object became so, by whichever path and however many spaces map the
//! page.

use super::SWAP_CLUSTER_MAX;
use super::try_to_unmap::Victim;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::swap::SwapOwner;
use arrayvec::ArrayVec;
use pagewright_plant::{plant, planted};
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::LazyBatch;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioOwner, IsolatedFolio};
use pagewright_types::{Counter, NodeId};

/// A page to reclaim: locked, and with a swap slot if it needs one.
struct LockedVictim<'a> {
    isolated: IsolatedFolio,
    lock: FolioLock<'a>,
    kind: Victim,
}

/// Whether paging out and demotion wait for every flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageOutFlush {
    /// It does: a program relies on it, or needs frames at once.
    Complete,
    /// Read-only translations may linger (`tlb_linger`).
    MayLinger,
}

/// The result of paging out a list (`struct reclaim_stat`).
pub(super) struct ReclaimStat {
    /// The number of pages freed.
    pub(super) freed: u32,
    /// The node of each page that was written to swap.
    pub(super) written: ArrayVec<NodeId, SWAP_CLUSTER_MAX>,
}

impl<P: Platform> Mm<P> {
    /// Unmaps pages, writes the dirty ones to swap, and frees those without other references.
    ///
    /// The others stay in `folios`, and the caller puts them back.
    pub(super) fn page_out(
        &self,
        folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
        flush: PageOutFlush,
    ) -> ReclaimStat {
        let mut outgoing = ArrayVec::<LockedVictim<'_>, SWAP_CLUSTER_MAX>::new();
        let mut staying = ArrayVec::new();
        for isolated in folios.drain(..) {
            match self.lock_victim(self.frames().folio(isolated.pfn())) {
                Some((lock, kind)) => outgoing.push(LockedVictim { isolated, lock, kind }),
                None => staying.push(isolated),
            }
        }
        let lingers = flush == PageOutFlush::MayLinger && self.lets_unmapped_linger();
        let mut batch = LazyBatch::new(&self.tlb, lingers);
        for page in &outgoing {
            self.unmap_folio(self.frames().folio(page.isolated.pfn()), page.kind, &mut batch);
        }
        plant!(PageOutFreedEarly => return self.free_unflushed(outgoing, folios, staying, batch));
        plant!(PageOutWrittenEarly => return self.write_unflushed(outgoing, folios, staying, batch));
        batch.settle();
        let written = outgoing.iter().filter_map(|page| self.write_out(page)).collect();
        let freed = self.free_pages(outgoing, &mut staying);
        *folios = staying;
        ReclaimStat { freed, written }
    }

    planted! {
        /// Writes and frees pages before the flush.
        fn free_unflushed(
            &self,
            outgoing: ArrayVec<LockedVictim<'_>, SWAP_CLUSTER_MAX>,
            folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
            mut staying: ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
            batch: LazyBatch<'_, P>,
        ) -> ReclaimStat {
            let written = outgoing.iter().filter_map(|page| self.write_out(page)).collect();
            let freed = self.free_pages(outgoing, &mut staying);
            *folios = staying;
            batch.settle();
            ReclaimStat { freed, written }
        }

        /// Writes pages before the flush, and frees them after it.
        fn write_unflushed(
            &self,
            outgoing: ArrayVec<LockedVictim<'_>, SWAP_CLUSTER_MAX>,
            folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
            mut staying: ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
            batch: LazyBatch<'_, P>,
        ) -> ReclaimStat {
            let written = outgoing.iter().filter_map(|page| self.write_out(page)).collect();
            batch.settle();
            let freed = self.free_pages(outgoing, &mut staying);
            *folios = staying;
            ReclaimStat { freed, written }
        }
    }

    /// Frees the pages that it can; the others go to `staying`, and are activated if still mapped.
    fn free_pages(
        &self,
        outgoing: ArrayVec<LockedVictim<'_>, SWAP_CLUSTER_MAX>,
        staying: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
    ) -> u32 {
        let mut freed = 0;
        for page in outgoing {
            match self.free_page(page) {
                Ok(()) => freed += 1,
                Err(isolated) => {
                    let folio = self.frames().folio(isolated.pfn());
                    if folio.is_mapped() {
                        self.activate_isolated(folio);
                    }
                    staying.push(isolated);
                }
            }
        }
        freed
    }

    /// Locks a page and allocates a slot for it if needed; `None` if the page stays.
    fn lock_victim<'a>(&'a self, folio: Folio<'a>) -> Option<(FolioLock<'a>, Victim)> {
        let lock = folio.try_lock()?;
        // Checked under the lock, which keeps the folio in the swap cache, and without an owner if
        // it has none.
        if !is_reclaimable(folio) {
            return None;
        }
        let flags = folio.flags();
        if !flags.contains(FolioFlags::SWAPBACKED) {
            if !folio.is_anon() && flags.contains(FolioFlags::DIRTY) {
                // Background reclaim writes it. On the active list it is not scanned again soon.
                self.activate_isolated(folio);
                return None;
            }
            return Some((lock, if folio.is_anon() { Victim::LazyFree } else { Victim::File }));
        }
        // INV-RECLAIM-UNEVICTABLE. On the active list it is not scanned again soon.
        if plant!(UnevictablePagedOut; false, self.is_unevictable(folio)) {
            self.activate_isolated(folio);
            return None;
        }
        if folio.swap_entry().is_none() && !self.add_to_swap(folio) {
            // No slot is free. On the active list it is not scanned again soon (`activate_locked`).
            self.activate_isolated(folio);
            return None;
        }
        let kind = |entry| match folio.owner() {
            FolioOwner::Anon(_) | FolioOwner::None => Victim::Anon(entry),
            FolioOwner::File(_) => Victim::Shmem,
        };
        folio.swap_entry().map(|entry| (lock, kind(entry)))
    }

    /// Whether a page of shared memory stays because its object is unevictable (`folio_evictable`).
    pub(crate) fn is_unevictable(&self, folio: Folio<'_>) -> bool {
        folio.flags().contains(FolioFlags::SWAPBACKED) && self.file_of(folio).is_some_and(|file| file.is_unevictable())
    }

    /// The file or shared memory that a folio belongs to.
    pub(super) fn file_of(&self, folio: Folio<'_>) -> Option<Arc<FileObject<P>>> {
        let FolioOwner::File(id) = folio.owner() else { return None };
        self.files.get(id)
    }

    /// Writes a page to its slot if it is unmapped and dirty; returns its node if it was written.
    fn write_out(&self, page: &LockedVictim<'_>) -> Option<NodeId> {
        let folio = self.frames().folio(page.isolated.pfn());
        let owner = match page.kind {
            Victim::Anon(_) => SwapOwner::Anon,
            Victim::Shmem => SwapOwner::Shmem,
            Victim::File | Victim::LazyFree => return None,
        };
        let needed = !folio.is_mapped() && folio.flags().contains(FolioFlags::DIRTY);
        // If the device fails, the page stays dirty in the swap cache, where a fault finds it.
        (needed && self.write_to_swap(folio, owner)).then(|| self.node_of(folio))
    }

    /// Frees a page that has no references other than those of the caller and the caches.
    ///
    /// # Errors
    /// The page itself, if it stays.
    fn free_page(&self, page: LockedVictim<'_>) -> Result<(), IsolatedFolio> {
        let LockedVictim { isolated, lock, kind } = page;
        let view = self.frames().folio(isolated.pfn());
        let clean = || !view.flags().contains(FolioFlags::DIRTY);
        // Only an eviction that succeeds ages the node.
        let shadow = || self.shadow_of(view);
        let free = !view.is_mapped()
            && match kind {
                Victim::Anon(_) => clean() && self.evict_to_swap(view, SwapOwner::Anon, shadow).is_some(),
                Victim::Shmem => {
                    clean() && self.file_of(view).is_some_and(|file| file.evict_to_swap(self, view, shadow))
                }
                Victim::File => self.file_of(view).is_some_and(|file| file.evict_clean(self, view)),
                // A page in the swap cache was unmapped by another CPU just now, and must leave the
                // cache first, below. One with another reference stays, unmapped as it is.
                Victim::LazyFree => {
                    view.swap_entry().is_none()
                        && plant!(LazyFreeReferenced; true, view.freeze(1).map(|frozen| frozen.thaw(1)).is_ok())
                }
            };
        if !free {
            // No entry names the slot of a shared page, which is still in its object's cache. Any
            // other page keeps its slot while it is mapped.
            if matches!(kind, Victim::Shmem) || !view.is_mapped() {
                self.free_swap(view);
            }
            drop(lock);
            return Err(isolated);
        }
        drop(lock);
        self.put_folio(isolated.into_folio());
        if matches!(kind, Victim::LazyFree) {
            self.tlb.count(Counter::PgLazyFreed, 1);
        }
        Ok(())
    }
}

/// Whether an unused folio can be reclaimed at all.
///
/// INV-RECLAIM-SMALL: a large folio is split first, since it has no slot for each page.
/// A folio that was swapped in for a fault that lost its race has no owner, but is in the swap
/// cache, and its slot has its contents. A pinned folio would take up room in the batch and stay.
pub(super) fn is_reclaimable(folio: Folio<'_>) -> bool {
    let is_known = folio.owner() != FolioOwner::None || folio.flags().contains(FolioFlags::SWAPCACHE);
    is_known && !folio.is_large() && !folio.seems_pinned()
}
