//! Whether pages are in use (`folio_referenced`, `shrink_active_list`, `folio_check_references`,
//! `mark_page_accessed`).
//!
//! The walker sets a bit in each entry that it uses; here it is read and cleared, in every mapping
//! of a page. Nothing is flushed for it: a CPU that has the translation cached uses it without
//! setting the bit again, so that a page looks less used than it is for a while, as in Linux.
//!
//! Protocol: nobody waits for a space. One that somebody is changing may be using the page, and the
//! page stays where it is; then the others are not asked (`contended` in `folio_referenced`).
//!
//! Not guaranteed: that a use which is not by a mapping is seen, unless whoever makes it says so
//! ([`Mm::mark_accessed`]).

use super::{SWAP_CLUSTER_MAX, Sort};
use crate::mm::Mm;
use crate::space::{AddressMap, Space, VmFlags};
use arrayvec::ArrayVec;
use core::ops::AddAssign;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio};
use pagewright_types::{Counter, Level, NodeId, Pfn, Rights, SpaceId, VirtAddr};

/// What the mappings of a folio say about its use since they were last asked.
#[derive(Clone, Copy, Default)]
pub(super) struct References {
    /// Entries that were used.
    entries: u32,
    /// Whether a mapping has its memory locked.
    locked: bool,
    /// Whether a mapping runs it.
    runs: bool,
    /// Whether somebody could not be asked.
    unknown: bool,
}

impl AddAssign for References {
    fn add_assign(&mut self, more: Self) {
        self.entries += more.entries;
        self.locked |= more.locked;
        self.runs |= more.runs;
        self.unknown |= more.unknown;
    }
}

/// What becomes of a folio at the end of an inactive list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It may go.
    Goes,
    /// It gets another round.
    Stays,
    /// It is in use.
    Activated,
    /// It is locked in memory.
    Culled,
}

impl<P: Platform> Mm<P> {
    /// Asks all mappings of an isolated folio, and makes them forget.
    pub(super) fn folio_referenced(&self, folio: Folio<'_>) -> References {
        let mut found = References::default();
        for index in 0..folio.pages() {
            if found.locked || found.unknown || !folio.is_mapped() {
                break;
            }
            found += self.page_referenced(folio, index);
        }
        found
    }

    fn page_referenced(&self, folio: Folio<'_>, page: u32) -> References {
        let (owner, index, pfn) = (folio.owner(), folio.index() + u64::from(page), folio.page(page));
        let mut found = References::default();
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(owner, at) {
            at = Some(space.id());
            let Some(map) = space.map().try_read() else {
                found.unknown = true;
                return found;
            };
            for va in map.places_of(owner, index) {
                found += self.entry_referenced(&space, &map, va, pfn);
                if found.locked {
                    return found;
                }
            }
        }
        found
    }

    fn entry_referenced(&self, space: &Space<P>, map: &AddressMap<P>, va: VirtAddr, pfn: Pfn) -> References {
        let Some((_, vma)) = map.find(va) else { return References::default() };
        let Some(table) = space.table().lock(&self.tlb, va, Level::PTE) else { return References::default() };
        let Some(leaf) = table.leaf(va).filter(|leaf| leaf.pfn == pfn) else { return References::default() };
        if vma.flags().contains(VmFlags::LOCKED) {
            // Since it was isolated: it is marked, and goes where it belongs.
            return References { locked: true, ..References::default() };
        }
        if !leaf.flags.contains(LeafFlags::ACCESSED) {
            return References::default();
        }
        let forget = |leaf: Leaf| Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf };
        if let Some(debt) = table.update(va, forget) {
            debt.settle_own_entry();
        }
        // Of what is read once, in order, the use says nothing (`vma_has_recency`).
        let once = vma.flags().intersects(VmFlags::SEQ_READ | VmFlags::RAND_READ);
        References { entries: u32::from(!once), runs: vma.rights().contains(Rights::EXEC), ..References::default() }
    }

    /// What becomes of a folio at the end of an inactive list.
    ///
    /// One that was used once gets another round, so that what is read once and never again does
    /// not push out what is in use.
    pub(super) fn check_references(&self, folio: Folio<'_>) -> Fate {
        let used = self.folio_referenced(folio);
        if used.locked {
            return Fate::Culled;
        }
        if used.unknown {
            return Fate::Stays;
        }
        let before = folio.clear_flags(FolioFlags::REFERENCED);
        if used.entries == 0 {
            return Fate::Goes;
        }
        folio.set_flags(FolioFlags::REFERENCED);
        let runs = used.runs && !before.contains(FolioFlags::SWAPBACKED);
        let again = before.contains(FolioFlags::REFERENCED) || used.entries > 1;
        if again || runs { Fate::Activated } else { Fate::Stays }
    }

    /// Moves folios from the end of an active list to the inactive one, but for code that is run.
    pub(super) fn shrink_active(&self, node: NodeId, sort: Sort, most: u32) {
        let mut folios = ArrayVec::<IsolatedFolio, SWAP_CLUSTER_MAX>::new();
        let looked = self.isolate_some(node, sort.active(), most, &mut folios);
        let (mut rotated, mut deactivated) = (0, 0);
        for isolated in folios {
            let folio = self.frames().folio(isolated.pfn());
            let used = self.folio_referenced(folio);
            if used.locked {
                // As above.
            } else if sort == Sort::File && used.entries > 0 && used.runs {
                rotated += folio.pages();
            } else {
                folio.clear_flags(FolioFlags::ACTIVE);
                folio.set_flags(FolioFlags::WORKINGSET);
                deactivated += folio.pages();
            }
            self.putback(isolated);
        }
        self.note_cost(node, sort, 0, rotated);
        self.tlb.count(Counter::PgRefill, u64::from(looked.scanned));
        self.tlb.count(Counter::PgDeactivate, u64::from(deactivated));
    }

    /// Says that a folio was used by other means than a mapping (`mark_page_accessed`).
    ///
    /// The caller has a reference.
    pub(crate) fn mark_accessed(&self, folio: Folio<'_>) {
        let before = folio.set_flags(FolioFlags::REFERENCED);
        let placed = FolioFlags::ACTIVE | FolioFlags::UNEVICTABLE;
        if before.contains(FolioFlags::REFERENCED) && !before.intersects(placed) {
            self.frames().lru_move(folio, FolioFlags::ACTIVE, FolioFlags::REFERENCED);
            self.note_activation(folio);
        }
    }
}
