//! Replacing a huge leaf by a table of smaller ones that say the same.

use crate::locked_table::LockedTable;
use crate::page_table::PageTable;
use crate::reserve::TableReserve;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::{FlushInfo, Tlb};
use pagewright_types::{Level, PageRange, VirtAddr};

impl PageTable {
    /// Splits the leaf of `level` over `va` into 512 leaves one level down.
    ///
    /// The new leaves have its rights and flags and one reference each. One table is taken from
    /// `reserve`. Returns whether there was such a leaf.
    ///
    /// The old leaf is cleared and flushed before the table is hooked (break-before-make of arm64;
    /// on x86 it also avoids entries of two sizes in a TLB, Linux's `__split_huge_pmd_locked`). A
    /// concurrent access faults and waits for the table's lock.
    pub fn split_leaf<P: Platform>(
        &self,
        tlb: &Tlb<P>,
        va: VirtAddr,
        level: Level,
        reserve: &mut TableReserve<'_, P>,
    ) -> bool {
        debug_assert!(level > Level::PTE, "a leaf of the last level is split at {va}");
        let Some(locked) = self.lock(tlb, va, level) else { return false };
        if locked.level() != level {
            return false;
        }
        let Entry::Leaf(_) = locked.entry(va) else { return false };
        self.split_locked(tlb, &locked, va, reserve);
        true
    }

    fn split_locked<P: Platform>(
        &self,
        tlb: &Tlb<P>,
        locked: &LockedTable<'_, P>,
        va: VirtAddr,
        reserve: &mut TableReserve<'_, P>,
    ) {
        let level = locked.level();
        let slot = locked.slot(va);
        let below = Level::new(level.raw() - 1);
        let child = reserve.take_table(below, self.context().id());
        let old = tlb.fx().swap(slot, pagewright_arch::Pte::EMPTY);
        let Entry::Leaf(leaf) = P::Isa::decode(level, old) else {
            unreachable!("INV-TABLE-LOCKED: the entry at {va} was edited without its table's lock")
        };
        let start = va.align_down(level.span());
        let range = PageRange::new(start, start.add(level.span()));
        let named = plant!(SplitLevelBelow; below, level);
        tlb.flush(self.context(), FlushInfo { range: Some(range), level: named, freed_tables: false });
        let page = tlb.frames().table(child);
        for index in 0..Level::ENTRIES {
            let part = Leaf { pfn: leaf.pfn.add(index as u32 * below.pages() as u32), ..leaf };
            tlb.fx().store(PteSlot { table: child, index: index as u16 }, P::Isa::leaf(below, part));
            page.add_live(1);
        }
        if !leaf.flags.contains(LeafFlags::SPECIAL) {
            // The one reference of the old leaf becomes the first part's; the other parts get their
            // own.
            for _ in 1..Level::ENTRIES {
                tlb.frames().folio(leaf.pfn).get().into_raw();
            }
        }
        // INV-TABLE-ZERO: the entries are visible to walkers before the pointer to them is.
        tlb.fx().publish();
        tlb.fx().store(slot, P::Isa::table(TableEntry { pfn: child, write_protected: false }));
        tlb.fx().publish();
        self.add_tables(1);
    }
}
