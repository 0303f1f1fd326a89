//! `MADV_PAGEOUT`: a program's own word that it will not miss its pages (`madvise_pageout`).

use super::CLUSTER;
use super::pageout::is_swappable;
use crate::mm::Mm;
use crate::space::Space;
use arrayvec::ArrayVec;
use pagewright_arch::LeafFlags;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioRef;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Pages out what can go of `part`, which was one mapping a moment ago. The caller holds no lock.
    pub(crate) fn page_out_range(&self, space: &Space<P>, part: PageRange) {
        let mut at = part.start();
        while at < part.end() {
            let mut folios = ArrayVec::new();
            at = self.take_candidates(space, PageRange::new(at, part.end()), &mut folios);
            self.page_out(&mut folios);
        }
    }

    /// Takes references on pages of `range` that only this space maps, as many as fit; returns where to go on. Others' pages are not a program's
    /// to page out, and how long that takes would tell who has them.
    fn take_candidates(
        &self,
        space: &Space<P>,
        range: PageRange,
        folios: &mut ArrayVec<FolioRef, CLUSTER>,
    ) -> VirtAddr {
        let _map = space.map().read();
        for (table, under) in space.table().tables(&self.tlb, range) {
            let step = table.level().span();
            let mut va = under.start();
            while va < under.end() {
                if folios.is_full() {
                    return va;
                }
                let leaf = table.leaf(va).filter(|leaf| !leaf.flags.contains(LeafFlags::SPECIAL));
                if let Some(folio) = leaf.map(|leaf| self.frames().folio(leaf.pfn))
                    && is_swappable(folio)
                    && folio.mapcount() == 1
                {
                    folios.push(folio.get());
                }
                va = va.align_down(step).add(step);
            }
        }
        range.end()
    }
}
