//! Whether pages are in use (`folio_referenced`, `shrink_active_list`, `folio_check_references`, `mark_page_accessed`).
//!
//! The walker sets a bit in each entry that it uses; here it is read and cleared, in every mapping of a page. Nothing is flushed for it: a CPU
//! that has the translation cached uses it without setting the bit again, so that a page looks less used than it is for a while, as in Linux.
//!
//! Protocol: nobody waits for a space. One that somebody is changing may be using the page, and the page stays where it is.
//!
//! Not guaranteed: that a use which is not by a mapping is seen, unless whoever makes it says so ([`Mm::mark_accessed`]).

use super::{CLUSTER, Sort};
use crate::mm::Mm;
use crate::space::{AddressMap, Space, VmFlags};
use arrayvec::ArrayVec;
use core::ops::AddAssign;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, Isolated};
use pagewright_types::{Counter, Level, NodeId, Pfn, Rights, SpaceId, VirtAddr};

/// What the mappings of a folio say about its use since they were last asked.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    /// Entries that were used.
    entries: u32,
    /// Whether a mapping has its memory locked.
    locked: bool,
    /// Whether a mapping runs it.
    runs: bool,
    /// Whether somebody could not be asked.
    unknown: bool,
}

impl AddAssign for Use {
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
    pub(super) fn ask(&self, folio: Folio<'_>) -> Use {
        let mut found = Use::default();
        for index in 0..folio.pages() {
            if found.locked || !folio.is_mapped() {
                break;
            }
            found += self.ask_page(folio, index);
        }
        found
    }

    fn ask_page(&self, folio: Folio<'_>, page: u32) -> Use {
        let (owner, index, pfn) = (folio.owner(), folio.index() + u64::from(page), folio.page(page));
        let mut found = Use::default();
        let mut at: Option<SpaceId> = None;
        while let Some(space) = self.candidate_after(owner, at) {
            at = Some(space.id());
            let Some(map) = space.map().try_read() else {
                found.unknown = true;
                continue;
            };
            for va in map.places_of(owner, index) {
                found += self.ask_entry(&space, &map, va, pfn);
                if found.locked {
                    return found;
                }
            }
        }
        found
    }

    fn ask_entry(&self, space: &Space<P>, map: &AddressMap<P>, va: VirtAddr, pfn: Pfn) -> Use {
        let Some((_, vma)) = map.find(va) else { return Use::default() };
        let Some(table) = space.table().lock(&self.tlb, va, Level::PTE) else { return Use::default() };
        let Some(leaf) = table.leaf(va).filter(|leaf| leaf.pfn == pfn) else { return Use::default() };
        if vma.flags().contains(VmFlags::LOCKED) {
            // Since it was isolated: it is marked, and goes where it belongs.
            return Use { locked: true, ..Use::default() };
        }
        if !leaf.flags.contains(LeafFlags::ACCESSED) {
            return Use::default();
        }
        let forget = |leaf: Leaf| Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf };
        if let Some(debt) = table.update(va, forget) {
            debt.settle_alone();
        }
        // Of what is read once, in order, the use says nothing (`vma_has_recency`).
        let once = vma.flags().intersects(VmFlags::SEQ_READ | VmFlags::RAND_READ);
        Use { entries: u32::from(!once), runs: vma.rights().contains(Rights::EXEC), ..Use::default() }
    }

    /// What becomes of a folio at the end of an inactive list. One that was used once gets another round, so that what is read once and never
    /// again does not push out what is in use.
    pub(super) fn fate_of(&self, folio: Folio<'_>) -> Fate {
        let used = self.ask(folio);
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
        let mut folios = ArrayVec::<Isolated, CLUSTER>::new();
        let looked = self.isolate_some(node, sort.active(), most, &mut folios);
        let (mut rotated, mut deactivated) = (0, 0);
        for isolated in folios {
            let folio = self.frames().folio(isolated.pfn());
            let used = self.ask(folio);
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

    /// An entry of a mapping with these flags maps a folio: while one of locked memory does, reclaim need not look at it (`mlock_vma_folio`). The
    /// caller has the entry's table locked, or the space for himself.
    #[inline]
    pub(crate) fn keep(&self, flags: VmFlags, folio: Folio<'_>) {
        if flags.contains(VmFlags::LOCKED) && self.frames().mlock(folio) {
            self.tlb.count(Counter::UnevictableCulled, u64::from(folio.pages()));
        }
    }

    /// An entry of a mapping with these flags, by which [`Self::keep`] was called, maps a folio no longer, or will be unlocked (`munlock_vma_folio`).
    /// The caller has what is said there.
    #[inline]
    pub(crate) fn rescue(&self, flags: VmFlags, folio: Folio<'_>) {
        if flags.contains(VmFlags::LOCKED) && self.frames().munlock(folio) {
            self.tlb.count(Counter::UnevictableRescued, u64::from(folio.pages()));
        }
    }

    /// Says that a folio was used by other means than a mapping (`mark_page_accessed`). The caller has a reference.
    pub(crate) fn mark_accessed(&self, folio: Folio<'_>) {
        let before = folio.set_flags(FolioFlags::REFERENCED);
        let placed = FolioFlags::ACTIVE | FolioFlags::UNEVICTABLE;
        if before.contains(FolioFlags::REFERENCED) && !before.intersects(placed) {
            self.frames().lru_move(folio, FolioFlags::ACTIVE, FolioFlags::REFERENCED);
            self.note_activation(folio);
        }
    }
}
