//! Reading an entry without holding anything, and looking again.
//!
//! The entry may change, and its table may be unhooked, right after it was read. A caller that
//! takes a reference on the frame reads the entry again afterwards, and gives the reference back if
//! anything is different (`gup_fast_pte_range`).

use crate::below;
use crate::leaf_view::EntryView;
use crate::page_table::PageTable;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::FrameState;
use pagewright_types::{Level, VirtAddr};

/// An entry as a lockless walk read it, and the pointer that led to its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekedEntry {
    level: Level,
    slot: PteSlot,
    pte: Pte,
    /// The pointer to the table; the root has none.
    above: Option<(PteSlot, Pte)>,
    /// Whether other spaces share a pointer on the way.
    shared_path: bool,
}

impl PeekedEntry {
    /// What the entry and the path to it allow.
    pub fn entry<I: Isa>(&self) -> EntryView {
        EntryView::decode::<I>(self.level, self.pte, self.shared_path)
    }
}

impl PageTable {
    /// Reads the entry for `va`, at its level, without locks.
    ///
    /// The caller is inside [`Tlb::walk_lockless`], so that no table is freed concurrently
    /// (INV-TLB-WALKERS), or holds the space.
    pub fn peek<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr) -> PeekedEntry {
        let (mut table, mut level) = (self.root(), Level::PGD);
        let (mut above, mut shared_path) = (None, false);
        loop {
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            let pte = tlb.fx().load(slot);
            debug_assert!(
                matches!(tlb.frames().state(table), FrameState::Table | FrameState::Allocated),
                "INV-TLB-WALKERS: {table} was freed under a walk for {va}"
            );
            match P::Isa::decode(level, pte) {
                Entry::Table(next) if level > Level::PTE => {
                    above = Some((slot, pte));
                    shared_path |= next.write_protected;
                    table = next.pfn;
                    level = below(level);
                }
                Entry::Table(_) | Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => {
                    return PeekedEntry { level, slot, pte, above, shared_path };
                }
            }
        }
    }

    /// Whether the entry, and the pointer to its table, are as they were read.
    pub fn is_unchanged<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry) -> bool {
        tlb.fx().load(peek.slot) == peek.pte && peek.above.is_none_or(|(slot, pte)| tlb.fx().load(slot) == pte)
    }
}
