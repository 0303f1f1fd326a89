//! Clearing the entries of a page that moves (`try_to_migrate`).

use super::{MigrateStop, MovingPage};
use crate::mm::Mm;
use crate::rmap::{FolioVisit, SpaceLock};
use alloc::vec::Vec;
use core::ops::ControlFlow;
use pagewright_arch::PteSlot;
use pagewright_plant::plant;
use pagewright_sync::{FullBarrier, Platform};
use pagewright_tlb::LazyBatch;
use pagewright_types::{PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Replaces the leaves of a locked page by migration entries; `batch` owes the flushes.
    ///
    /// Their places go to `places`, which does not grow. Locks of spaces are only tried. The caller
    /// ends the folio in `batch`.
    ///
    /// # Errors
    /// [`MigrateStop`]; entries that were replaced before are in `places`.
    pub(super) fn clear_entries(
        &self,
        page: &MovingPage<'_>,
        places: &mut Vec<PteSlot>,
        batch: &mut LazyBatch<'_, P>,
    ) -> Result<(), MigrateStop> {
        let folio = self.frames().folio(page.isolated.pfn());
        batch.begin_folio(self.contents_may_linger(folio));
        let (mut stop, first) = (Ok(()), places.len());
        self.visit_folio(folio, SpaceLock::Try, |visit| {
            let FolioVisit::Mapped(mapped) = visit else { return ControlFlow::Continue(()) };
            if places.len() == places.capacity() {
                stop = Err(MigrateStop);
                return ControlFlow::Break(());
            }
            self.declare_reduced(mapped.space, PageRange::page(mapped.va), Rights::empty());
            // Pairs with the barrier between a pin and its second read of the entry (`gup::fast`).
            let pinned = |_| plant!(MigrateIgnoresPin; false, folio.maybe_pinned_after(FullBarrier::execute()));
            let debt = mapped.table.run(mapped.vma.mlocked()).unmap_for_migration(mapped.va, pinned);
            let Some(debt) = debt else {
                stop = Err(MigrateStop);
                return ControlFlow::Break(());
            };
            places.push(mapped.table.slot_of(mapped.va));
            if debt.absorb_lazily(batch, mapped.space.table().context()) {
                self.declare_deferred(mapped.space, mapped.va, folio);
            }
            // An entry keeps its mapping, so the visit does not see that no other is left.
            let all = (places.len() - first) as u32 == folio.mapcount();
            if all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        stop
    }
}
