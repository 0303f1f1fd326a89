//! Counting a mapping where it is made and where it goes (`folio_add_*_rmap_pte`, `folio_remove_rmap_pte`).

use crate::counters::{Gauge, RssKind};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Leaf;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, Owner};
use pagewright_types::Pfn;

/// The kind of resident page that a folio's pages are.
pub(crate) fn rss_kind(folio: Folio<'_>) -> RssKind {
    match folio.owner() {
        Owner::Anon(_) => RssKind::Anon,
        Owner::File(_) | Owner::None if folio.flags().contains(FolioFlags::SWAPBACKED) => RssKind::Shmem,
        Owner::File(_) | Owner::None => RssKind::File,
    }
}

fn gauge(kind: RssKind) -> Gauge {
    match kind {
        RssKind::Anon => Gauge::AnonPages,
        RssKind::File | RssKind::Shmem => Gauge::Mapped,
    }
}

impl<P: Platform> Mm<P> {
    /// Entries that map page `pfn` of a folio, by itself or with its whole folio (`folio_precise_page_mapcount`). Whatever divides or
    /// judges a page by who else has it asks here.
    pub(crate) fn mappings_of(&self, pfn: Pfn) -> u32 {
        let folio = self.frames().folio(pfn);
        folio.page_mapcount(folio.page_of(pfn)) + folio.entire_mapcount()
    }

    /// Counts an entry of `space` that is about to map page `pfn`. Whoever calls holds a reference for the entry.
    pub(crate) fn count_mapping(&self, space: &Space<P>, pfn: Pfn) {
        let folio = self.frames().folio(pfn);
        let kind = rss_kind(folio);
        let newly = folio.map_page(folio.page_of(pfn)).pages;
        self.gauges.add(gauge(kind), u64::from(newly));
        space.rss().add(kind, 1);
    }

    /// Takes back the count of a leaf that was cleared in `space`; its reference is still held.
    pub(crate) fn uncount_mapping(&self, space: &Space<P>, leaf: Leaf) {
        let folio = self.frames().folio(leaf.pfn);
        let kind = rss_kind(folio);
        let gone = folio.unmap_page(folio.page_of(leaf.pfn)).pages;
        self.gauges.sub(gauge(kind), u64::from(gone));
        space.rss().sub(kind, 1);
    }
}
