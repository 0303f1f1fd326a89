//! Pages on their way out: a list at a time (`shrink_folio_list`).

use super::SWAP_CLUSTER_MAX;
use super::unmap::Victim;
use crate::mm::Mm;
use crate::swap::SwapOwner;
use arrayvec::ArrayVec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioOwner, IsolatedFolio};
use pagewright_types::{Counter, NodeId};

/// A page that may go: locked, and with a slot in swap if it needs one.
struct Outgoing<'a> {
    isolated: IsolatedFolio,
    lock: FolioLock<'a>,
    kind: Victim,
}

/// What came of a list.
pub(super) struct PagedOut {
    /// Pages freed.
    pub(super) freed: u32,
    /// The node of each page that was written to swap.
    pub(super) written: ArrayVec<NodeId, SWAP_CLUSTER_MAX>,
}

impl<P: Platform> Mm<P> {
    /// Takes pages from those who map them and frees those that nobody else holds.
    ///
    /// The others stay in `folios`, for the caller to put back.
    pub(super) fn page_out(&self, folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>) -> PagedOut {
        let mut outgoing = ArrayVec::<Outgoing<'_>, SWAP_CLUSTER_MAX>::new();
        let mut staying = ArrayVec::new();
        for isolated in folios.drain(..) {
            match self.lock_victim(self.frames().folio(isolated.pfn())) {
                Some((lock, kind)) => outgoing.push(Outgoing { isolated, lock, kind }),
                None => staying.push(isolated),
            }
        }
        let mut batch = Batch::new(&self.tlb);
        for page in &outgoing {
            self.unmap_folio(self.frames().folio(page.isolated.pfn()), page.kind, &mut batch);
        }
        plant!(PageOutFreedEarly => {
            let written = outgoing.iter().filter_map(|page| self.write_out(page)).collect();
            let freed = self.free_pages(outgoing, &mut staying);
            *folios = staying;
            batch.settle();
            return PagedOut { freed, written };
        });
        let write = || outgoing.iter().filter_map(|page| self.write_out(page)).collect();
        let written = plant!(PageOutWrittenEarly;
        {
            let written = write();
            batch.settle();
            written
        },
        {
            batch.settle();
            write()
        });
        let freed = self.free_pages(outgoing, &mut staying);
        *folios = staying;
        PagedOut { freed, written }
    }

    /// Frees what can be freed; the rest is active, if somebody has it mapped, and stays.
    fn free_pages(
        &self,
        outgoing: ArrayVec<Outgoing<'_>, SWAP_CLUSTER_MAX>,
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

    /// Locks a page that could go, and finds it a slot if it needs one.
    fn lock_victim<'a>(&'a self, folio: Folio<'a>) -> Option<(FolioLock<'a>, Victim)> {
        let lock = folio.try_lock()?;
        // What is in the swap cache stays there, and nobody's stays that, while it is locked.
        if !is_reclaimable(folio) {
            return None;
        }
        let flags = folio.flags();
        if !flags.contains(FolioFlags::SWAPBACKED) {
            let kind = if folio.is_anon() { Victim::LazyFree } else { Victim::File };
            return (folio.is_anon() || !flags.contains(FolioFlags::DIRTY)).then_some((lock, kind));
        }
        if folio.swap_entry().is_none() && !self.add_to_swap(folio) {
            // Nowhere to go: it is out of the way among the active ones (`activate_locked`).
            self.activate_isolated(folio);
            return None;
        }
        let kind = |entry| match folio.owner() {
            FolioOwner::Anon(_) | FolioOwner::None => Victim::Anon(entry),
            FolioOwner::File(_) => Victim::Shmem,
        };
        folio.swap_entry().map(|entry| (lock, kind(entry)))
    }

    /// Writes a page that nobody maps any more and that is not in its slot as it is; returns its
    /// node if it was written.
    fn write_out(&self, page: &Outgoing<'_>) -> Option<NodeId> {
        let folio = self.frames().folio(page.isolated.pfn());
        let owner = match page.kind {
            Victim::Anon(_) => SwapOwner::Anon,
            Victim::Shmem => SwapOwner::Shmem,
            Victim::File | Victim::LazyFree => return None,
        };
        let needed = !folio.is_mapped() && folio.flags().contains(FolioFlags::DIRTY);
        // What the device refuses stays in the cache, dirty, and is found there.
        (needed && self.write_to_swap(folio, owner)).then(|| self.node_of(folio))
    }

    /// Frees a page if nobody but the caches and the caller has it.
    ///
    /// # Errors
    /// The page: somebody has.
    fn free_page(&self, page: Outgoing<'_>) -> Result<(), IsolatedFolio> {
        let Outgoing { isolated, lock, kind } = page;
        let view = self.frames().folio(isolated.pfn());
        let clean = || !view.flags().contains(FolioFlags::DIRTY);
        let free = !view.is_mapped()
            && match kind {
                Victim::Anon(_) => {
                    clean() && self.evict_to_swap(view, SwapOwner::Anon, self.shadow_of(view).raw()).is_some()
                }
                Victim::Shmem => clean() && self.evict_shmem(view),
                Victim::File => self.drop_file_page(view),
                // Somebody has unmapped it just now, and left it to us to take it out of the swap
                // cache.
                Victim::LazyFree => view.swap_entry().is_none(),
            };
        if !free && matches!(kind, Victim::Shmem) {
            // It is where it was: nothing names the slot.
            self.free_swap(view);
        }
        drop(lock);
        if !free {
            self.free_swap_cache(view);
            return Err(isolated);
        }
        if let Some(block) = self.frames().put(isolated.into_folio()) {
            self.tlb.free(block);
        }
        if matches!(kind, Victim::LazyFree) {
            self.tlb.count(Counter::PgLazyFreed, 1);
        }
        Ok(())
    }

    /// Leaves a page of shared memory to its slot alone; false if somebody wants it.
    fn evict_shmem(&self, folio: Folio<'_>) -> bool {
        let FolioOwner::File(id) = folio.owner() else { return false };
        let file = self.files.get(id);
        file.is_some_and(|file| file.evict_to_swap(self, folio, self.shadow_of(folio).raw()))
    }

    /// Drops a page of a file out of its cache; false if somebody wants it.
    fn drop_file_page(&self, folio: Folio<'_>) -> bool {
        let FolioOwner::File(id) = folio.owner() else { return false };
        self.files.get(id).is_some_and(|file| file.evict_clean(self, folio))
    }
}

/// Whether a folio that is not in use could go at all.
///
/// One that was read from swap for a fault that lost its race is nobody's, but in the swap cache:
/// its slot has what it says. One that is pinned would have a place in the batch and stay.
pub(super) fn is_reclaimable(folio: Folio<'_>) -> bool {
    let is_known = folio.owner() != FolioOwner::None || folio.flags().contains(FolioFlags::SWAPCACHE);
    is_known && !folio.is_large() && !folio.seems_pinned()
}

/// Whether a page's contents have nowhere to go but swap, or nowhere at all.
pub(super) fn is_swappable(folio: Folio<'_>) -> bool {
    match folio.owner() {
        FolioOwner::Anon(_) => true,
        FolioOwner::File(_) => folio.flags().contains(FolioFlags::SWAPBACKED),
        FolioOwner::None => false,
    }
}
