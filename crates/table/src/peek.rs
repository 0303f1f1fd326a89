//! Reading an entry without holding anything, and looking again.
//!
//! The entry may change, and its table may be unhooked, right after it was read. A caller that
//! takes a reference on the frame reads the entry again afterwards, and gives the reference back if
//! anything is different (`gup_fast_pte_range`).

use crate::below;
use crate::leaf_view::EntryView;
use crate::page_table::PageTable;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::{FullBarrier, Platform};
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{FrameState, TableMarks};
use pagewright_types::{Level, VirtAddr};

/// An entry as a lockless walk read it, and the pointer that led to its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekedEntry {
    level: Level,
    slot: PteSlot,
    pte: Pte,
    /// The pointers from the root to the table; the root has none.
    above: [Option<(PteSlot, Pte)>; Level::COUNT - 1],
}

impl PeekedEntry {
    /// What the entry and the path to it allow.
    pub fn entry<I: Isa>(&self) -> EntryView {
        EntryView::decode::<I>(self.level, self.pte, false)
    }
}

impl PageTable {
    /// Reads the entry for `va`, at its level, without locks.
    ///
    /// Stops at a pointer below which other spaces share all tables, since nothing keeps those
    /// hooked; it then reads as a table.
    ///
    /// The caller is inside [`Tlb::walk_lockless`], so that no table is freed concurrently
    /// (INV-TLB-WALKERS), or holds the space.
    pub fn peek<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr) -> PeekedEntry {
        let (mut table, mut level) = (self.root(), Level::PGD);
        let mut above = [None; Level::COUNT - 1];
        loop {
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            let pte = tlb.fx().load(slot);
            debug_assert!(
                matches!(tlb.frames().state(table), FrameState::Table | FrameState::Allocated),
                "INV-TLB-WALKERS: {table} was freed under a walk for {va}"
            );
            match P::Isa::decode(level, pte) {
                Entry::Table(next) if !next.write_protected => {
                    above[level.index() - 1] = Some((slot, pte));
                    table = next.pfn;
                    level = below(level);
                }
                Entry::Table(_) | Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => {
                    return PeekedEntry { level, slot, pte, above };
                }
            }
        }
    }

    /// Whether the entry, and the pointers to its table, are as they were read.
    ///
    /// The caller has taken a reference or a pin meanwhile (INV-FULL-BARRIER).
    pub fn is_unchanged<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry, _taken: FullBarrier) -> bool {
        let same = |(slot, pte)| tlb.fx().load(slot) == pte;
        same((peek.slot, peek.pte))
            && plant!(PathNotRechecked; true, peek.above.iter().flatten().all(|above| same(*above)))
    }

    /// Notes in every table on the way that a page below it may be pinned.
    ///
    /// Before the pin: fork then copies the entries instead of sharing the table. The lowest table
    /// comes first: fork removes a mark and then looks at the marks below.
    pub fn mark_pinned<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry) {
        let above = peek.above.iter().flatten().map(|(slot, _)| slot.table);
        for table in [peek.slot.table].into_iter().chain(above) {
            tlb.frames().table(table).mark(TableMarks::MAY_PIN);
        }
    }
}
