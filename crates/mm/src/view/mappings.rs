//! The number of mappings of a page, where spaces share page tables (`page_mapcount` of Linux).
//!
//! An entry of a shared table counts once in the mapcount of its page, and in the count of its swap
//! slot. Linux has an entry in each space instead. Its count is therefore the number of *paths*:
//! pairs of a space and an entry that the space reaches.
//!
//! ```text
//!   A ─▶ X ─▶ Z[3] ─▶ page       2 entries, 3 paths: each space has a third of the page
//!   B ─▶ X
//!   C ─▶ Y[3] ─▶ page            C has stored to another page of Z, and broke its path
//! ```
//!
//! The share counts on one path cannot give that number: they say nothing about the other entries
//! of the page, and not how many spaces reach the other parents of a table. Let k be the product of
//! the share counts on a path. Each table passes the same part to each of its shares, so the sum of
//! 1/k over all paths to a table is 1, and
//!
//! ```text
//!   entries  =  sum over all paths of 1/k
//!   paths    =  entries  +  sum over all paths of (1 - 1/k)
//! ```
//!
//! A path that is not shared (k = 1) adds nothing to the second sum. So only spaces that share
//! tables are searched, by the reverse map. A slot has no reverse map; its entries are where those
//! of its page were, at the same index in spaces of the same tree of forks.
//!
//! Key types: [`MappedPage`] is a page or slot to be counted; [`UncountedMappings`] collects some
//! of one table, so that each space is searched once for all of them.
//!
//! **INV-VIEW-PATHS** At rest, `Pss`, `SwapPss` and the private and shared sizes of each space
//! divide a page by the number of pairs of a space and an entry of the page that the space reaches,
//! which is the mapcount that Linux has without shared tables. The proportional bytes of page
//! tables divide a table by the number of spaces that reach it.
//!
//! Protocol: the caller collects pages while it holds their space for reading, and counts them
//! while it holds no lock. Another space's lock must not be waited for while one is held.
//!
//! Cost: nothing for a page with one path. Otherwise a look-up in each space that may map the page
//! and shares tables, for each 64 pages of a table, and one entry for each page.
//!
//! Not guaranteed: the count of one moment, while spaces change. Entries that come or go between
//! the look at the page and the search of a space may be counted or not, as for
//! [`Mm::for_each_mapping`].

use crate::mm::Mm;
use crate::rmap::{CandidateSpace, SpaceLock};
use crate::space::AddressMap;
use crate::swap::SwapPte;
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryView, MmapRead};
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Level, PageRange, Pfn, SwapEntry, VirtAddr};

/// Pages that are counted together.
const BATCH: usize = 64;

/// What an entry says about one page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MappedPage {
    /// It maps the page.
    InMemory(Pfn),
    /// It names the swap slot of the page.
    InSwap(SwapEntry),
}

impl MappedPage {
    /// Returns what an entry of a level says about the page at `va`; `None` if no page counts.
    pub(super) fn of((entry, level): (EntryView, Level), va: VirtAddr) -> Option<Self> {
        match (entry.page(level), entry) {
            (Some(leaf), _) => (!leaf.is_special()).then(|| Self::InMemory(leaf.page_at(va))),
            (None, EntryView::Soft(soft)) => SwapPte::decode(soft).map(|page| Self::InSwap(page.entry)),
            (None, EntryView::Empty | EntryView::Table | EntryView::Leaf(_)) => None,
        }
    }
}

/// A page of a mapping whose paths are to be counted, and what the caller keeps with it.
pub(super) struct UncountedPage<T> {
    mapped: MappedPage,
    /// Where the reverse map finds its entries.
    owner: FolioOwner,
    index: u64,
    /// The difference of `index` and the page index at which it was found.
    shift: u64,
    entries: u64,
    /// The sum of `1 - 1/k` over the paths found so far, in parts of [`PATH`].
    excess: u64,
    /// The paths: before they are counted, as if all entries were on paths like the one at hand.
    paths: u64,
    is_counted: bool,
    kept: T,
}

/// One path in the fixed point of [`UncountedPage::excess`].
///
/// The error of a page is less than one part for each path, so a rounded sum is exact.
const PATH: u64 = 1 << 32;

impl<T> UncountedPage<T> {
    /// Ends the count.
    fn settle(&mut self) {
        let exact = self.entries + (self.excess + PATH / 2) / PATH;
        self.paths = match self.mapped {
            MappedPage::InMemory(_) => plant!(PssByOnePath; self.paths, exact),
            MappedPage::InSwap(_) => plant!(SwapPssByOnePath; self.paths, exact),
        };
        self.is_counted = true;
    }
}

/// Pages of one table whose paths are not counted yet, in the order of their addresses.
pub(super) struct UncountedMappings<T>(ArrayVec<UncountedPage<T>, BATCH>);

impl<T> UncountedMappings<T> {
    pub(super) fn new() -> Self {
        Self(ArrayVec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.is_full()
    }
}

/// Pages with indices that follow each other as their addresses do.
#[derive(Clone, Copy, PartialEq, Eq)]
struct IndexRun {
    owner: FolioOwner,
    shift: u64,
}

impl<P: Platform> Mm<P> {
    /// Returns whether the page at `va` has one path; otherwise adds it to `uncounted`.
    ///
    /// `sharers` is the product of the share counts on the path by which the caller found it, and
    /// `swapped_from` the owner and the index that the page had if it is in swap. The caller holds
    /// the table's lock, and has looked that `uncounted` is not full.
    pub(super) fn has_one_path<T>(
        &self,
        (va, mapped): (VirtAddr, MappedPage),
        sharers: u64,
        swapped_from: (FolioOwner, u64),
        uncounted: &mut UncountedMappings<T>,
        kept: T,
    ) -> bool {
        let (entries, (owner, index)) = match mapped {
            MappedPage::InMemory(pfn) => {
                let folio = self.frames().folio(pfn);
                (self.mappings_of(pfn), (folio.owner(), folio.index() + u64::from(folio.page_of(pfn))))
            }
            MappedPage::InSwap(entry) => (self.swap_count(entry), swapped_from),
        };
        let (entries, shift) = (u64::from(entries), index.wrapping_sub(va.page_index()));
        let paths = entries * sharers;
        if paths > 1 {
            let page =
                UncountedPage { mapped, owner, index, shift, entries, excess: 0, paths, is_counted: false, kept };
            uncounted.0.push(page);
        }
        paths <= 1
    }

    /// Counts the paths of the pages, and empties `uncounted` into `take`.
    ///
    /// The caller holds no lock.
    pub(super) fn count_paths<T>(
        &self,
        uncounted: &mut UncountedMappings<T>,
        mut take: impl FnMut(MappedPage, u64, T),
    ) {
        while let Some(first) = uncounted.0.iter().find(|page| !page.is_counted) {
            let (run, from) = (IndexRun { owner: first.owner, shift: first.shift }, first.index);
            let last = uncounted.0.iter().rfind(|page| run.contains(page)).map_or(from, |page| page.index);
            self.visit_spaces(run.owner, SpaceLock::Wait, |candidate| {
                if let CandidateSpace::Held(space, map) = candidate
                    && space.table().has_shared()
                {
                    self.add_excess(map, run, (from, last + 1 - from), uncounted);
                }
                ControlFlow::Continue(())
            });
            uncounted.0.iter_mut().filter(|page| run.contains(page)).for_each(UncountedPage::settle);
        }
        uncounted.0.drain(..).for_each(|page| take(page.mapped, page.paths, page.kept));
    }

    /// Adds the shared paths from a space to the pages of a run, which has `pages` indices.
    fn add_excess<T>(
        &self,
        map: &MmapRead<'_, P, AddressMap<P>>,
        run: IndexRun,
        (from, pages): (u64, u64),
        uncounted: &mut UncountedMappings<T>,
    ) {
        for (index, range) in map.possible_ranges(run.owner, from, pages) {
            for (table, part) in map.tables(&self.tlb).read_locked(range) {
                let sharers = table.sharers();
                if sharers == 1 {
                    continue;
                }
                for page in uncounted.0.iter_mut().filter(|page| run.contains(page)) {
                    if let Some(va) = address_of(page.index, index, range).filter(|va| part.contains(*va))
                        && MappedPage::of((table.entry(va), table.level()), va) == Some(page.mapped)
                    {
                        page.excess += PATH - PATH / sharers;
                    }
                }
            }
        }
    }
}

impl IndexRun {
    fn contains<T>(self, page: &UncountedPage<T>) -> bool {
        !page.is_counted && self == Self { owner: page.owner, shift: page.shift }
    }
}

/// The address of the page with `index` in a range whose first page has the index `first`.
fn address_of(index: u64, first: u64, range: PageRange) -> Option<VirtAddr> {
    let offset = index.checked_sub(first).filter(|offset| *offset < range.pages())?;
    Some(VirtAddr::from_page_index(range.start().page_index() + offset))
}
