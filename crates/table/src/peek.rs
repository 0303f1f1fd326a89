//! Taking a page without holding anything (`gup_fast_pte_range`).
//!
//! ```text
//!   read the entry ─▶ take a reference ─▶ full barrier ─▶ read the entry and its path again
//! ```
//!
//! The entry may change, and its table may be unhooked, right after it was read. If anything is
//! different at the end, the caller gives up what it took.

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
#[derive(Clone, Copy)]
pub(crate) struct PeekedEntry {
    pub(crate) level: Level,
    pub(crate) slot: PteSlot,
    pub(crate) pte: Pte,
    /// The pointers from the root to the table; the root has none.
    above: [Option<(PteSlot, Pte)>; Level::COUNT - 1],
}

impl PeekedEntry {
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
    /// Takes what the entry for `va` maps, without locks.
    ///
    /// `take` gets what the entry and the path to it allow, and takes a reference, or `None`.
    /// Before it takes a pin, it calls its second argument, which notes the pin in the tables on
    /// the way. Returns what it took, and whether the entry and its path are still the same
    /// (INV-FULL-BARRIER).
    ///
    /// A pointer below which other spaces share all tables reads as a table: nothing keeps those
    /// hooked.
    ///
    /// The caller is inside [`Tlb::walk_lockless`], so that no table is freed concurrently
    /// (INV-TLB-WALKERS).
    pub fn take_lockless<P: Platform, T>(
        &self,
        tlb: &Tlb<P>,
        va: VirtAddr,
        take: impl FnOnce(EntryView, &dyn Fn()) -> Option<T>,
    ) -> Option<(T, bool)> {
        let peek = self.peek(tlb, va);
        let entry = EntryView::decode::<P::Isa>(peek.level, peek.pte, false);
        let taken = take(entry, &|| self.mark_pinned(tlb, &peek))?;
        // Pairs with the barrier in fork between clearing the exclusive bit and checking for pins:
        // at least one of the two sees the other's store.
        let barrier = FullBarrier::execute();
        Some((taken, self.is_unchanged(tlb, &peek, barrier)))
    }

    /// Reads the entry for `va`, at its level, without locks.
    ///
    /// The caller is inside [`Tlb::walk_lockless`], or holds the space.
    pub(crate) fn peek<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr) -> PeekedEntry {
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
    fn is_unchanged<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry, _taken: FullBarrier) -> bool {
        tlb.fx().load(peek.slot) == peek.pte && plant!(PathNotRechecked; true, peek.is_path_unchanged(tlb))
    }

    /// Notes in every table on the way that a page below it may be pinned.
    ///
    /// Before the pin: fork then copies the entries instead of sharing the table. The lowest table
    /// comes first: fork removes a mark and then looks at the marks below.
    pub(crate) fn mark_pinned<P: Platform>(&self, tlb: &Tlb<P>, peek: &PeekedEntry) {
        for table in [peek.slot.table].into_iter().chain(peek.tables_above(peek.level)) {
            tlb.frames().table(table).mark(TableMarks::MAY_PIN);
        }
    }
}
