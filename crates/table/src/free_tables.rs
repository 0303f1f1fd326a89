//! Unhooking tables that no mapping needs any more (`free_pgtables`, `mm/memory.c`).

use crate::below;
use crate::mmap_lock::MmapWrite;
use crate::own_tables::OwnTables;
use crate::share::span_of;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_sync::{Platform, rank};
use pagewright_tlb::frames::Block;
use pagewright_tlb::{Debt, Gather, OwedFlush};
use pagewright_types::{Level, PageRange, Pfn};

impl<P: Platform, M> MmapWrite<'_, P, M> {
    /// Unhooks every table under `range` that lies wholly within `limits` (`free_pgtables`).
    ///
    /// `limits` reach from the end of the mapping before `range` to the start of the one after. The
    /// gather owns the frames of the tables until it is settled.
    ///
    /// There is no leaf in `limits`, and every table wholly within them covers a part of `range`,
    /// because earlier unmaps freed the tables of theirs.
    pub fn free_tables(&self, own: OwnTables<'_, P>, range: PageRange, limits: PageRange, gather: &mut Gather<'_, P>) {
        debug_assert!(limits.covers(range));
        own.free_below(own.tree.root(), Level::PGD, range, limits, gather);
    }
}

impl<P: Platform> OwnTables<'_, P> {
    fn free_below(&self, table: Pfn, level: Level, range: PageRange, limits: PageRange, gather: &mut Gather<'_, P>) {
        let fx = self.tlb.fx();
        let words = fx.table_words(table);
        // Most entries of an upper table are empty, and its record says how many are not.
        let mut left = self.tlb.frames().table(table).live();
        let base = range.start().align_down(level.table_span());
        for index in level.index_of(range.start())..=level.index_of(range.last()) {
            if left == 0 {
                return;
            }
            let slot = PteSlot { table, index: index as u16 };
            let pte = words.map_or_else(|| fx.load(slot), |words| words.load(index));
            if pte.is_empty() {
                continue;
            }
            let under = span_of(base.add(index as u64 * level.span()), level);
            match P::Isa::decode(level, pte) {
                Entry::Table(child) => {
                    left -= 1;
                    debug_assert!(!child.write_protected, "INV-SHARE-LEAVE: a shared table is freed");
                    let child_level = below(level);
                    if child_level > Level::PTE
                        && let Some(part) = under.intersect(range)
                    {
                        self.free_below(child.pfn, child_level, part, limits, gather);
                    }
                    if limits.covers(under) {
                        gather.hand_over(child.pfn);
                        gather.absorb(self.unhook(slot, level, child.pfn, under));
                    }
                }
                Entry::Leaf(_) | Entry::Soft(_) | Entry::Empty => {}
            }
        }
    }

    /// Clears the pointer to an empty table; its frame rides in the debt.
    fn unhook(&self, slot: PteSlot, level: Level, child: Pfn, under: PageRange) -> Debt<'_, P, Block> {
        let block = self.clear_pointer(slot, child);
        Debt::new(self.tlb, self.context(), under.start(), OwedFlush::Table(level), block)
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Clears the pointer to an empty table, and returns the table's frame.
    ///
    /// The caller holds the space for writing, and frees the frame once no walker can reach it.
    #[allow(unsafe_code)]
    pub(crate) fn clear_pointer(&self, slot: PteSlot, child: Pfn) -> Block {
        let frames = self.tlb.frames();
        debug_assert_eq!(frames.table(child).live(), 0, "INV-TABLE-EMPTY: a table with live entries is unhooked");
        let parent = frames.table(slot.table);
        {
            let _guard = parent.lock::<rank::TableUpperRank>();
            self.tlb.fx().store(slot, Pte::EMPTY);
            parent.adjust_live(-1);
        }
        self.tree.adjust_tables(self.tlb, -1);
        // SAFETY: INV-TABLE-OWNS – the only pointer to the table was just cleared.
        unsafe { frames.retire(child) }
    }
}
