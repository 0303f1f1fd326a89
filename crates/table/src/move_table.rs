//! Moving whole tables to other addresses of their space (`move_normal_pmd`, `move_normal_pud`).
//!
//! If both addresses are aligned to what a table spans, moving the pointer to it moves all entries
//! below. The entries, their counts and the record of the table stay as they are, since none of
//! them knows an address.
//!
//! ```text
//!   entry for `va`  ──▶ table    cleared; owes a flush of walk caches and of every page below
//!   entry for `to`  ──▶ table    stored; it was empty
//! ```
//!
//! **INV-REMAP-TABLES** A table moves whole to another address of its space only if it is its own,
//! both addresses are aligned to its span, and the new entry is empty. The flush that follows
//! covers the walk caches and every page of the span at the old address.
//!
//! [`Tables::movable_table`] says which tables may move. The debt of a move is that of a table with
//! live entries.
//!
//! Neighbours: `entry/relocate.rs` moves the entries of a table one by one.
//!
//! Not guaranteed: that a table moves over an empty table, which would have to be flushed first.

use crate::below;
use crate::mmap_lock::MmapWrite;
use crate::own_tables::OwnTables;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::TableMarks;
use pagewright_tlb::{Debt, Gather, OwedFlush};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

impl<P: Platform> Tables<'_, P> {
    /// The level of the pointer by which the first part of `from` can move to `to` as one.
    ///
    /// It is the highest such level: both addresses are aligned to its span, `from` covers it, the
    /// table below belongs to this space alone, and no table is in its way. `None` if entries must
    /// move one by one.
    pub fn movable_table(&self, from: PageRange, to: VirtAddr) -> Option<Level> {
        let levels = (Level::PMD.raw()..=Level::PGD.raw()).rev().map(Level::new);
        let aligned = levels.filter(|level| {
            let span = level.span();
            from.len() >= span && from.start().is_aligned(span) && to.is_aligned(span)
        });
        aligned.into_iter().find(|level| self.table_below(from.start(), *level) && self.has_room(to, *level))
    }

    /// Whether the entry of `level` for `va` is a pointer to an own table.
    fn table_below(&self, va: VirtAddr, level: Level) -> bool {
        let found = self.descend(va, level);
        let pointer = matches!(P::Isa::decode(level, found.pte), Entry::Table(table) if !table.write_protected);
        found.level == level && !found.shared && pointer
    }

    /// Whether the entry of `level` for `va` is empty, or missing.
    pub fn has_room(&self, va: VirtAddr, level: Level) -> bool {
        let found = self.descend(va, level);
        !found.shared && plant!(TableMovedOver; true, found.pte.is_empty())
    }
}

impl<P: Platform, M> MmapWrite<'_, P, M> {
    /// Moves the table below the entry of `level` for `va` to the entry for `to`.
    ///
    /// [`Tables::movable_table`] said that this is possible, and the tables down to the one of
    /// `level` for `to` exist. If there is no such table, nothing moves. `gather` takes the flush
    /// and the keys of what moves; the caller settles it before it releases the space
    /// (INV-REMAP-FLUSH, INV-TLB-KEY-LIFE). Until then no call finds the pages at `to`; a lockless
    /// walk may take a reference on one there, which keeps it.
    ///
    /// # Panics
    /// In debug builds when `va` or `to` is not aligned.
    pub fn move_table(
        &self,
        own: OwnTables<'_, P>,
        va: VirtAddr,
        to: VirtAddr,
        level: Level,
        gather: &mut Gather<'_, P>,
    ) {
        debug_assert!(va.is_aligned(level.span()) && to.is_aligned(level.span()), "a part of a table moves from {va}");
        let (pointer, child) = {
            let Some(from) = own.lock_level(va, level).filter(|from| from.level() == level) else { return };
            let pointer = from.pte(va);
            let Entry::Table(child) = P::Isa::decode(level, pointer) else { return };
            from.put(va, Pte::EMPTY);
            from.page().adjust_live(-1);
            (pointer, child.pfn)
        };
        own.hand_over_below(child, below(level), gather);
        let Some(to_table) = own.lock_level(to, level).filter(|table| table.level() == level) else {
            unreachable!("INV-TABLE-RESERVE: the tables for {to} were made before one moved there")
        };
        to_table.put(to, pointer);
        to_table.page().adjust_live(1);
        if plant!(HugeMovedUnmarked; false, own.tlb.frames().table(child).marks().contains(TableMarks::HOLDS_HUGE)) {
            to_table.mark_huge();
        }
        drop(to_table);
        own.carry_pin_mark(child, to);
        plant!(MovedTableCached => return gather.extend(crate::share::span_of(va, level), Level::PTE));
        let owed = plant!(MovedTableAsPage; OwedFlush::Table(level), OwedFlush::LiveTable(level));
        gather.absorb(Debt::new(own.tlb, own.context(), va, owed, ()));
    }
}

impl<P: Platform> OwnTables<'_, P> {
    /// Hands the keys of a table that moves, and of all below it, to `gather` (INV-TLB-KEY-LIFE).
    fn hand_over_below(&self, table: Pfn, level: Level, gather: &mut Gather<'_, P>) {
        gather.hand_over(table);
        if level == Level::PTE || !self.tlb.may_owe_flush_anywhere(self.context()) {
            return;
        }
        for index in 0..Level::ENTRIES {
            let pte = self.tlb.fx().load(PteSlot { table, index: index as u16 });
            if let Entry::Table(child) = P::Isa::decode(level, pte) {
                self.hand_over_below(child.pfn, below(level), gather);
            }
        }
    }
}
