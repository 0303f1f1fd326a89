//! Leaving the tables that a space shares, for `munmap`, `exec` and exit.
//!
//! ```text
//!   1  each shared pointer of the range := in transition, which names its table; or own, if its
//!      table has no other share
//!   2  one flush of the space, which waits for every lockless walk
//!   3  each table, under its lock:  more than one share: drop it, and clear the pointer
//!                                   the last share: hook it again, for the caller to unmap
//! ```
//!
//! A table with one share has entries that no other space reaches. They go the way of all others:
//! the caller unmaps them, gives up their references after its flush, and frees the table.
//!
//! A counted walk below a shared pointer holds its space, if only for reading. The space that
//! leaves is held for writing, so no such walk of it goes on; a break must wait for them.
//!
//! A space that goes on counts what it leaves, by the record of each table below the pointer. One
//! that ends does not: it reads nothing below the pointer, however much it shared.
//!
//! Nothing here allocates or fails.

use super::resident::Reach;
use super::{drop_share, span_of};
use crate::below;
use crate::locked_table::LockedTable;
use crate::mmap_lock::MmapWrite;
use crate::own_tables::OwnTables;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, Pte, PteSlot, SoftEntry, SoftKind, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{EntryCounts, TableMarks};
use pagewright_tlb::{Debt, Gather, OwedFlush, Tlb};
use pagewright_types::{Counter, Level, PageRange, Pfn};

/// Whether a space counts in its resident set what it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaver {
    /// It does, because it goes on.
    GoesOn,
    /// It does not: its counts are forgotten when it closes ([`close`](MmapWrite::close)).
    ///
    /// Debug builds count all the same, and compare then (INV-TABLE-CLOSE).
    Ends,
}

impl<P: Platform, M> MmapWrite<'_, P, M> {
    /// Leaves every shared table of `range`, and returns the tables that are left, all its own.
    ///
    /// `mapped` are the parts of `range` that have mappings. Nothing is shared elsewhere, so the
    /// walk visits no other entries. No pointer is shared that lies in `range` in part:
    /// [`Tables::own_ends`] broke those.
    pub fn leave_shared<'h>(
        &'h self,
        tlb: &'h Tlb<P>,
        range: PageRange,
        mapped: impl Iterator<Item = PageRange> + Clone,
    ) -> OwnTables<'h, P> {
        self.leave_as(Leaver::GoesOn, tlb, range, mapped)
    }

    /// As [`leave_shared`](Self::leave_shared), for a space that ends.
    ///
    /// It counts nothing that it leaves, and so reads nothing below a shared pointer.
    pub fn leave_shared_at_exit<'h>(
        &'h self,
        tlb: &'h Tlb<P>,
        range: PageRange,
        mapped: impl Iterator<Item = PageRange> + Clone,
    ) -> OwnTables<'h, P> {
        self.leave_as(Leaver::Ends, tlb, range, mapped)
    }

    fn leave_as<'h>(
        &'h self,
        leaver: Leaver,
        tlb: &'h Tlb<P>,
        range: PageRange,
        mapped: impl Iterator<Item = PageRange> + Clone,
    ) -> OwnTables<'h, P> {
        let tables = self.tables(tlb);
        // A table that is taken back at the end has children that other spaces may share.
        while tables.tree.has_shared() && tables.leave(leaver, mapped.clone()) {}
        debug_assert!(tables.try_own(range).is_some(), "INV-TABLE-OWN: a table of {range} is left shared");
        OwnTables::new(tables, range)
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Leaves what is shared in `mapped`; true if it took back a table that has shared pointers.
    fn leave(&self, leaver: Leaver, mapped: impl Iterator<Item = PageRange> + Clone) -> bool {
        let root = (self.tree.root(), Level::PGD);
        let mut gather = Gather::new(self.tlb, self.context());
        let mut marked = false;
        for part in mapped.clone() {
            self.each_shared(root, part, &mut |table, index, _| {
                marked |= self.mark_or_take_back(table, index, &mut gather);
            });
        }
        if !marked {
            return false;
        }
        gather.settle();
        let mut taken_back = false;
        for part in mapped {
            taken_back |= self.drop_marked(leaver, root, part);
        }
        taken_back
    }

    /// Calls `visit` for each shared pointer of `range` in the own tables below `at`, top down.
    ///
    /// If `visit` makes the pointer the space's own, what is below it is visited, too.
    fn each_shared(
        &self,
        at: (Pfn, Level),
        range: PageRange,
        visit: &mut impl FnMut(&LockedTable<'_, P>, usize, TableEntry),
    ) {
        let (table, level) = at;
        let base = range.start().align_down(level.table_span());
        for index in level.index_of(range.start())..=level.index_of(range.last()) {
            let slot = PteSlot { table, index: index as u16 };
            let Entry::Table(mut pointer) = P::Isa::decode(level, self.tlb.fx().load(slot)) else { continue };
            let va = base.add(index as u64 * level.span());
            if pointer.write_protected {
                visit(&LockedTable::new(*self, table, level, va), index, pointer);
                let Entry::Table(now) = P::Isa::decode(level, self.tlb.fx().load(slot)) else { continue };
                pointer = now;
            }
            if level > Level::PMD
                && !pointer.write_protected
                && let Some(part) = span_of(va, level).intersect(range)
            {
                self.each_shared((pointer.pfn, below(level)), part, visit);
            }
        }
    }

    /// Counts in the space what is below its shared pointers.
    pub(super) fn count_shared(&self) {
        self.each_shared((self.tree.root(), Level::PGD), P::Isa::USER, &mut |parent, index, pointer| {
            let old = LockedTable::new(*self, pointer.pfn, below(parent.level()), parent.address(index));
            self.count_reached(self.reach_of(&old));
        });
    }

    /// Prepares a shared pointer to be left, or takes its table back if no other share is left.
    ///
    /// Returns whether the pointer is in transition.
    fn mark_or_take_back(&self, parent: &LockedTable<'_, P>, index: usize, gather: &mut Gather<'_, P>) -> bool {
        let (va, level) = (parent.address(index), parent.level());
        let Some((old, origin)) = self.lock_shared(parent, va) else { return false };
        let payload = u64::from(old.table().raw());
        parent.store(index, P::Isa::soft(SoftEntry { kind: SoftKind::InTransition, exclusive: origin, payload }));
        let debt = Debt::new(self.tlb, self.context(), va, OwedFlush::LiveTable(level), ());
        plant!(LeaveNotFlushed; core::mem::forget(debt), gather.absorb(debt));
        true
    }

    /// Drops the share of each table of `range` whose pointer is in transition.
    ///
    /// Returns whether it took a table back instead, because no other share was left.
    fn drop_marked(&self, leaver: Leaver, at: (Pfn, Level), range: PageRange) -> bool {
        let (table, level) = at;
        let mut taken_back = false;
        let base = range.start().align_down(level.table_span());
        for index in level.index_of(range.start())..=level.index_of(range.last()) {
            let slot = PteSlot { table, index: index as u16 };
            let va = base.add(index as u64 * level.span());
            match P::Isa::decode(level, self.tlb.fx().load(slot)) {
                Entry::Soft(soft) if soft.kind.is_in_transition() => {
                    taken_back |= !self.drop_share(leaver, &LockedTable::new(*self, table, level, va), index, soft);
                }
                Entry::Table(own) if level > Level::PMD => {
                    if let Some(part) = span_of(va, level).intersect(range) {
                        taken_back |= self.drop_marked(leaver, (own.pfn, below(level)), part);
                    }
                }
                Entry::Table(_) | Entry::Leaf(_) | Entry::Soft(_) | Entry::Empty => {}
            }
        }
        taken_back
    }

    /// Drops the share of a table, or takes the table back if it is the last; false then.
    fn drop_share(&self, leaver: Leaver, parent: &LockedTable<'_, P>, index: usize, soft: SoftEntry) -> bool {
        let va = parent.address(index);
        let old = LockedTable::new(*self, Pfn::new(soft.payload as u32), below(parent.level()), va);
        if plant!(LastShareDropped; false, old.page().shares() == 1) {
            // No other space reaches it, and the caller unmaps all of it.
            self.take_back(parent, index, &old, soft.exclusive);
            return false;
        }
        if leaver == Leaver::GoesOn || cfg!(debug_assertions) {
            let left = self.reach_of(&old);
            self.count_reached(Reach { tables: -left.tables, entries: left.entries.map(|entries| -entries) });
        }
        parent.store(index, Pte::EMPTY);
        parent.page().adjust_live(-1);
        plant!(LeaveNotCounted; (), self.count_path_change(self.edited_in(span_of(va, parent.level()))));
        drop_share(self.tlb, old.table());
        self.tlb.count(Counter::PwTableLeft, 1);
        true
    }

    /// What is below a table and in it, without what is noted for all.
    fn reach_of(&self, table: &LockedTable<'_, P>) -> Reach {
        let mut reach = Reach::default();
        self.add_reach(table, &mut reach);
        reach
    }

    /// Each table is locked while it is read, because an edit for all changes two of its counts.
    fn add_reach(&self, table: &LockedTable<'_, P>, reach: &mut Reach) {
        let level = table.level();
        let made_for_all = plant!(MadeTableLeft; false, table.page().marks().contains(TableMarks::MADE_FOR_ALL));
        reach.add(Reach { tables: i64::from(!made_for_all), entries: self.counts_of(table.table(), level) });
        if level > Level::PTE {
            for (index, pte) in table.live_entries() {
                if let Entry::Table(child) = P::Isa::decode(level, pte) {
                    let va = table.address(index);
                    self.add_reach(&LockedTable::new(*self, child.pfn, below(level), va), reach);
                }
            }
        }
    }

    /// What the entries of one table count as in a resident set, without edits for all.
    pub(super) fn counts_of(&self, table: Pfn, level: Level) -> EntryCounts<i64> {
        let page = self.tlb.frames().table(table);
        let (counts, edits) = (page.counts(), page.shared_edits());
        core::array::from_fn(|kind| (i64::from(counts[kind]) - i64::from(edits[kind])) * level.pages() as i64)
    }
}
