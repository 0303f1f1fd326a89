//! Reading an entry without holding anything, and looking again.
//!
//! The entry may change, and its table may be unhooked, right after it was read. A caller that
//! takes a reference on the frame reads the entry again afterwards, and gives the reference back if
//! anything is different (`gup_fast_pte_range`).

use crate::below;
use crate::leaf_view::EntryView;
use crate::page_table::PageTable;
use pagewright_arch::{Entry, Isa, Pte, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{FullBarrier, Platform};
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{FrameState, TableMarks};
use pagewright_types::{Level, Pfn, VirtAddr};

/// An entry as a lockless walk read it, and the pointers that led to its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeekedEntry {
    pub(crate) level: Level,
    pub(crate) slot: PteSlot,
    pub(crate) pte: Pte,
    /// The pointers from the root to the table; the root has none.
    above: [Option<(PteSlot, Pte)>; Level::COUNT - 1],
}

impl PeekedEntry {
    /// What the entry and the path to it allow.
    pub fn entry<I: Isa>(&self) -> EntryView {
        EntryView::decode::<I>(self.level, self.pte, false)
    }

    /// What a walk finds in a space that has ended, whose `root` may be any frame: nothing.
    pub(crate) fn of_ended(root: Pfn) -> Self {
        let slot = PteSlot { table: root, index: 0 };
        Self { level: Level::PGD, slot, pte: Pte::EMPTY, above: [None; Level::COUNT - 1] }
    }

    /// The tables on the way that are above `level`, the lowest first.
    pub(crate) fn tables_above(&self, level: Level) -> impl Iterator<Item = Pfn> {
        self.above[level.index()..].iter().flatten().map(|(slot, _)| slot.table)
    }

    /// Whether the pointers from the root to the table are as they were read.
    #[inline]
    pub(crate) fn is_path_unchanged<P: Platform>(&self, tlb: &Tlb<P>) -> bool {
        self.above.iter().flatten().all(|(slot, pte)| tlb.fx().load(*slot) == *pte)
    }
}

/// Asserts in debug builds that a table which a walk has read is none that was freed.
#[inline]
pub(crate) fn assert_not_freed<P: Platform>(tlb: &Tlb<P>, table: Pfn) {
    debug_assert!(
        matches!(tlb.frames().state(table), FrameState::Table | FrameState::Allocated),
        "INV-TLB-WALKERS: {table} was freed under a walk"
    );
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
        self.walk(tlb, va, |next| !next.write_protected)
    }

    /// Reads the last entry on the way to `va`, through each pointer that `follows` accepts.
    #[inline(always)]
    pub(crate) fn walk<P: Platform>(
        &self,
        tlb: &Tlb<P>,
        va: VirtAddr,
        mut follows: impl FnMut(TableEntry) -> bool,
    ) -> PeekedEntry {
        let (mut table, mut level) = (self.root(), Level::PGD);
        let mut above = [None; Level::COUNT - 1];
        loop {
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            let pte = tlb.fx().load(slot);
            assert_not_freed(tlb, table);
            match P::Isa::decode(level, pte) {
                Entry::Table(next) if follows(next) => {
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
        tlb.fx().load(peek.slot) == peek.pte && plant!(PathNotRechecked; true, peek.is_path_unchanged(tlb))
    }

    /// Notes in every table on the way that a page below it may be pinned.
    ///
    /// Before the pin: fork then copies the entries instead of sharing the table. The lowest table
    /// comes first: fork removes a mark and then looks at the marks below.
    pub fn mark_pinned<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry) {
        for table in [peek.slot.table].into_iter().chain(peek.tables_above(peek.level)) {
            tlb.frames().table(table).mark(TableMarks::MAY_PIN);
        }
    }
}
