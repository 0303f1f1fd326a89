//! Editing an entry for every space that reaches it.
//!
//! What holds for all sharers is done once, in the shared table: a page is swapped out or ages for
//! each of them, a file is truncated for each of them. The debt of the edit is owed by all members
//! of the family ([`FamilyDebt`]).
//!
//! A table that is missing below a shared pointer is made in the same way, for a page that is only
//! read:
//!
//! ```text
//!   walk to the table X with the empty entry; try its lock; compare the path
//!   flush what was cleared at the entry and is not flushed yet
//!   X[i] := Y       empty, write-protected, without an origin; marked as made for all
//! ```
//!
//! INV-SHARE-MAKE: the pointer to it replaces an empty entry and leads to an empty table, so no
//! translation of any sharer changes and none is flushed. No space has had the table to itself, so
//! the first that gets it so strips its leaves. Each space that reaches the table counts it as it
//! counts the edits for all (`resident.rs`).

use super::walk::Walked;
use crate::below;
use crate::entry::{CountedIn, EntryRun, Mlocked};
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::LockedTable;
use crate::owned_leaf::OwnedLeaf;
use crate::reserve::TableReserve;
use crate::tables::Tables;
use core::cell::Cell;
use pagewright_arch::{Isa, PteSlot, SoftEntry, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::TableMarks;
use pagewright_tlb::{Batch, Debt, FamilyDebt, FamilyToken, IntoDetachedPieces, Region, TlbContext};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, Gauge, Level, PageRange, Rights, VirtAddr};

/// A locked table whose entries change for every space that reaches them.
#[must_use]
pub struct ForAllTable<'f, 'h, P: Platform> {
    table: LockedTable<'h, P>,
    shared: bool,
    token: Option<&'f FamilyToken<'f, P>>,
    /// Whether a judge was told that entries change for all sharers.
    declared: Cell<bool>,
}

impl<'f, 'h, P: Platform> ForAllTable<'f, 'h, P> {
    fn new(table: LockedTable<'h, P>, shared: bool, token: Option<&'f FamilyToken<'f, P>>) -> Self {
        let (shared, token) = plant!(SharedTableTakenForOwn; (false, None), (shared, token));
        Self { table, shared, token, declared: Cell::new(false) }
    }

    /// The entry for `va`, as it says; the path may allow less.
    pub fn entry(&self, va: VirtAddr) -> EntryView {
        self.table.entry(va)
    }

    /// The leaf for `va`, as its entry says; the path may allow less.
    pub fn leaf(&self, va: VirtAddr) -> Option<LeafView> {
        self.table.leaf(va)
    }

    /// The place of the entry for `va`, which is the same for every space that reaches it.
    pub fn slot(&self, va: VirtAddr) -> PteSlot {
        self.table.slot(self.table.index(va))
    }

    /// The first address of `part` under each entry, in order.
    pub fn entries(&self, part: PageRange) -> impl Iterator<Item = VirtAddr> + use<P> {
        self.table.entries(part)
    }

    /// The first address of `part` with a migration entry.
    pub fn first_migrating(&self, part: PageRange) -> Option<VirtAddr> {
        self.table.first_migrating(part)
    }

    /// Edits entries by a run, whose debt every sharer owes.
    pub fn edit<'s, T: IntoDetachedPieces>(
        &'s self,
        mlocked: Mlocked,
        edit: impl FnOnce(&mut EntryRun<'s, 'h, P>) -> Option<Debt<'h, P, T>>,
    ) -> Option<FamilyDebt<'f, 'h, P, T>> {
        edit(&mut self.run(mlocked)).map(|debt| FamilyDebt::new(self.token.filter(|_| self.shared), debt))
    }

    /// Begins to fill empty entries for every space that reaches them.
    pub fn fill(&self) -> FillRun<'_, 'h, P> {
        FillRun { run: self.run(Mlocked(false)), shared: self.shared }
    }

    /// Adds to `batch` the flushes that other operations owe of the table's entries.
    ///
    /// For a caller that depends on entries that it found cleared or weakened, in any space.
    pub fn absorb_pending(&self, batch: &mut Batch<'_, P>, context: &Arc<TlbContext>) {
        let table = self.table.table();
        match self.token.filter(|_| self.shared) {
            Some(token) => token.absorb_pending(batch, table),
            None => batch.absorb_pending(context, table),
        }
    }

    /// Hooks a new table into the empty entry for `va` (INV-SHARE-MAKE).
    fn make_table(&self, va: VirtAddr, reserve: &mut TableReserve<'_, P>) {
        let (parent, tables) = (&self.table, self.table.tables);
        plant!(TableMadeUndeclared; (), self.declare_in_place());
        parent.flush_before_install(va);
        let child = reserve.take_table(below(parent.level()), tables.context().id());
        plant!(TableMadeForOne; tables.tree.add_reached(1), tables.tlb.frames().table(child).mark(TableMarks::MADE_FOR_ALL));
        // INV-TABLE-ZERO: the child's zeroes are visible to walkers before the pointer to it is.
        tables.tlb.fx().publish();
        parent.put(va, P::Isa::table(TableEntry { pfn: child, write_protected: true, origin: false }));
        tables.tlb.fx().publish();
        parent.page().adjust_live(1);
        tables.tlb.frames().adjust(Gauge::PageTablePages, 1);
        if let Some(family) = tables.family() {
            family.count_noted(Region::of(va));
        }
        tables.tlb.count(Counter::PwTableMadeForAll, 1);
    }

    /// Clears a soft entry, which no TLB has.
    pub fn clear_soft(&self, va: VirtAddr) {
        self.run(Mlocked(false)).unmap_soft(va);
    }

    fn run(&self, mlocked: Mlocked) -> EntryRun<'_, 'h, P> {
        let counted = if self.shared { CountedIn::Sharers } else { CountedIn::Space };
        if self.shared {
            self.declare_in_place();
        }
        EntryRun::new(&self.table, mlocked, counted)
    }

    /// Declares to a judge, once, that entries change for all sharers from now on.
    ///
    /// A batch that absorbs the debt of an edit marks the entry as pending, so that does not end
    /// with the run, but when the table is unlocked.
    fn declare_in_place(&self) {
        if !self.declared.replace(true) {
            self.tell_judge(true);
        }
    }

    fn tell_judge(&self, begins: bool) {
        self.table.tables.tlb.fx().declare(Fact::EditInPlace { table: self.table.table(), begins });
    }
}

impl<P: Platform> Drop for ForAllTable<'_, '_, P> {
    fn drop(&mut self) {
        if self.declared.get() {
            self.tell_judge(false);
        }
    }
}

/// Edits that only fill entries which are not present, so that they owe nothing.
///
/// The table is one's own, or every sharer gets what is filled in. INV-SHARE-FILL: sharers agree
/// on the mapping, and none of them can store through the leaf; the first store breaks the table.
pub struct FillRun<'t, 'h, P: Platform> {
    run: EntryRun<'t, 'h, P>,
    shared: bool,
}

impl<'t, 'h, P: Platform> FillRun<'t, 'h, P> {
    /// Begins to fill entries of an own table.
    pub fn own(table: &'t LockedTable<'h, P>, mlocked: Mlocked) -> Self {
        Self { run: table.run(mlocked), shared: false }
    }

    /// Whether the entry for `va` is empty.
    pub fn is_empty(&self, va: VirtAddr) -> bool {
        self.run.table().is_empty(va)
    }

    /// Maps a page at an empty entry, as [`EntryRun::map`] does.
    ///
    /// The flush of what was cleared there is paid first, by every space that owes it
    /// (INV-TLB-CLEARED): the key of a shared table stands for all of them.
    ///
    /// # Panics
    /// In debug builds when the entry is not empty, or the table is shared and the leaf writable.
    pub fn map(&mut self, va: VirtAddr, leaf: OwnedLeaf) {
        let writable = leaf.leaf().rights.contains(Rights::WRITE);
        debug_assert!(!(self.shared && writable), "INV-SHARE-FILL: a writable leaf for all sharers at {va}");
        self.run.map(va, leaf);
    }

    /// Clears a soft entry, as [`EntryRun::unmap_soft`] does.
    pub fn unmap_soft(&mut self, va: VirtAddr) -> Option<SoftEntry> {
        self.run.unmap_soft(va)
    }
}

impl<'h, P: Platform> Tables<'h, P> {
    /// The permission to edit the tables that the space shares; `None` if it never shared any.
    pub fn family_token(&self) -> Option<FamilyToken<'h, P>> {
        self.family().map(|family| family.token())
    }

    /// Locks the table of the last entry for `va`, for edits that hold for every space it serves.
    ///
    /// `None` if there is neither a table of the last level nor a leaf above.
    pub fn lock_for_all<'f>(
        &self,
        va: VirtAddr,
        token: Option<&'f FamilyToken<'f, P>>,
    ) -> Option<ForAllTable<'f, 'h, P>> {
        if !self.tree.has_shared() {
            return self.lock_own(va).map(|table| ForAllTable::new(table, false, None));
        }
        if let Some(token) = token {
            token.announce_edit(PageRange::page(va));
        }
        match self.lock_walked(va) {
            Walked::Table(walked) => {
                assert!(token.is_some() || !walked.shared, "INV-SHARE-OWN: {va} is edited for all without a token");
                Some(ForAllTable::new(walked.table, walked.shared, token))
            }
            Walked::Nothing(_) => None,
        }
    }

    /// Makes the tables that are missing for `va` below a shared pointer, for all its sharers.
    ///
    /// Stops at an entry that is not empty, where the path is not shared any more, and when
    /// `reserve` is empty.
    pub fn make_tables_for_all(&self, va: VirtAddr, token: &FamilyToken<'_, P>, reserve: &mut TableReserve<'_, P>) {
        token.announce_edit(PageRange::page(va));
        while !reserve.is_empty()
            && let Some(table) = self.lock_last_shared(va)
            && table.level() > Level::PTE
            && table.is_empty(va)
        {
            ForAllTable::new(table, true, Some(token)).make_table(va, reserve);
        }
    }

    /// Locks the own table of `level` for `va`, whose entries no other space reaches.
    pub fn lock_level_for_all<'f>(&self, va: VirtAddr, level: Level) -> Option<ForAllTable<'f, 'h, P>> {
        let table = self.try_own(PageRange::page(va))?.lock_level(va, level)?;
        Some(ForAllTable::new(table, false, None))
    }

    /// The tables with entries of `range`, each locked, and the part under each.
    ///
    /// As [`lock_for_all`](Self::lock_for_all).
    pub fn locked_for_all<'f>(
        &self,
        range: PageRange,
        token: Option<&'f FamilyToken<'f, P>>,
    ) -> impl Iterator<Item = (ForAllTable<'f, 'h, P>, PageRange)> + use<'f, 'h, P> {
        if let Some(token) = token {
            token.announce_edit(range);
        }
        self.walked(range).map(move |(walked, part)| {
            assert!(token.is_some() || !walked.shared, "INV-SHARE-OWN: {part} is edited for all without a token");
            (ForAllTable::new(walked.table, walked.shared, token), part)
        })
    }

    /// Locks the table of the last entry for `va` in a space that shares none.
    fn lock_own(&self, va: VirtAddr) -> Option<LockedTable<'h, P>> {
        self.try_own(PageRange::page(va))?.lock(va)
    }
}
