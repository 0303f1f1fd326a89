//! The pages of a range that are on other nodes than a policy names (`queue_folios_pte_range`).
//!
//! Key type: [`MisplacedPage`]. `mbind` asks for the first one (`MPOL_MF_STRICT`); a migration asks
//! for all of them.
//!
//! Not guaranteed: that a page is still there when the walk has passed it, unless the caller holds
//! the space for writing. Pages in swap are on no node and never reported.

use crate::mm::Mm;
use crate::space::{AddressMap, Vma};
use core::ops::ControlFlow;
use pagewright_sync::Platform;
use pagewright_table::Tables;
use pagewright_tlb::frames::Folio;
use pagewright_types::{NodeId, NodeMask, PageRange, Pfn, VirtAddr};

/// A page on a node that a policy does not name.
#[derive(Clone, Copy)]
pub struct MisplacedPage<'m> {
    /// The first address of the range at which the page is mapped.
    pub va: VirtAddr,
    /// The page.
    pub pfn: Pfn,
    /// The folio of the page; a folio of several pages is reported once for entries in a row.
    pub folio: Folio<'m>,
    /// Its node.
    pub node: NodeId,
    /// Whether another space maps the page, by an entry of its own or by a table that it shares.
    ///
    /// Below a shared table, a mapcount of 1 stands for every sharer.
    pub is_shared: bool,
    /// Whether the page is being moved, by another call or a demotion.
    pub is_moving: bool,
}

impl<P: Platform> Mm<P> {
    /// Calls `visit` with each page of `range` that is not on one of `nodes`, until it breaks.
    ///
    /// The caller holds the space of `map`. The zero page, which no policy places, is left out.
    ///
    /// `visit` runs with a table of the space locked.
    pub fn for_each_misplaced<B>(
        &self,
        (map, tables): (&AddressMap<P>, Tables<'_, P>),
        range: PageRange,
        nodes: NodeMask,
        mut visit: impl FnMut(&Vma<P>, MisplacedPage<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut last = None;
        for (_, vma, part) in map.parts(range) {
            for (table, under) in tables.read_locked(part) {
                for va in table.entries(under) {
                    let entry = table.entry(va);
                    let Some(leaf) = entry.page(table.level()).filter(|leaf| !leaf.is_special()) else { continue };
                    let pfn = leaf.page_at(va);
                    let folio = self.frames().folio(pfn);
                    let node = self.node_of(folio);
                    if nodes.contains(node) || last.replace(folio.pfn()) == Some(folio.pfn()) {
                        continue;
                    }
                    let is_shared = self.mappings_of(pfn) != 1 || table.sharers() != 1;
                    visit(vma, MisplacedPage { va, pfn, folio, node, is_shared, is_moving: entry.is_migrating() })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}
