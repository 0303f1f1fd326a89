//! The entries of a large folio beside one of them, and where they end.

use pagewright_sync::Platform;
use pagewright_table::{LeafView, LockedTable, TableRight};
use pagewright_tlb::frames::Folio;
use pagewright_types::{Level, PAGE_SIZE, PageRange, Pfn, VirtAddr};

/// The addresses in a locked last-level table whose leaves map pages of `folio`.
///
/// `leaf`, for `va`, maps one of them. A page that moved away from its neighbours is looked for in
/// vain: the others are expected where they are as far from `va` as their pages are.
pub(crate) fn pieces_beside<'t, P: Platform, R: TableRight>(
    table: &'t LockedTable<'_, P, R>,
    va: VirtAddr,
    leaf: LeafView,
    folio: Folio<'_>,
) -> impl Iterator<Item = VirtAddr> + use<'t, P, R> {
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
pub(crate) fn are_all_beside<P: Platform, R: TableRight>(
    entries: u32,
    table: &LockedTable<'_, P, R>,
    va: VirtAddr,
    leaf: LeafView,
    folio: Folio<'_>,
) -> bool {
    entries <= folio.pages() && pieces_beside(table, va, leaf, folio).count() as u32 == entries
}

/// Where the pages of a folio end of which `pfn` is mapped at `va`, if they follow each other.
pub(crate) fn end_of_pieces(va: VirtAddr, pfn: Pfn, folio: Folio<'_>) -> VirtAddr {
    va.add(u64::from(folio.pages() - folio.page_of(pfn)) * PAGE_SIZE)
}
