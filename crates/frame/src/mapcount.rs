//! How often a folio, and each of its pages, is mapped (Linux's `__folio_add_rmap` and
//! `__folio_remove_rmap`, from 6.10 on).
//!
//! Key type: [`MapcountChange`], what one call changed.
//!
//! A page is mapped by an entry of its own, or with its whole folio by an entry of a higher level.
//! For each page its own entries are counted (`mapcount`); for a large folio also the entries that
//! map it whole (`entire`), all entries together (`large`), and how many pages have an entry of
//! their own, plus a bias while the folio is mapped whole (`nr_pages_mapped`). Unlike Linux's,
//! counts start at 0 and not at -1, so that zeroed memory is unmapped.
//!
//! Protocol: the caller holds the lock of the page table whose entry he stores or clears, and the
//! entry's reference: it is taken before `map_*` and put after `unmap_*`, so that references never
//! fall short of mappings.
//!
//! Invariants:
//! - INV-FRAME-MAP: at rest `large` = `entire` + the sum of the pages' mapcounts, `nr_pages_mapped`
//!   = the number of pages whose mapcount is not 0 (+ the bias if `entire` is not 0), and
//!   references ≥ mapcount. A folio without references has no mappings.
//!
//! Not guaranteed: that the pages reported as newly mapped or unmapped add up when entries of both
//! sizes come and go at once; Linux tolerates the same, since only statistics hang on it.

use crate::folio::Folio;
use core::sync::atomic::Ordering;
use pagewright_types::Pfn;

/// Added to `nr_pages_mapped` while the folio is mapped whole (Linux's `ENTIRELY_MAPPED`); above
/// the pages of any folio.
const ENTIRELY_MAPPED: u32 = 0x80_0000;

/// What mapping or unmapping changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapcountChange {
    /// Base pages that nothing mapped before a `map_*`, or nothing maps after an `unmap_*`: what
    /// `nr_mapped` changes by.
    pub pages: u32,
    /// Entries that map the folio or a page of it now.
    pub left: u32,
}

impl Folio<'_> {
    /// Counts an entry that maps the folio's page `index`.
    ///
    /// # Panics
    /// When there is no such page; in debug builds when the folio has no references.
    #[inline]
    pub fn map_page(self, index: u32) -> MapcountChange {
        self.assert_alive();
        let first = self.memmap.at(self.page(index)).mapcount.fetch_add(1, Ordering::AcqRel) == 0;
        if !self.is_large() {
            return MapcountChange { pages: u32::from(first), left: self.mapcount() };
        }
        let record = self.record();
        let others = if first { record.nr_pages_mapped.fetch_add(1, Ordering::AcqRel) } else { ENTIRELY_MAPPED };
        let left = record.large_mapcount_or_mlocks.fetch_add(1, Ordering::AcqRel) + 1;
        MapcountChange { pages: u32::from(first && others < ENTIRELY_MAPPED), left }
    }

    /// Takes back the count of an entry that mapped page `index`.
    ///
    /// # Panics
    /// When there is no such page; in debug builds when it was not mapped.
    #[inline]
    pub fn unmap_page(self, index: u32) -> MapcountChange {
        self.assert_alive();
        let page = self.page(index);
        let before = self.memmap.at(page).mapcount.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-MAP: frame {page} is unmapped once too often");
        let last = before == 1;
        if !self.is_large() {
            return MapcountChange { pages: u32::from(last), left: self.mapcount() };
        }
        let record = self.record();
        let left = record.large_mapcount_or_mlocks.fetch_sub(1, Ordering::AcqRel) - 1;
        let others = if last { record.nr_pages_mapped.fetch_sub(1, Ordering::AcqRel) } else { ENTIRELY_MAPPED };
        MapcountChange { pages: u32::from(last && others < ENTIRELY_MAPPED), left }
    }

    /// Counts an entry that maps the folio whole.
    ///
    /// # Panics
    /// In debug builds when the folio has one page or no references.
    pub fn map_entire(self) -> MapcountChange {
        self.assert_alive();
        debug_assert!(self.is_large(), "INV-FRAME-MAP: the folio at {} has no whole but its page", self.head);
        let record = self.record();
        let first = record.entire_or_shares.fetch_add(1, Ordering::AcqRel) == 0;
        let newly = if first {
            self.unmapped_but_for(record.nr_pages_mapped.fetch_add(ENTIRELY_MAPPED, Ordering::AcqRel))
        } else {
            0
        };
        let left = record.large_mapcount_or_mlocks.fetch_add(1, Ordering::AcqRel) + 1;
        MapcountChange { pages: newly, left }
    }

    /// Takes back the count of an entry that mapped the folio whole.
    ///
    /// # Panics
    /// In debug builds when none did.
    pub fn unmap_entire(self) -> MapcountChange {
        self.assert_alive();
        let record = self.record();
        let left = record.large_mapcount_or_mlocks.fetch_sub(1, Ordering::AcqRel) - 1;
        let before = record.entire_or_shares.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-MAP: the folio at {} is unmapped once too often", self.head);
        let newly = if before == 1 {
            let mapped = record.nr_pages_mapped.fetch_sub(ENTIRELY_MAPPED, Ordering::AcqRel);
            self.unmapped_but_for(mapped - ENTIRELY_MAPPED)
        } else {
            0
        };
        MapcountChange { pages: newly, left }
    }

    /// Pages that only an entire mapping maps, given `nr_pages_mapped` without it; none if there is
    /// another entire mapping.
    fn unmapped_but_for(self, nr_pages_mapped: u32) -> u32 {
        if nr_pages_mapped < ENTIRELY_MAPPED { self.pages() - nr_pages_mapped } else { 0 }
    }

    /// Entries that map the folio or one of its pages.
    #[inline]
    pub fn mapcount(self) -> u32 {
        let record = self.record();
        let count = if self.is_large() { &record.large_mapcount_or_mlocks } else { &record.mapcount };
        count.load(Ordering::Acquire)
    }

    /// Whether any entry maps the folio or one of its pages.
    #[inline]
    pub fn is_mapped(self) -> bool {
        self.mapcount() > 0
    }

    /// Entries that map page `index` by itself.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn page_mapcount(self, index: u32) -> u32 {
        self.memmap.at(self.page(index)).mapcount.load(Ordering::Acquire)
    }

    /// Entries that map the folio whole.
    pub fn entire_mapcount(self) -> u32 {
        if self.is_large() { self.record().entire_or_shares.load(Ordering::Acquire) } else { 0 }
    }

    /// Pages of a large folio that have an entry of their own.
    pub fn nr_pages_mapped(self) -> u32 {
        self.record().nr_pages_mapped.load(Ordering::Acquire) & (ENTIRELY_MAPPED - 1)
    }

    /// Whether some pages are mapped and others are not: a candidate for the deferred split queue.
    pub fn is_partially_mapped(self) -> bool {
        let pages = self.nr_pages_mapped();
        self.is_large() && self.entire_mapcount() == 0 && pages > 0 && pages < self.pages()
    }

    /// References counted in the record of page `index`: those of the folio for its first page, and
    /// for any other none (INV-FRAME-SPEC).
    ///
    /// # Panics
    /// When there is no such page.
    pub fn page_refs(self, index: u32) -> u32 {
        self.memmap.at(self.page(index)).refs.load(Ordering::Acquire)
    }

    /// The frame of page `index`.
    ///
    /// # Panics
    /// When there is no such page.
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
