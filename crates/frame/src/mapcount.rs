//! Mapcounts: how many entries map a folio and each of its pages.
//!
//! Linux's `__folio_add_rmap` and `__folio_remove_rmap`, from 6.10 on.
//!
//! Key types: [`MapcountChange`], what one call changed; [`PageCounts`], how it may count pages.
//!
//! An entry maps either one page, or, at a higher level, a whole folio. All entries of a folio are
//! counted beside its references, in one word. In a large folio, each page also counts the entries
//! that map it by itself (`mapcount`). A second word of the head counts the pages that have an
//! entry of their own, and the entries that map the folio whole. Linux counts from -1; these start
//! at 0, so that zeroed memory is unmapped.
//!
//! A *run* is a number of entries of one table that map neighbouring pages of a folio. It changes
//! each word of the head by one addition: two when it is mapped, and one, or two if a page loses
//! its last entry, when it is unmapped. The references are given up later, by one more.
//!
//! Protocol: the caller holds the lock of the page table whose entry it stores or clears, and the
//! reference of that entry. It takes the reference before `map_*` and puts it after `unmap_*`, so
//! that references never fall below mapcounts.
//!
//! Invariants:
//! - **INV-FRAME-MAP** At rest, the entries of a folio = `entire` + the sum of its pages'
//!   mapcounts, `nr_pages_mapped` = the pages with an entry of their own, and references ≥ entries.
//!   A folio without references has no mappings. While a whole mapping is split, no page seems
//!   unmapped. The pages that calls report as newly mapped and unmapped add up.
//!
//! Not guaranteed: that counts of different pages, or of a page and the whole, are of one moment.

use crate::counts::MappedPages;
use crate::folio::{FOLIO_COUNTS, Folio};
use crate::frames::Frames;
use crate::pin::PIN_BIAS;
use crate::record::FrameRecord;
use crate::rss::RssKind;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::{Backend, FullBarrier, LineRef, LineUse, Platform};
use pagewright_types::Pfn;

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

impl MapcountChange {
    /// Whether a call that unmapped left pages without an entry, and others with one.
    #[inline]
    pub fn leaves_partly_mapped(self) -> bool {
        self.pages > 0 && self.mapcount > 0
    }
}

/// How a call may change the mapcounts of pages of a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCounts {
    /// By atomic additions: other CPUs may change them.
    Shared,
    /// By plain stores: the entry is, or was until now, the only one of its page.
    ///
    /// A second entry needs the lock of the first one's table, which the caller holds.
    Sole,
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
        self.note_mapped(index..index + 1, PageCounts::Shared, self.record().counts.add_mapping())
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
        self.get_and_map_pages(index..index + 1, PageCounts::Shared)
    }

    /// As [`get_and_map_page`](Self::get_and_map_page), for a run of entries.
    ///
    /// `counts` is [`Sole`](PageCounts::Sole) also if each page has one entry already, in a table
    /// whose lock the caller holds.
    ///
    /// # Panics
    /// As [`map_page`](Self::map_page).
    #[inline]
    pub fn get_and_map_pages(self, pages: Range<u32>, counts: PageCounts) -> MapcountChange {
        let (refs, before) = self.record().counts.add_refs_and_mappings(pages.len() as u32);
        debug_assert!(refs > 0, "INV-FRAME-MAP: the folio at {} is mapped without a reference", self.head);
        self.note_mapped(pages, counts, before)
    }

    /// What entries for `pages` of a folio change that had `before` entries.
    #[inline]
    fn note_mapped(self, pages: Range<u32>, counts: PageCounts, before: u32) -> MapcountChange {
        let mapcount = before + pages.len() as u32;
        if !self.is_large() {
            debug_assert_eq!(pages, 0..1, "the small folio at {} has no pages {pages:?}", self.head);
            return MapcountChange { pages: u32::from(before == 0), entire: 0, mapcount };
        }
        let first = self.add_own(pages, counts);
        let newly = first > 0 && self.mapped().add_pages(first).1 == 0;
        MapcountChange { pages: if newly { first } else { 0 }, entire: 0, mapcount }
    }

    /// Uncounts an entry that mapped page `index` of the folio.
    ///
    /// # Panics
    /// When the folio has no such page; in debug builds when no entry maps that page by itself.
    #[inline]
    pub fn unmap_page(self, index: u32) -> MapcountChange {
        self.unmap_pages(index..index + 1, PageCounts::Shared)
    }

    /// Uncounts a run of entries.
    ///
    /// # Panics
    /// As [`unmap_page`](Self::unmap_page).
    #[inline]
    pub fn unmap_pages(self, pages: Range<u32>, counts: PageCounts) -> MapcountChange {
        self.assert_alive();
        let entries = pages.len() as u32;
        let before = self.record().counts.sub_mappings(entries);
        debug_assert!(
            before >= entries,
            "INV-FRAME-MAP: pages {pages:?} of {} are unmapped more often than mapped",
            self.head
        );
        let mapcount = before - entries;
        if !self.is_large() {
            return MapcountChange { pages: u32::from(mapcount == 0), entire: 0, mapcount };
        }
        let last = self.sub_own(pages, counts);
        let gone = last > 0 && self.mapped().sub_pages(last).1 == 0;
        MapcountChange { pages: if gone { last } else { 0 }, entire: 0, mapcount }
    }

    /// Counts an entry of its own for each of `pages`; returns how many had none.
    #[inline]
    fn add_own(self, mut pages: Range<u32>, counts: PageCounts) -> u32 {
        let mut first = 0;
        if pages.start == 0 && !pages.is_empty() {
            first = u32::from(self.change_own(0, counts, 1) == 0);
            pages.start = 1;
        }
        // A split counts 511 tails, so the kind of the head is not read for each.
        let tails = self.tails(pages).iter().map(|tail| &tail.counts);
        first
            + match counts {
                PageCounts::Shared => tails.filter(|tail| tail.add_mapping() == 0).count(),
                PageCounts::Sole => tails.filter(|tail| tail.change_sole_mappings(1) == 0).count(),
            } as u32
    }

    /// The records of `pages`, which are not the first one.
    ///
    /// # Panics
    /// When the folio has no such pages.
    fn tails(&self, pages: Range<u32>) -> &[FrameRecord] {
        assert!(pages.end <= self.pages(), "the folio at {} has no pages {pages:?}", self.head);
        self.memmap.run(self.head.add(pages.start), pages.len())
    }

    /// The inverse of [`add_own`](Self::add_own); returns how many pages have none left.
    #[inline]
    fn sub_own(self, pages: Range<u32>, counts: PageCounts) -> u32 {
        let last = |index: &u32| {
            let before = self.change_own(*index, counts, -1);
            debug_assert!(
                before > 0,
                "INV-FRAME-MAP: page {index} of {} is unmapped more often than mapped",
                self.head
            );
            before == 1
        };
        pages.filter(last).count() as u32
    }

    /// Changes the number of entries that map page `index` of a large folio by itself.
    ///
    /// Returns the number before.
    #[inline]
    fn change_own(self, index: u32, counts: PageCounts, change: i32) -> u32 {
        let page = self.page(index);
        let add = |word: &AtomicU32| match counts {
            PageCounts::Shared => word.fetch_add(change as u32, Ordering::AcqRel),
            PageCounts::Sole => {
                let before = word.load(Ordering::Relaxed);
                word.store(before.wrapping_add(change as u32), Ordering::Release);
                before
            }
        };
        if page == self.head {
            return add(&self.record().first_page_or_mlocks);
        }
        let tail = &self.memmap.at(page).counts;
        match (counts, change) {
            (PageCounts::Sole, _) => tail.change_sole_mappings(change),
            (PageCounts::Shared, 1) => tail.add_mapping(),
            (PageCounts::Shared, _) => tail.sub_mappings(1),
        }
    }

    /// How the pages of a large folio are mapped.
    #[inline]
    pub(crate) fn mapped(&self) -> MappedPages<'_> {
        MappedPages(&self.record().mapped_or_shares)
    }

    /// Uncounts an entry that mapped a small folio; returns whether it was the last.
    ///
    /// # Panics
    /// In debug builds when the folio is large, or no entry maps it.
    #[inline]
    pub fn unmap_small(self) -> bool {
        self.assert_alive();
        debug_assert!(!self.is_large(), "the folio at {} has more than one page", self.head);
        let before = self.record().counts.sub_mappings(1);
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
        self.change_of_entire(self.mapped().add_entire(), 0, before + 1)
    }

    /// Counts an entry for each page in place of one that mapped the whole folio.
    ///
    /// The entry's reference becomes that of the first page; those of the others are taken. No
    /// page becomes mapped or unmapped, nor seems to: the pages are counted first, and a reader
    /// loads the count of whole mappings first (`__split_huge_pmd_locked`).
    ///
    /// # Panics
    /// In debug builds when no entry maps the whole folio.
    pub fn split_entire(self, counts: PageCounts) -> MapcountChange {
        self.assert_alive();
        let added = self.pages() - 1;
        let before = self.record().counts.add_refs_and_mappings(added).1;
        let first = self.add_own(0..self.pages(), counts);
        let (own, entire) = self.mapped().split_entire(first);
        debug_assert!(entire > 0, "INV-FRAME-MAP: the folio at {} is split more often than mapped", self.head);
        // Each page has an entry now.
        self.change_of_entire((own + first, entire), 1, before + added)
    }

    /// The change by an entry for the whole that comes or goes.
    ///
    /// `own` pages have entries of their own. Before, there were `entire` entries for the whole;
    /// the first one comes at 0, and the last one goes at 1, which is `edge`.
    fn change_of_entire(self, (own, entire): (u32, u32), edge: u32, mapcount: u32) -> MapcountChange {
        if entire != edge {
            return MapcountChange { pages: 0, entire: 0, mapcount };
        }
        MapcountChange { pages: self.pages() - own, entire: self.pages(), mapcount }
    }

    /// Uncounts an entry that mapped the whole folio.
    ///
    /// # Panics
    /// In debug builds when no entry maps the whole folio.
    pub fn unmap_entire(self) -> MapcountChange {
        self.assert_alive();
        let before = self.record().counts.sub_mappings(1);
        let mapped = self.mapped().sub_entire();
        debug_assert!(
            before > 0 && mapped.1 > 0,
            "INV-FRAME-MAP: the folio at {} is unmapped more often than mapped",
            self.head
        );
        self.change_of_entire(mapped, 1, before - 1)
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
        if self.is_large() { self.mapped().both().1 } else { 0 }
    }

    /// The number of pages of a large folio that have an entry of their own; 0 for a small one.
    pub fn nr_pages_mapped(self) -> u32 {
        if self.is_large() { self.mapped().both().0 } else { 0 }
    }

    /// Whether some pages are mapped and others are not.
    ///
    /// Such a folio is a candidate for the deferred split queue.
    pub fn is_partially_mapped(self) -> bool {
        self.is_large() && matches!(self.mapped().both(), (own, 0) if own > 0 && own < self.pages())
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
