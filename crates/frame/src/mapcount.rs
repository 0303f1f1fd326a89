//! Mapcounts: how many entries map a folio and each of its pages.
//!
//! Linux's `__folio_add_rmap` and `__folio_remove_rmap`, from 6.10 on.
//!
//! Key type: [`MapcountChange`], what one call changed.
//!
//! An entry maps either one page, or, at a higher level, a whole folio. All entries of a folio are
//! counted beside its references, in one word: an entry takes both by one addition. In a large
//! folio, each page also counts the entries that map it by itself (`mapcount`), and the head counts
//! the entries that map it whole (`entire`), and the pages that have an entry of their own, plus a
//! bias while the folio is mapped whole (`nr_pages_mapped`). Linux counts from -1; these start
//! at 0, so that zeroed memory is unmapped.
//!
//! Protocol: the caller holds the lock of the page table whose entry it stores or clears, and the
//! reference of that entry. It takes the reference before `map_*` and puts it after `unmap_*`, so
//! that references never fall below mapcounts.
//!
//! Invariants:
//! - INV-FRAME-MAP: at rest the entries of a folio = `entire` + the sum of its pages' mapcounts,
//!   `nr_pages_mapped` = the number of pages whose mapcount is not 0 (+ the bias if `entire` is not
//!   0), and references ≥ entries. A folio without references has no mappings.
//!
//! Not guaranteed: that the pages reported as newly mapped and unmapped add up if entries of both
//! sizes change concurrently. Linux tolerates the same, because only statistics depend on it.

use crate::folio::{FOLIO_COUNTS, Folio};
use crate::frames::Frames;
use crate::pin::PIN_BIAS;
use crate::rss::RssKind;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, FullBarrier, LineRef, LineUse, Platform};
use pagewright_types::Pfn;

/// Added to `nr_pages_mapped` while the folio is mapped whole (Linux's `ENTIRELY_MAPPED`).
///
/// It exceeds the number of pages of any folio.
pub(crate) const ENTIRELY_MAPPED: u32 = 0x80_0000;

/// The change that one `map_*` or `unmap_*` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapcountChange {
    /// The number of base pages that became mapped or became unmapped: the change of `nr_mapped`.
    pub pages: u32,
    /// The pages of a folio that became mapped whole, or is not any more.
    pub entire: u32,
    /// The number of entries that map the folio or a page of it after the call.
    pub mapcount: u32,
}

impl<P: Platform> Frames<P> {
    /// Takes a reference for one more entry that maps `pfn`, and counts the entry.
    ///
    /// The caller has stored what makes a lockless pin step back (INV-FULL-BARRIER).
    ///
    /// Returns the kind of page, and whether nothing mapped it before. `None` unless the folio is
    /// small and [has few references](Folio::has_few_refs); then nothing has changed.
    #[inline]
    pub fn get_and_map_small(&self, pfn: Pfn, _stored: FullBarrier) -> Option<(RssKind, bool)> {
        let record = self.memmap.get(pfn)?;
        // One look at the kind: a folio that an entry maps stays what it is.
        if !record.kind().is_small_folio() || record.counts.refs() >= PIN_BIAS {
            return None;
        }
        P::Locks::line(LineRef::Record(pfn), FOLIO_COUNTS, LineUse::Store);
        let (refs, before) = record.counts.add_refs_and_mappings(1);
        debug_assert!(refs > 0, "INV-FRAME-MAP: the folio at {pfn} is mapped without a reference");
        Some((Folio::of_record(&self.memmap, record, pfn).rss_kind(), before == 0))
    }
}

impl Folio<'_> {
    /// Counts a new entry that maps page `index` of the folio.
    ///
    /// # Panics
    /// When a large folio has no such page; in debug builds when a small one has not, or the folio
    /// has no references.
    #[inline]
    pub fn map_page(self, index: u32) -> MapcountChange {
        self.assert_alive();
        self.note_mapped(index, self.record().counts.add_mapping())
    }

    /// Takes a reference for a new entry that maps page `index`, and counts the entry.
    ///
    /// Both are one atomic addition. The reference exists only as the frame number in the entry,
    /// like one after [`FolioRef::into_raw`](crate::FolioRef::into_raw).
    ///
    /// # Panics
    /// As [`map_page`](Self::map_page).
    #[inline]
    pub fn get_and_map_page(self, index: u32) -> MapcountChange {
        let (refs, before) = self.record().counts.add_refs_and_mappings(1);
        debug_assert!(refs > 0, "INV-FRAME-MAP: the folio at {} is mapped without a reference", self.head);
        self.note_mapped(index, before)
    }

    /// What an entry for page `index` of a folio changes that had `before` entries.
    #[inline]
    fn note_mapped(self, index: u32, before: u32) -> MapcountChange {
        let mapcount = before + 1;
        if !self.is_large() {
            debug_assert_eq!(index, 0, "the small folio at {} has no page {index}", self.head);
            return MapcountChange { pages: u32::from(before == 0), entire: 0, mapcount };
        }
        let page = self.page(index);
        let first = self.add_own(page) == 0;
        let record = self.record();
        let others = if first { record.nr_pages_mapped.fetch_add(1, Ordering::AcqRel) } else { ENTIRELY_MAPPED };
        MapcountChange { pages: u32::from(first && others < ENTIRELY_MAPPED), entire: 0, mapcount }
    }

    /// Uncounts an entry that mapped page `index` of the folio.
    ///
    /// # Panics
    /// When the folio has no such page; in debug builds when no entry maps that page by itself.
    #[inline]
    pub fn unmap_page(self, index: u32) -> MapcountChange {
        self.assert_alive();
        let page = self.page(index);
        let before = self.record().counts.sub_mapping();
        debug_assert!(before > 0, "INV-FRAME-MAP: frame {page} is unmapped more often than mapped");
        let mapcount = before - 1;
        if !self.is_large() {
            return MapcountChange { pages: u32::from(mapcount == 0), entire: 0, mapcount };
        }
        let before = self.sub_own(page);
        debug_assert!(before > 0, "INV-FRAME-MAP: frame {page} is unmapped more often than mapped");
        let last = before == 1;
        let record = self.record();
        let others = if last { record.nr_pages_mapped.fetch_sub(1, Ordering::AcqRel) } else { ENTIRELY_MAPPED };
        MapcountChange { pages: u32::from(last && others < ENTIRELY_MAPPED), entire: 0, mapcount }
    }

    /// Counts an entry that maps the frame `page` of a large folio by itself.
    ///
    /// Returns the number before.
    #[inline]
    fn add_own(self, page: Pfn) -> u32 {
        match page == self.head {
            true => self.record().first_page_or_mlocks.fetch_add(1, Ordering::AcqRel),
            false => self.memmap.at(page).counts.add_mapping(),
        }
    }

    /// The inverse of [`add_own`](Self::add_own).
    #[inline]
    fn sub_own(self, page: Pfn) -> u32 {
        match page == self.head {
            true => self.record().first_page_or_mlocks.fetch_sub(1, Ordering::AcqRel),
            false => self.memmap.at(page).counts.sub_mapping(),
        }
    }

    /// Uncounts an entry that mapped a small folio; returns whether it was the last.
    ///
    /// # Panics
    /// In debug builds when the folio is large, or no entry maps it.
    #[inline]
    pub fn unmap_small(self) -> bool {
        self.assert_alive();
        debug_assert!(!self.is_large(), "the folio at {} has more than one page", self.head);
        let before = self.record().counts.sub_mapping();
        debug_assert!(before > 0, "INV-FRAME-MAP: frame {} is unmapped more often than mapped", self.head);
        before == 1
    }

    /// Counts a new entry that maps the whole folio.
    ///
    /// # Panics
    /// In debug builds when the folio is small or has no references.
    pub fn map_entire(self) -> MapcountChange {
        self.assert_alive();
        self.note_mapped_entire(self.record().counts.add_mapping())
    }

    /// Takes a reference for a new entry that maps the whole folio, and counts the entry.
    ///
    /// Both are one atomic addition.
    ///
    /// # Panics
    /// As [`map_entire`](Self::map_entire).
    pub fn get_and_map_entire(self) -> MapcountChange {
        let (refs, before) = self.record().counts.add_refs_and_mappings(1);
        debug_assert!(refs > 0, "INV-FRAME-MAP: the folio at {} is mapped without a reference", self.head);
        self.note_mapped_entire(before)
    }

    /// What an entry for the whole folio changes that had `before` entries.
    fn note_mapped_entire(self, before: u32) -> MapcountChange {
        debug_assert!(self.is_large(), "INV-FRAME-MAP: the small folio at {} is mapped whole", self.head);
        let record = self.record();
        let first = record.entire_or_shares.fetch_add(1, Ordering::AcqRel) == 0;
        let (pages, entire) = if first {
            let others = record.nr_pages_mapped.fetch_add(ENTIRELY_MAPPED, Ordering::AcqRel);
            (pages_without_entry(self.pages(), others), self.pages())
        } else {
            (0, 0)
        };
        MapcountChange { pages, entire, mapcount: before + 1 }
    }

    /// Counts an entry for each page in place of one that mapped the whole folio.
    ///
    /// The entry's reference becomes that of the first page; those of the others are taken. No
    /// page becomes mapped or unmapped, nor seems to: the pages are counted first, and a reader
    /// loads the count of whole mappings first (`__split_huge_pmd_locked`).
    ///
    /// # Panics
    /// In debug builds when no entry maps the whole folio.
    pub fn split_entire(self) -> MapcountChange {
        self.assert_alive();
        let record = self.record();
        record.counts.add_refs_and_mappings(self.pages() - 1);
        let pages = (0..self.pages()).map(|index| self.head.add(index));
        let newly = pages.filter(|page| self.add_own(*page) == 0).count();
        record.nr_pages_mapped.fetch_add(newly as u32, Ordering::AcqRel);
        self.drop_entire(self.mapcount())
    }

    /// Uncounts a whole mapping, of `mapcount` entries that are left.
    fn drop_entire(self, mapcount: u32) -> MapcountChange {
        let record = self.record();
        let before = record.entire_or_shares.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-MAP: the folio at {} is unmapped more often than mapped", self.head);
        if before != 1 {
            return MapcountChange { pages: 0, entire: 0, mapcount };
        }
        let mapped = record.nr_pages_mapped.fetch_sub(ENTIRELY_MAPPED, Ordering::AcqRel);
        let pages = pages_without_entry(self.pages(), mapped - ENTIRELY_MAPPED);
        MapcountChange { pages, entire: self.pages(), mapcount }
    }

    /// Uncounts an entry that mapped the whole folio.
    ///
    /// # Panics
    /// In debug builds when no entry maps the whole folio.
    pub fn unmap_entire(self) -> MapcountChange {
        self.assert_alive();
        let mapcount = self.record().counts.sub_mapping() - 1;
        self.drop_entire(mapcount)
    }

    /// The number of entries that map the folio or one of its pages.
    #[inline]
    pub fn mapcount(self) -> u32 {
        self.record().counts.mappings()
    }

    /// The references, and the number of entries that map the folio or one of its pages.
    ///
    /// Both are of one moment. Each entry holds one of the references, and so does each that was
    /// cleared and is not flushed yet.
    #[inline]
    pub fn refs_and_mapcount(self) -> (u32, u32) {
        self.record().counts.both()
    }

    /// Whether any entry maps the folio or one of its pages.
    #[inline]
    pub fn is_mapped(self) -> bool {
        self.mapcount() > 0
    }

    /// The number of entries that map page `index` by itself.
    ///
    /// # Panics
    /// When the folio has no such page.
    pub fn page_mapcount(self, index: u32) -> u32 {
        let page = self.page(index);
        match page == self.head && self.is_large() {
            true => self.record().first_page_or_mlocks.load(Ordering::Acquire),
            false => self.memmap.at(page).counts.mappings(),
        }
    }

    /// The number of entries that map page `index`, by itself or with the whole folio.
    ///
    /// Not less than there are while an entry for the whole is split: the count of those is loaded
    /// first.
    ///
    /// # Panics
    /// When the folio has no such page.
    pub fn entries_of_page(self, index: u32) -> u32 {
        let entire = self.entire_mapcount();
        entire + self.page_mapcount(index)
    }

    /// The number of entries that map the whole folio.
    pub fn entire_mapcount(self) -> u32 {
        if self.is_large() { self.record().entire_or_shares.load(Ordering::Acquire) } else { 0 }
    }

    /// The number of pages of a large folio that have an entry of their own; 0 for a small one.
    pub fn nr_pages_mapped(self) -> u32 {
        if !self.is_large() {
            return 0;
        }
        self.record().nr_pages_mapped.load(Ordering::Acquire) & (ENTIRELY_MAPPED - 1)
    }

    /// Whether some pages are mapped and others are not.
    ///
    /// Such a folio is a candidate for the deferred split queue.
    pub fn is_partially_mapped(self) -> bool {
        let pages = self.nr_pages_mapped();
        self.is_large() && self.entire_mapcount() == 0 && pages > 0 && pages < self.pages()
    }

    /// The references counted in the record of page `index`, for checks.
    ///
    /// They are those of the folio for its first page, and 0 for any other (INV-FRAME-SPEC).
    ///
    /// # Panics
    /// When the folio has no such page.
    pub fn page_refs(self, index: u32) -> u32 {
        self.memmap.at(self.page(index)).counts.refs()
    }

    /// The frame of page `index`.
    ///
    /// # Panics
    /// When the folio has no such page.
    #[inline]
    pub fn page(self, index: u32) -> Pfn {
        assert!(index < self.pages(), "the folio at {} has no page {index}", self.head);
        self.head.add(index)
    }

    fn assert_alive(self) {
        debug_assert!(
            self.refs() > 0,
            "INV-FRAME-MAP: mappings of the folio at {} change without a reference",
            self.head
        );
    }
}

/// Of `pages`, the number without an entry of their own; 0 if another entry maps the whole folio.
///
/// `nr_pages_mapped` is the count without the bias of the mapping that comes or goes.
fn pages_without_entry(pages: u32, nr_pages_mapped: u32) -> u32 {
    if nr_pages_mapped < ENTIRELY_MAPPED { pages - nr_pages_mapped } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another CPU may map the whole folio between the two counts of an entry.
    #[test]
    fn no_page_is_without_an_entry_while_another_entry_maps_the_whole_folio() {
        for (nr_pages_mapped, without) in
            [(0, 512), (3, 509), (512, 0), (ENTIRELY_MAPPED, 0), (ENTIRELY_MAPPED + 3, 0), (2 * ENTIRELY_MAPPED, 0)]
        {
            assert_eq!(pages_without_entry(512, nr_pages_mapped), without, "{nr_pages_mapped:#x}");
        }
    }
}
