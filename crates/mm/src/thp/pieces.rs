//! The entries of a large folio beside one of them, and where they end.

use pagewright_sync::Platform;
use pagewright_table::{LeafView, LockedTable};
use pagewright_tlb::frames::Folio;
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, VirtAddr};

/// The addresses in a locked last-level table whose leaves map pages of `folio`.
///
/// `leaf`, for `va`, maps one of them. A page that moved away from its neighbours is looked for in
/// vain: the others are expected where they are as far from `va` as their pages are.
pub(crate) fn pieces_beside<'t, P: Platform>(
    table: &'t LockedTable<'_, P>,
    va: VirtAddr,
    leaf: LeafView,
    folio: Folio<'_>,
) -> impl Iterator<Item = VirtAddr> + use<'t, P> {
    let page = folio.page_of(leaf.page_at(va));
    let before = page.min(Level::PTE.index_of(va) as u32);
    let first = folio.page(page - before);
    let start = VirtAddr::from_page_index(va.page_index() - u64::from(before));
    let pages = u64::from(folio.pages() - (page - before));
    let end = start.add(pages * PAGE_SIZE).min(table.range().end());
    PageRange::new(start, end).iter().filter(move |va| {
        let page = first.add((va.page_index() - start.page_index()) as u32);
        table.leaf(*va).is_some_and(|leaf| !leaf.is_special() && leaf.pfn() == page)
    })
}

/// Whether a large folio has no other of its `entries` than those [beside](pieces_beside) one.
pub(crate) fn are_all_beside<P: Platform>(
    entries: u32,
    table: &LockedTable<'_, P>,
    va: VirtAddr,
    leaf: LeafView,
    folio: Folio<'_>,
) -> bool {
    entries <= folio.pages() && pieces_beside(table, va, leaf, folio).count() as u32 == entries
}

/// Which folios a space alone maps, with all their pages in a range; the last answer is kept.
///
/// Advice about a range acts on such folios as they are. A large folio that the range cuts, or of
/// which a page is not mapped, is split first (`madvise_folio_pte_batch`).
pub(crate) struct WholeFolios {
    within: PageRange,
    last: Option<(Pfn, bool)>,
    /// Whether there was a large folio that is not one of them.
    missed_large: bool,
}

impl WholeFolios {
    pub(crate) fn within(within: PageRange) -> Self {
        Self { within, last: None, missed_large: false }
    }

    /// Whether the folio of which `leaf` maps all or a page is one of them.
    pub(crate) fn contains<P: Platform>(
        &mut self,
        table: &LockedTable<'_, P>,
        va: VirtAddr,
        leaf: LeafView,
        folio: Folio<'_>,
    ) -> bool {
        if let Some((last, answer)) = self.last
            && last == folio.pfn()
        {
            return answer;
        }
        let answer = is_whole_within(self.within, table, va, leaf, folio);
        self.last = Some((folio.pfn(), answer));
        self.missed_large |= !answer && folio.is_large();
        answer
    }

    pub(crate) fn missed_large(&self) -> bool {
        self.missed_large
    }
}

fn is_whole_within<P: Platform>(
    within: PageRange,
    table: &LockedTable<'_, P>,
    va: VirtAddr,
    leaf: LeafView,
    folio: Folio<'_>,
) -> bool {
    let entries = if leaf.level() > Level::PTE { 1 } else { folio.pages() };
    let Some(start) = va.page_index().checked_sub(u64::from(folio.page_of(leaf.page_at(va)))) else { return false };
    let is_in = within.start().page_index() <= start && end_of_pieces(va, leaf.page_at(va), folio) <= within.end();
    let is_alone = || folio.mapcount() == entries && (entries == 1 || are_all_beside(entries, table, va, leaf, folio));
    is_in && is_alone()
}

/// Where the pages of a folio end of which `pfn` is mapped at `va`, if they follow each other.
pub(crate) fn end_of_pieces(va: VirtAddr, pfn: Pfn, folio: Folio<'_>) -> VirtAddr {
    va.add(u64::from(folio.pages() - folio.page_of(pfn)) * PAGE_SIZE)
}
