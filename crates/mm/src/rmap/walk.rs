//! Visiting every mapping of a page.

use crate::mm::Mm;
use crate::space::Space;
use core::ops::ControlFlow;
use pagewright_sync::Platform;
use pagewright_table::LeafView;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Pfn, SpaceId, VirtAddr};

/// One mapping of a page, visited with its space held for reading.
pub struct RmapEntry<'a, P: Platform> {
    /// The space.
    pub space: &'a Space<P>,
    /// Where the page is mapped.
    pub va: VirtAddr,
    /// What the entry says.
    pub leaf: LeafView,
}

impl<P: Platform> Mm<P> {
    /// Entries that map page `pfn` of a folio, by itself or with its whole folio
    /// (`folio_precise_page_mapcount`).
    ///
    /// Every decision by the number of mappings of a page asks here.
    pub(crate) fn mappings_of(&self, pfn: Pfn) -> u32 {
        let folio = self.frames().folio(pfn);
        folio.page_mapcount(folio.page_of(pfn)) + folio.entire_mapcount()
    }

    /// Visits every mapping of page `pfn` of a folio until `visit` breaks (`rmap_walk`).
    ///
    /// The caller holds a reference on the folio and no lock; mappings that come or go meanwhile
    /// may or may not be seen.
    pub fn for_each_mapping(&self, pfn: Pfn, mut visit: impl FnMut(RmapEntry<'_, P>) -> ControlFlow<()>) {
        let folio = self.frames().folio(pfn);
        let index = folio.index() + u64::from(folio.page_of(pfn));
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(folio.owner(), at) {
            let map = space.map().read();
            for va in map.possible_addresses(folio.owner(), index) {
                let leaf = map.tables(&self.tlb).lock(va).and_then(|locked| locked.leaf(va));
                if let Some(leaf) = leaf.filter(|leaf| !leaf.is_special() && leaf.page_at(va) == pfn)
                    && visit(RmapEntry { space: &space, va, leaf }).is_break()
                {
                    return;
                }
            }
            drop(map);
            at = Some(space.id());
        }
    }

    /// The first space after `after` that may map pages of `owner`.
    pub(crate) fn candidate_after(
        &self,
        owner: FolioOwner,
        after: Option<SpaceId>,
    ) -> Option<pagewright_sync::Arc<Space<P>>> {
        match owner {
            FolioOwner::None => None,
            FolioOwner::Anon(fork_node) => self.fork_tree.next_space_below(fork_node, after),
            FolioOwner::File(id) => {
                let file = self.files.get(id)?;
                let mut at = after;
                loop {
                    let id = file.mapper_after(at)?;
                    // A space that ended between the two look-ups maps nothing any more.
                    if let Some(space) = self.fork_tree.space(id) {
                        return Some(space);
                    }
                    at = Some(id);
                }
            }
        }
    }
}
