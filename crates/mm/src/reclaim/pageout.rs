//! Pages on their way out: a list at a time (`shrink_folio_list`).

use super::CLUSTER;
use super::unmap::Leave;
use crate::mm::Mm;
use crate::swap::Left;
use arrayvec::ArrayVec;
use pagewright_sync::Platform;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, Isolated, Owner};
use pagewright_types::{Counter, NodeId, plant};

/// A page that may go: locked, and with a slot in swap if it needs one.
struct Leaving<'a> {
    isolated: Isolated,
    lock: FolioLock<'a>,
    leave: Leave,
}

/// What came of a list.
pub(super) struct PagedOut {
    /// Pages freed.
    pub(super) freed: u32,
    /// The node of each page that was written to swap.
    pub(super) written: ArrayVec<NodeId, CLUSTER>,
}

impl<P: Platform> Mm<P> {
    /// Takes pages from those who map them and frees those that nobody else holds. The others stay in `folios`, for the caller to put back.
    pub(super) fn page_out(&self, folios: &mut ArrayVec<Isolated, CLUSTER>) -> PagedOut {
        let mut leaving = ArrayVec::<Leaving<'_>, CLUSTER>::new();
        let mut staying = ArrayVec::new();
        for isolated in folios.drain(..) {
            match self.may_leave(self.frames().folio(isolated.pfn())) {
                Some((lock, leave)) => leaving.push(Leaving { isolated, lock, leave }),
                None => staying.push(isolated),
            }
        }
        let mut batch = Batch::new(&self.tlb);
        for page in &leaving {
            self.unmap_folio(self.frames().folio(page.isolated.pfn()), page.leave, &mut batch);
        }
        plant!(PageOutFreedEarly => {
            let written = leaving.iter().filter_map(|page| self.write_out(page)).collect();
            let freed = self.free_pages(leaving, &mut staying);
            *folios = staying;
            batch.settle();
            return PagedOut { freed, written };
        });
        let write = || leaving.iter().filter_map(|page| self.write_out(page)).collect();
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
        let freed = self.free_pages(leaving, &mut staying);
        *folios = staying;
        PagedOut { freed, written }
    }

    /// Frees what can be freed; the rest is active, if somebody has it mapped, and stays.
    fn free_pages(&self, leaving: ArrayVec<Leaving<'_>, CLUSTER>, staying: &mut ArrayVec<Isolated, CLUSTER>) -> u32 {
        let mut freed = 0;
        for page in leaving {
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
    fn may_leave<'a>(&'a self, folio: Folio<'a>) -> Option<(FolioLock<'a>, Leave)> {
        let lock = folio.try_lock()?;
        // What is in the swap cache stays there, and nobody's stays that, while it is locked.
        if !could_leave(folio) {
            return None;
        }
        let flags = folio.flags();
        if !flags.contains(FolioFlags::SWAPBACKED) {
            let leave = if folio.is_anon() { Leave::Nothing } else { Leave::Clean };
            return (folio.is_anon() || !flags.contains(FolioFlags::DIRTY)).then_some((lock, leave));
        }
        if folio.swap_entry().is_none() && !self.add_to_swap(folio) {
            // Nowhere to go: it is out of the way among the active ones (`activate_locked`).
            self.activate_isolated(folio);
            return None;
        }
        let leave = |entry| match folio.owner() {
            Owner::Anon(_) | Owner::None => Leave::Swap(entry),
            Owner::File(_) => Leave::Shared,
        };
        folio.swap_entry().map(|entry| (lock, leave(entry)))
    }

    /// Writes a page that nobody maps any more and that is not in its slot as it is; returns its node if it was written.
    fn write_out(&self, page: &Leaving<'_>) -> Option<NodeId> {
        let folio = self.frames().folio(page.isolated.pfn());
        let left = match page.leave {
            Leave::Swap(_) => Left::ByEntries,
            Leave::Shared => Left::ByObject,
            Leave::Clean | Leave::Nothing => return None,
        };
        let needed = !folio.is_mapped() && folio.flags().contains(FolioFlags::DIRTY);
        // What the device refuses stays in the cache, dirty, and is found there.
        (needed && self.write_to_swap(folio, left)).then(|| self.node_of(folio))
    }

    /// Frees a page if nobody but the caches and the caller has it.
    ///
    /// # Errors
    /// The page: somebody has.
    fn free_page(&self, page: Leaving<'_>) -> Result<(), Isolated> {
        let Leaving { isolated, lock, leave } = page;
        let view = self.frames().folio(isolated.pfn());
        let clean = || !view.flags().contains(FolioFlags::DIRTY);
        let free = !view.is_mapped()
            && match leave {
                Leave::Swap(_) => {
                    clean() && self.leave_to_swap(view, Left::ByEntries, self.shadow_of(view).raw()).is_some()
                }
                Leave::Shared => clean() && self.leave_shared(view),
                Leave::Clean => self.leave_file(view),
                // Somebody has unmapped it just now, and left it to us to take it out of the swap cache.
                Leave::Nothing => view.swap_entry().is_none(),
            };
        if !free && matches!(leave, Leave::Shared) {
            // It is where it was: nothing names the slot.
            self.free_swap(view);
        }
        drop(lock);
        if !free {
            self.leave_swap_if_unused(view);
            return Err(isolated);
        }
        if let Some(block) = self.frames().put(isolated.into_folio()) {
            self.tlb.free(block);
        }
        if matches!(leave, Leave::Nothing) {
            self.tlb.count(Counter::PgLazyFreed, 1);
        }
        Ok(())
    }

    /// Leaves a page of shared memory to its slot alone; false if somebody wants it.
    fn leave_shared(&self, folio: Folio<'_>) -> bool {
        let Owner::File(id) = folio.owner() else { return false };
        let file = self.files.get(id);
        file.is_some_and(|file| file.leave_to_swap(self, folio, self.shadow_of(folio).raw()))
    }

    /// Drops a page of a file out of its cache; false if somebody wants it.
    fn leave_file(&self, folio: Folio<'_>) -> bool {
        let Owner::File(id) = folio.owner() else { return false };
        self.files.get(id).is_some_and(|file| file.drop_clean(self, folio))
    }
}

/// Whether a folio that is not in use could go at all. One that was read from swap for a fault that lost its race is nobody's, but in the swap cache: its slot
/// has what it says. One that is pinned would have a place in the batch and stay.
pub(super) fn could_leave(folio: Folio<'_>) -> bool {
    let is_known = folio.owner() != Owner::None || folio.flags().contains(FolioFlags::SWAPCACHE);
    is_known && !folio.is_large() && !folio.seems_pinned()
}

/// Whether a page's contents have nowhere to go but swap, or nowhere at all.
pub(super) fn is_swappable(folio: Folio<'_>) -> bool {
    match folio.owner() {
        Owner::Anon(_) => true,
        Owner::File(_) => folio.flags().contains(FolioFlags::SWAPBACKED),
        Owner::None => false,
    }
}
