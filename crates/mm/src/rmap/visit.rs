//! Visiting the mappings of a folio (`rmap_walk`): the one visitor of the reverse map.
//!
//! Key types: [`MappedLeaf`], one mapping, in a locked table; [`FolioVisit`], what a closure is
//! called with; [`SpaceLock`], whether the visitor waits for the lock of a space.
//!
//! ```text
//!   visit_spaces    each space that may map pages of an owner, held for reading
//!     visit_folio   each leaf that maps the folio or pages of it, at any level, with its table locked
//! ```
//!
//! A leaf is visited once, through the first space that reaches it. If its table is shared, an edit
//! of it holds for every sharer ([`EditForAll`]), and so does the visit. A visit ends when all
//! entries of the folio's mapcount were met, as Linux's does.
//!
//! | closure | lock | does with a leaf |
//! | --- | --- | --- |
//! | `reclaim/try_to_unmap.rs` | tries | clears it, or stores a swap entry; skips mlocked mappings |
//! | `reclaim/age.rs` | tries | clears its accessed bit; breaks at a contended space |
//! | `migrate/unmap.rs` | tries | stores a migration entry, and notes the place |
//! | `thp/split.rs` | tries | the same; places are runs, a leaf above the last level is one |
//!
//! Some go by [`Mm::visit_spaces`] instead. `file/writeback.rs` also settles the debts of tables
//! without a leaf. `file/resize.rs` clears ranges, swap entries included, in runs of whole tables.
//! [`Mm::for_each_mapping`] and `view/mappings.rs` are views of each space that reaches a leaf.
//!
//! Protocol: the caller holds a reference on the folio, and no lock that ranks below a space's if
//! it waits. It may hold any lock if it tries. The closure runs with the space held and the table
//! locked.
//!
//! **INV-RMAP-ONCE** A walk of the reverse map visits a leaf that maps a folio once, at any level,
//! and a leaf of a shared table through one of its sharers. It ends when it has met as many leaves
//! as the mapcount has, as Linux's does. So it may miss a leaf if one that it has met goes
//! meanwhile, and a closure that needs all of them compares what it has met with the mapcount. A
//! folio with more leaves than the walk tells apart is looked for in every space.
//!
//! Such a folio's leaves are visited again through other sharers, if there are more than
//! [`MOST_MET`] that stay. So a closure must be idempotent.
//!
//! Not guaranteed: every leaf. Mappings that come or go meanwhile may or may not be visited, and if
//! one that was met goes, another may be missed. A closure that needs all compares the leaves that
//! it was called with and the mapcount.

use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use pagewright_arch::PteSlot;
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_table::{EditForAll, LeafView, LockedTable, MmapRead};
use pagewright_tlb::frames::{Folio, FolioOwner};
use pagewright_types::{PageRange, Pfn, VirtAddr};

/// The leaves of a folio that a visit tells apart.
const MOST_MET: usize = 16;

/// Whether a visit waits for the lock of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceLock {
    /// It waits.
    Wait,
    /// It leaves out a space whose lock is contended, and says so.
    Try,
}

/// A space that may map pages of an owner.
pub(crate) enum CandidateSpace<'v, P: Platform> {
    /// It is held for reading.
    Held(&'v Arc<Space<P>>, &'v MmapRead<'v, P, AddressMap<P>>),
    /// Its lock is contended.
    Contended,
}

/// What the closure of a visit is called with.
pub(crate) enum FolioVisit<'v, P: Platform> {
    /// A leaf maps the folio.
    Mapped(MappedLeaf<'v, P>),
    /// A space may map the folio, and its lock is contended.
    Contended,
}

/// A leaf that maps a folio, or a page of it, in a locked table.
pub(crate) struct MappedLeaf<'v, P: Platform> {
    /// The space through which it was found; others may share the table.
    pub(crate) space: &'v Arc<Space<P>>,
    /// The mapping.
    pub(crate) vma: &'v Vma<P>,
    /// Where pages of the folio may be in the mapping.
    pub(crate) range: PageRange,
    /// The first address of that range under the leaf.
    pub(crate) va: VirtAddr,
    /// What the entry says.
    pub(crate) leaf: LeafView,
    /// The table that holds it.
    pub(crate) table: &'v LockedTable<'v, P, EditForAll<'v, P>>,
}

/// The leaves of a folio that a visit has left where they are.
///
/// Several spaces reach the leaves of a table that they share, and the mapcount has each of them
/// once.
#[derive(Default)]
struct MetLeaves(ArrayVec<PteSlot, MOST_MET>);

impl MetLeaves {
    fn contains(&self, leaf: PteSlot) -> bool {
        self.0.contains(&leaf)
    }

    fn meet(&mut self, leaf: PteSlot) {
        plant!(SharedLeafRevisited => return);
        if !self.0.is_full() {
            self.0.push(leaf);
        }
    }

    /// Whether no other leaf maps the folio; false if there are too many to tell.
    fn are_all_of(&self, folio: Folio<'_>) -> bool {
        self.0.len() as u32 >= folio.mapcount()
    }
}

/// One mapping of a page, as a space that reaches its entry sees it.
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
        folio.entries_of_page(folio.page_of(pfn))
    }

    /// Visits every mapping of page `pfn` of a folio until `visit` breaks.
    ///
    /// That is every space that reaches an entry for it. The caller holds a reference on the folio
    /// and no lock; mappings that come or go meanwhile may or may not be seen.
    pub fn for_each_mapping(&self, pfn: Pfn, mut visit: impl FnMut(RmapEntry<'_, P>) -> ControlFlow<()>) {
        let folio = self.frames().folio(pfn);
        let (owner, index) = (folio.owner(), folio.index() + u64::from(folio.page_of(pfn)));
        self.visit_spaces(owner, SpaceLock::Wait, |candidate| {
            let CandidateSpace::Held(space, map) = candidate else { return ControlFlow::Continue(()) };
            for va in map.possible_ranges(owner, index, 1).flat_map(|(_, range)| range.iter()) {
                let leaf = map.tables(&self.tlb).read_lock(va).and_then(|table| table.leaf(va));
                if let Some(leaf) = leaf.filter(|leaf| !leaf.is_special() && leaf.page_at(va) == pfn) {
                    visit(RmapEntry { space, va, leaf })?;
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Visits the spaces that may map pages of `owner`, each held for reading.
    ///
    /// Ends when `visit` breaks.
    pub(crate) fn visit_spaces(
        &self,
        owner: FolioOwner,
        lock: SpaceLock,
        mut visit: impl FnMut(CandidateSpace<'_, P>) -> ControlFlow<()>,
    ) {
        for space in self.candidates(owner) {
            let map = match lock {
                SpaceLock::Wait => Some(space.map().read()),
                SpaceLock::Try => space.map().try_read(),
            };
            let visited = match &map {
                Some(map) => visit(CandidateSpace::Held(&space, map)),
                None => visit(CandidateSpace::Contended),
            };
            if visited.is_break() {
                return;
            }
        }
    }

    /// Visits the leaves that map a folio or pages of it, until `visit` breaks (INV-RMAP-ONCE).
    pub(crate) fn visit_folio(
        &self,
        folio: Folio<'_>,
        lock: SpaceLock,
        mut visit: impl FnMut(FolioVisit<'_, P>) -> ControlFlow<()>,
    ) {
        let (owner, first, pages) = (folio.owner(), folio.index(), u64::from(folio.pages()));
        let mut met = MetLeaves::default();
        if !folio.is_mapped() {
            return;
        }
        self.visit_spaces(owner, lock, |candidate| {
            let CandidateSpace::Held(space, map) = candidate else { return visit(FolioVisit::Contended) };
            let tables = map.tables(&self.tlb);
            let token = tables.family_token();
            for (index, range) in map.possible_ranges(owner, first, pages) {
                let Some((_, vma)) = map.find(range.start()) else { continue };
                let page_of =
                    |va: VirtAddr| folio.page((index - first + va.page_index() - range.start().page_index()) as u32);
                for (table, part) in tables.locked_for_all(range, token.as_ref()) {
                    for va in table.entries(part) {
                        let maps = |leaf: &LeafView| !leaf.is_special() && leaf.page_at(va) == page_of(va);
                        let Some(leaf) = table.leaf(va).filter(maps) else { continue };
                        let mapped = MappedLeaf { space, vma, range, va, leaf, table: &table };
                        let slot = table.slot_of(va);
                        if met.contains(slot) {
                            continue;
                        }
                        visit(FolioVisit::Mapped(mapped))?;
                        if table.leaf(va).is_some_and(|leaf| maps(&leaf)) {
                            met.meet(slot);
                        }
                    }
                }
            }
            if met.are_all_of(folio) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}
