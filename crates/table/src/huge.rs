//! Huge leaves: entries above the last level that map memory, and what each needs.
//!
//! - A leaf of the PMD level, and the migration entry that stands for one, has a *deposit*: an
//!   empty last-level table in the record of the table that holds it, counted as a table of the
//!   space. A split hooks it, so a split allocates nothing and cannot fail. It moves with the leaf
//!   and is freed with it. No walker has seen it, so its frame owes nothing and is still clear.
//! - Every table on the path to a huge entry has the mark `HOLDS_HUGE`. Fork does not share such a
//!   table, and copies its huge entries.
//!
//! **INV-HUGE-DEPOSIT** A table of the PMD level has a last-level table deposited for each of its
//! leaves and migration entries, counted as a table of the space. Its contents are undefined,
//! because a split stores all 512 entries before it hooks the table. A split takes it and allocates
//! nothing. A leaf that is cleared frees it, and one that moves takes it along.
//!
//! **INV-HUGE-OWN** A leaf or a soft entry above the last level is in a table that its space has to
//! itself. Every table on the path is marked before such an entry is stored, and fork copies the
//! huge entries of marked tables instead of sharing these.
//!
//! Neighbours: `entry` stores, copies, moves and clears huge leaves; `split.rs` splits them.
//!
//! Not guaranteed: that a marked table has a huge entry still. Fork removes the mark of one that
//! has none.

use crate::entry::EntryRun;
use crate::locked_table::{LockedTable, TableRight};
use crate::owned_leaf::OwnedLeaf;
use crate::reserve::TableReserve;
use pagewright_arch::{Entry, Isa, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{NewFolio, TableMarks};
use pagewright_types::{Level, PageRange, Pfn, Rights, VirtAddr};

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Maps a huge page by an empty entry above the last level, as [`map`](Self::map) maps a page.
    ///
    /// Takes the deposit of a leaf of the PMD level from `reserve`.
    ///
    /// # Panics
    /// As `map`; when a deposit is needed and the reserve is empty.
    pub fn map_huge(&mut self, va: VirtAddr, leaf: OwnedLeaf, reserve: &mut TableReserve<'_, P>) {
        self.table().prepare_huge(1, reserve);
        self.install(va, leaf);
    }

    /// Maps a folio that exists from now on by an empty entry above the last level.
    ///
    /// As [`map_huge`](Self::map_huge) and [`map_new`](Self::map_new).
    ///
    /// # Panics
    /// As `map_huge` and `map_new`.
    pub fn map_new_huge(
        &mut self,
        va: VirtAddr,
        new: NewFolio,
        rights: Rights,
        flags: LeafFlags,
        reserve: &mut TableReserve<'_, P>,
    ) {
        self.table().prepare_huge(1, reserve);
        self.install_new(va, new, rights, flags);
    }
}

impl<P: Platform, R: TableRight> LockedTable<'_, P, R> {
    /// Makes room for `entries` huge leaves: marks the path, and deposits tables from `reserve`.
    pub(crate) fn prepare_huge(&self, entries: usize, reserve: &mut TableReserve<'_, P>) {
        self.mark_huge();
        if self.level() == Level::PMD {
            let space = self.context().id();
            (0..entries).for_each(|_| self.take_deposit(reserve.take_deposit(space)));
            self.tables.tree.adjust_tables(self.tables.tlb, entries as i64);
        }
    }

    /// Marks the tables on the path to an entry of this table as holders of huge entries.
    pub(crate) fn mark_huge(&self) {
        let (tree, tlb) = (self.tables.tree, self.tables.tlb);
        if !self.page().marks().contains(TableMarks::HOLDS_HUGE) {
            plant!(HugeUnmarked => return);
            let peek = tree.peek(tlb, self.address(0));
            for table in [self.table()].into_iter().chain(peek.tables_above(self.level())) {
                tlb.frames().table(table).mark(TableMarks::HOLDS_HUGE);
            }
        }
    }

    /// Adds a deposit, which the space counts already.
    pub(crate) fn take_deposit(&self, deposit: Pfn) {
        self.tables.tlb.frames().deposit_table(self.table(), deposit);
        self.tables.tree.adjust_deposits(1);
    }

    /// Takes the deposit of a leaf that was cleared or is being split; the space counts it still.
    pub(crate) fn withdraw(&self) -> Pfn {
        self.tables.tree.adjust_deposits(-1);
        self.tables.tlb.frames().withdraw_table(self.table())
    }

    /// Frees the deposit of a huge leaf that was cleared, if it had one.
    #[inline]
    pub(crate) fn free_deposit(&self) {
        if self.level() == Level::PMD {
            self.free_deposits(1);
        }
    }

    /// Frees `deposits` of the deposits.
    #[cold]
    #[allow(unsafe_code)]
    pub(crate) fn free_deposits(&self, deposits: usize) {
        plant!(DepositKept => return);
        let (tree, tlb) = (self.tables.tree, self.tables.tlb);
        for _ in 0..deposits {
            let table = self.withdraw();
            tree.adjust_tables(tlb, -1);
            // SAFETY: INV-TABLE-OWNS – no entry points to a deposit.
            tlb.free(unsafe { tlb.frames().retire(table) });
        }
    }

    /// Moves the deposits of the huge leaves of `part`, which move to the table `to`.
    pub(crate) fn move_deposits(&self, part: PageRange, to: &LockedTable<'_, P>) {
        to.mark_huge();
        if self.level() == Level::PMD && self.table() != to.table() {
            plant!(DepositLeftBehind => return);
            (0..self.huge_leaves(part)).for_each(|_| to.take_deposit(self.withdraw()));
        }
    }

    /// The number of leaves above the last level under `part`.
    pub fn huge_leaves(&self, part: PageRange) -> usize {
        if self.level() == Level::PTE {
            return 0;
        }
        let is_leaf = |index: &usize| matches!(P::Isa::decode(self.level(), self.load(*index)), Entry::Leaf(_));
        self.indices(part).filter(is_leaf).count()
    }

    /// The first leaf of this table that an end of `range` cuts.
    pub(crate) fn leaf_cut_by(&self, range: PageRange) -> Option<VirtAddr> {
        let is_cut = |at: &VirtAddr| !at.is_aligned(self.level().span());
        let ends = [range.start(), range.end()].into_iter().filter(is_cut);
        ends.filter(|at| self.range().contains(*at)).find(|at| self.leaf(*at).is_some())
    }

    /// The end of the entries from that for `va` on which point to no table.
    ///
    /// They are in this table and before `end`.
    pub fn end_of_huge(&self, va: VirtAddr, end: VirtAddr) -> VirtAddr {
        let last = self.range().end().min(end);
        let part = PageRange::new(va, last);
        let is_pointer = |at: &VirtAddr| match P::Isa::decode(self.level(), self.pte(*at)) {
            Entry::Table(_) => true,
            Entry::Soft(soft) => soft.kind.is_in_transition(),
            Entry::Empty | Entry::Leaf(_) => false,
        };
        self.entries(part).find(is_pointer).unwrap_or(last)
    }
}
