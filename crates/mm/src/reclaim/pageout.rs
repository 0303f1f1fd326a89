//! Pages on their way out: a list at a time (`shrink_folio_list`).

use super::CLUSTER;
use super::unmap::Leave;
use crate::mm::Mm;
use arrayvec::ArrayVec;
use pagewright_sync::Platform;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioLock, FolioRef, Owner};
use pagewright_types::{Counter, plant};

/// A page that may go: locked, and with a slot in swap if it needs one.
struct Leaving<'a> {
    folio: FolioRef,
    lock: FolioLock<'a>,
    leave: Leave,
    /// Whether everybody was asked who may store to it.
    all_asked: bool,
}

impl<P: Platform> Mm<P> {
    /// Takes pages of anonymous and shared memory from those who map them and frees what nobody else holds; returns how many. The references are given up.
    pub(crate) fn page_out(&self, folios: &mut ArrayVec<FolioRef, CLUSTER>) -> u32 {
        let mut leaving = ArrayVec::<Leaving<'_>, CLUSTER>::new();
        for folio in folios.drain(..) {
            match self.may_leave(self.frames().folio(folio.pfn())) {
                Some((lock, leave)) => leaving.push(Leaving { folio, lock, leave, all_asked: false }),
                None => self.put_folio(folio),
            }
        }
        let mut batch = Batch::new(&self.tlb);
        for page in &mut leaving {
            page.all_asked = self.unmap_folio(self.frames().folio_of(&page.folio), page.leave, &mut batch);
        }
        plant!(PageOutFreedEarly => {
            leaving.iter().for_each(|page| self.write_out(page));
            let freed = leaving.into_iter().map(|page| u32::from(self.free_page(page))).sum();
            batch.settle();
            return freed;
        });
        plant!(PageOutWrittenEarly => leaving.iter().for_each(|page| self.write_out(page)));
        batch.settle();
        plant!(PageOutWrittenEarly; (), leaving.iter().for_each(|page| self.write_out(page)));
        leaving.into_iter().map(|page| u32::from(self.free_page(page))).sum()
    }

    /// Locks a page that could go, and finds it a slot.
    fn may_leave<'a>(&'a self, folio: Folio<'a>) -> Option<(FolioLock<'a>, Leave)> {
        if !is_swappable(folio) || folio.is_large() || folio.maybe_pinned() {
            return None;
        }
        let lock = folio.try_lock()?;
        if !folio.flags().contains(FolioFlags::SWAPBACKED) {
            return Some((lock, Leave::Nothing));
        }
        if folio.swap_entry().is_none() && !self.add_to_swap(folio) {
            return None;
        }
        let leave = |entry| if folio.is_anon() { Leave::Swap(entry) } else { Leave::Shared };
        folio.swap_entry().map(|entry| (lock, leave(entry)))
    }

    /// Writes a page that nobody maps any more and that is not in its slot as it is.
    fn write_out(&self, page: &Leaving<'_>) {
        let folio = self.frames().folio_of(&page.folio);
        if matches!(page.leave, Leave::Swap(_) | Leave::Shared)
            && !folio.is_mapped()
            && folio.flags().contains(FolioFlags::DIRTY)
        {
            // What the device refuses stays in the cache, dirty, and is found there.
            let _ = self.write_to_swap(folio);
        }
    }

    /// Frees a page if nobody but the swap cache and the caller has it.
    fn free_page(&self, page: Leaving<'_>) -> bool {
        let Leaving { folio, lock, leave, all_asked } = page;
        let view = self.frames().folio(folio.pfn());
        let free = !view.is_mapped()
            && match leave {
                Leave::Swap(_) => !view.flags().contains(FolioFlags::DIRTY) && self.leave_to_swap(view, 0),
                Leave::Shared => all_asked && !view.flags().contains(FolioFlags::DIRTY) && self.leave_shared(view),
                Leave::Nothing => true,
            };
        if !free && matches!(leave, Leave::Shared) {
            // It is where it was: nothing names the slot.
            self.free_swap(view);
        }
        drop(lock);
        if !free {
            self.leave_swap_if_unused(view);
        }
        let last = self.frames().put(folio);
        let freed = last.is_some();
        if let Some(block) = last {
            self.tlb.free(block);
            if matches!(leave, Leave::Nothing) {
                self.tlb.count(Counter::PgLazyFreed, 1);
            }
        }
        freed
    }

    /// Leaves a page of shared memory to its slot alone; false if somebody wants it.
    fn leave_shared(&self, folio: Folio<'_>) -> bool {
        let Owner::File(id) = folio.owner() else { return false };
        self.files.get(id).is_some_and(|file| file.leave_to_swap(self, folio, 0))
    }
}

/// Whether a page's contents have nowhere to go but swap, or nowhere at all.
pub(super) fn is_swappable(folio: Folio<'_>) -> bool {
    match folio.owner() {
        Owner::Anon(_) => true,
        Owner::File(_) => folio.flags().contains(FolioFlags::SWAPBACKED),
        Owner::None => false,
    }
}
