//! Visiting every mapping of a page.

use crate::mm::Mm;
use crate::rmap::fork_tree::SpacesBelow;
use crate::space::Space;
use core::ops::ControlFlow;
use pagewright_sync::{Arc, Platform};
use pagewright_table::LeafView;
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Counter, FileId, Pfn, SpaceId, VirtAddr};

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
    /// The number of entries that map page `pfn` of a folio (`folio_precise_page_mapcount`).
    ///
    /// An entry maps the page by itself or with its whole folio.
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
        for space in self.candidates(folio.owner()) {
            let map = space.map().read();
            for va in map.possible_ranges(folio.owner(), index, 1).flat_map(|(_, range)| range.iter()) {
                let leaf = map.tables(&self.tlb).read_lock(va).and_then(|table| table.leaf(va));
                if let Some(leaf) = leaf.filter(|leaf| !leaf.is_special() && leaf.page_at(va) == pfn)
                    && visit(RmapEntry { space: &space, va, leaf }).is_break()
                {
                    return;
                }
            }
        }
    }

    /// The spaces that may map pages of `owner`.
    pub(crate) fn candidates(&self, owner: FolioOwner) -> CandidateSpaces<'_, P> {
        match owner {
            FolioOwner::None => CandidateSpaces::None,
            FolioOwner::Anon(fork_node) => CandidateSpaces::Anon(self, self.fork_tree.spaces_below(fork_node)),
            FolioOwner::File(file) => CandidateSpaces::File { mm: self, file, after: None },
        }
    }
}

/// A walk over the spaces that may map a page; no lock is held between two steps.
///
/// A space that may map the page from the first step to the last is visited (INV-RMAP-SUPERSET).
pub(crate) enum CandidateSpaces<'a, P: Platform> {
    /// No space does.
    None,
    /// Spaces that descend from the one that made an anonymous page.
    Anon(&'a Mm<P>, SpacesBelow<'a, P>),
    /// Spaces that map a file, by id.
    File {
        /// The files.
        mm: &'a Mm<P>,
        /// The file.
        file: FileId,
        /// The space visited last.
        after: Option<SpaceId>,
    },
}

impl<P: Platform> Iterator for CandidateSpaces<'_, P> {
    type Item = Arc<Space<P>>;

    fn next(&mut self) -> Option<Arc<Space<P>>> {
        match self {
            Self::None => None,
            Self::Anon(mm, spaces) => {
                let before = spaces.nodes;
                let space = spaces.next();
                mm.tlb.count(Counter::PwRmapNodes, spaces.nodes - before);
                space
            }
            Self::File { mm, file, after } => {
                let object = mm.files.get(*file)?;
                loop {
                    let id = object.mapper_after(*after)?;
                    *after = Some(id);
                    // A space that ended between the two look-ups maps nothing any more.
                    if let Some(space) = mm.fork_tree.space(id) {
                        return Some(space);
                    }
                }
            }
        }
    }
}
