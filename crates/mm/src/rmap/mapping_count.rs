//! Counting a mapping where it is made and where it goes (`folio_add_*_rmap_pte`,
//! `folio_remove_rmap_pte`).
//!
//! A page is counted in its folio at once. The resident set and the gauges, which all CPUs share,
//! are told of a run of pages by one [`MappingDelta`].

use crate::counters::{Gauge, RssKind};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Leaf;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioOwner};
use pagewright_types::Pfn;

/// The kind of resident page that a folio's pages are.
#[inline]
pub(crate) fn rss_kind(folio: Folio<'_>) -> RssKind {
    match folio.owner() {
        FolioOwner::Anon(_) => RssKind::Anon,
        FolioOwner::File(_) | FolioOwner::None if folio.flags().contains(FolioFlags::SWAPBACKED) => RssKind::Shmem,
        FolioOwner::File(_) | FolioOwner::None => RssKind::File,
    }
}

fn gauge(kind: RssKind) -> Gauge {
    match kind {
        RssKind::Anon => Gauge::AnonPages,
        RssKind::File | RssKind::Shmem => Gauge::Mapped,
    }
}

/// Pages of each kind that a run of edits under one lock mapped, or unmapped (`rss` of Linux's
/// `zap_pte_range`). Whoever has one gives it to [`Mm::account_mapped`] or
/// [`Mm::account_unmapped`].
#[must_use = "pages that are not counted"]
#[derive(Default)]
pub(crate) struct MappingDelta {
    /// Entries of the space.
    resident: [u64; RssKind::ALL.len()],
    /// Pages that nothing else mapped.
    alone: [u64; RssKind::ALL.len()],
}

impl MappingDelta {
    #[inline]
    fn note(&mut self, kind: RssKind, alone: u32) {
        self.resident[kind as usize] += 1;
        self.alone[kind as usize] += u64::from(alone);
    }
}

impl<P: Platform> Mm<P> {
    /// Entries that map page `pfn` of a folio, by itself or with its whole folio
    /// (`folio_precise_page_mapcount`). Whatever divides or judges a page by who else has it asks
    /// here.
    pub(crate) fn mappings_of(&self, pfn: Pfn) -> u32 {
        let folio = self.frames().folio(pfn);
        folio.page_mapcount(folio.page_of(pfn)) + folio.entire_mapcount()
    }

    /// Counts an entry that is about to map page `pfn`.
    ///
    /// Whoever calls holds a reference for the entry.
    #[inline]
    pub(crate) fn count_mapping(&self, pfn: Pfn, delta: &mut MappingDelta) {
        let folio = self.frames().folio(pfn);
        delta.note(rss_kind(folio), folio.map_page(folio.page_of(pfn)).pages);
    }

    /// Takes back the count of a leaf that was cleared; its reference is still held.
    #[inline]
    pub(crate) fn uncount_mapping(&self, leaf: Leaf, delta: &mut MappingDelta) {
        let folio = self.frames().folio(leaf.pfn);
        plant!(MapcountLost => return delta.note(rss_kind(folio), 0));
        delta.note(rss_kind(folio), folio.unmap_page(folio.page_of(leaf.pfn)).pages);
    }

    /// Adds what was mapped to the resident set of `space` and to the gauges.
    pub(crate) fn account_mapped(&self, space: &Space<P>, delta: &MappingDelta) {
        for kind in RssKind::ALL.into_iter().filter(|kind| delta.resident[*kind as usize] > 0) {
            space.rss().add(kind, delta.resident[kind as usize]);
            self.gauges.add(gauge(kind), delta.alone[kind as usize]);
        }
    }

    /// Takes what was unmapped from the resident set of `space` and from the gauges.
    pub(crate) fn account_unmapped(&self, space: &Space<P>, delta: &MappingDelta) {
        for kind in RssKind::ALL.into_iter().filter(|kind| delta.resident[*kind as usize] > 0) {
            plant!(RssDrift => continue);
            space.rss().sub(kind, delta.resident[kind as usize]);
            self.gauges.sub(gauge(kind), delta.alone[kind as usize]);
        }
    }
}
