//! Giving a folio a swap entry (`folio_alloc_swap`, `mm/swapfile.c`).
//!
//! Reclaim calls this before it replaces the entries that map the folio; `reclaim/try_to_unmap.rs`
//! stores the swap PTEs that name the slot.

use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::SwapEntry;

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
                folio.set_flags(FolioFlags::DIRTY);
                folio.join_swap_cache(SwapEntry::new(number, slot));
                drop(slots);
                self.swap.count_allocation(number);
                return true;
            }
            drop(slots);
            next = self.swap.next_device(Some(place));
        }
        false
    }
}
