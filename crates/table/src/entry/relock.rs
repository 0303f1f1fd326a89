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
        let relock = |folio, entries| if to.0 { run.mlock(folio, entries) } else { run.munlock(folio, entries) };
        // The entries of one folio that follow each other are counted together.
        let mut same: Option<(Folio<'_>, u32)> = None;
        for leaf in self.entries(part).filter_map(|va| self.leaf(va)).filter(|leaf| !leaf.is_special()) {
            match &mut same {
                Some((folio, entries)) if folio.contains(leaf.pfn()) => *entries += 1,
                _ => {
                    let before = same.replace((frames.folio(leaf.pfn()), 1));
                    before.into_iter().for_each(|(folio, entries)| relock(folio, entries));
                }
            }
        }
        same.into_iter().for_each(|(folio, entries)| relock(folio, entries));
    }
}

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Counts entries that map a folio, if they are locked memory.
    ///
    /// While the count is not zero, the folio is on the unevictable list.
    #[inline]
    pub(super) fn mlock(&self, folio: Folio<'_>, entries: u32) {
        if self.mlocked.0 && self.frames().mlock(folio, entries) {
            self.frames().count(Counter::UnevictableCulled, u64::from(folio.pages()));
        }
    }

    /// Reverses [`Self::mlock`] for entries that are cleared or no longer locked memory.
    #[inline]
    pub(super) fn munlock(&self, folio: Folio<'_>, entries: u32) {
        if self.mlocked.0 && self.frames().munlock(folio, entries) {
            self.frames().count(Counter::UnevictableRescued, u64::from(folio.pages()));
        }
    }
}
