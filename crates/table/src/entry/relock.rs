//! Locking and unlocking the memory that entries map (`mlock_pte_range`).

use super::{EntryRun, Mlocked};
use crate::locked_table::{LockedTable, TableRight};
use pagewright_sync::Platform;
use pagewright_tlb::frames::Folio;
use pagewright_types::{Counter, PageRange};

impl<P: Platform> LockedTable<'_, P> {
    /// Counts the leaves of `part` as locked memory, or no longer.
    ///
    /// The caller holds the space for writing, and changes the mapping before it releases it.
    pub fn relock_run(&self, part: PageRange, to: Mlocked) {
        let frames = self.tables.tlb.frames();
        let run = self.run(Mlocked(true));
        for leaf in self.entries(part).filter_map(|va| self.leaf(va)).filter(|leaf| !leaf.is_special()) {
            let folio = frames.folio(leaf.pfn());
            if to.0 { run.mlock(folio) } else { run.munlock(folio) }
        }
    }
}

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Counts an entry that maps a folio, if it is locked memory.
    ///
    /// While the count is not zero, the folio is on the unevictable list.
    #[inline]
    pub(super) fn mlock(&self, folio: Folio<'_>) {
        if self.mlocked.0 && self.frames().mlock(folio) {
            self.frames().count(Counter::UnevictableCulled, u64::from(folio.pages()));
        }
    }

    /// Reverses [`Self::mlock`] for an entry that is cleared or no longer locked memory.
    #[inline]
    pub(super) fn munlock(&self, folio: Folio<'_>) {
        if self.mlocked.0 && self.frames().munlock(folio) {
            self.frames().count(Counter::UnevictableRescued, u64::from(folio.pages()));
        }
    }
}
