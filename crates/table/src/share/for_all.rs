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
//! **INV-SHARE-MAKE** A table that is made below a shared pointer, for all sharers, comes empty
//! where nothing was, with the token of their family. No space has it as its origin. A break that
//! runs beside copies no more tables than it has reserved.
//!
//! No translation of any sharer changes, so none is flushed. The first space that gets the table to
//! itself strips its leaves. Each space that reaches the table counts it as it counts the edits for
//! all (`resident.rs`).
//!
//! **INV-SHARE-FILL** An entry that is filled for every sharer of its table lets none of them
//! store. Sharers agree on the mapping.

use super::read::ReadOnly;
use crate::below;
use crate::locked_table::{CountedIn, EditRight, LockedTable, TableRight};
use crate::reserve::TableReserve;
use crate::tables::{FoundEntry, Tables};
use core::cell::Cell;
use pagewright_arch::{Isa, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::TableMarks;
use pagewright_tlb::{Batch, Debt, FamilyDebt, FamilyToken, IntoDetachedPieces, Region, TlbContext};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, Gauge, Level, PageRange, Pfn, VirtAddr};

/// The right to edit a table for every space that reaches its entries.
///
/// INV-SHARE-FILL: if entries are filled for all sharers, these agree on the mapping, and none of
/// them can store through the leaf; the first store breaks the table.
pub struct EditForAll<'f, P: Platform> {
    /// None if no other space shares the table.
    token: Option<&'f FamilyToken<'f, P>>,
    /// Whether a judge was told that entries change for all sharers.
    declared: Cell<bool>,
}

impl<'f, P: Platform> EditForAll<'f, P> {
    /// The right to edit a table at the end of `path`.
    fn new(path: ReadOnly, token: Option<&'f FamilyToken<'f, P>>) -> Self {
        assert!(token.is_some() || !path.shared, "INV-SHARE-OWN: a table is edited for all without a token");
        Self { token: token.filter(|_| plant!(SharedTableTakenForOwn; false, path.shared)), ..Self::own() }
    }

    /// The right to edit a table that no other space shares.
    #[inline]
    fn own() -> Self {
        Self { token: None, declared: Cell::new(false) }
    }

    /// Declares to a judge, once, that entries change for all sharers from now on.
    ///
    /// A batch that absorbs the debt of an edit marks the entry as pending, so that does not end
    /// with the run, but when the table is unlocked.
    fn declare_in_place(&self, fx: &P, table: Pfn) {
        if !self.declared.replace(true) {
            fx.declare(Fact::EditInPlace { table, begins: true });
        }
    }
}

impl<P: Platform> TableRight for EditForAll<'_, P> {
    #[inline]
    fn end_edits<Q: Platform>(&self, fx: &Q, table: Pfn) {
        if self.declared.get() {
            fx.declare(Fact::EditInPlace { table, begins: false });
        }
    }
}

impl<'f, 'h, P: Platform> EditRight<'h, P> for EditForAll<'f, P> {
    type Debt<T: IntoDetachedPieces> = FamilyDebt<'f, 'h, P, T>;

    #[inline]
    fn begin_edits(table: &LockedTable<'h, P, Self>) -> CountedIn {
        if table.right.token.is_none() {
            return CountedIn::Space;
        }
        table.right.declare_in_place(table.fx(), table.table());
        CountedIn::Sharers
    }

    fn owe<T: IntoDetachedPieces>(&self, debt: Debt<'h, P, T>) -> FamilyDebt<'f, 'h, P, T> {
        FamilyDebt::new(self.token, debt)
    }
}

impl<P: Platform> LockedTable<'_, P, EditForAll<'_, P>> {
    /// Whether other spaces share the path to the table.
    pub fn is_shared(&self) -> bool {
        self.right.token.is_some()
    }

    /// Adds to `batch` the flushes that other operations owe of the table's entries.
    ///
    /// For a caller that depends on entries that it found cleared or weakened, in any space.
    pub fn absorb_pending(&self, batch: &mut Batch<'_, P>, context: &Arc<TlbContext>) {
        match self.right.token {
            Some(token) => token.absorb_pending(batch, self.table()),
            None => batch.absorb_pending(context, self.table()),
        }
    }

    /// Hooks a new table into the empty entry for `va` (INV-SHARE-MAKE).
    fn make_table(&self, va: VirtAddr, reserve: &mut TableReserve<'_, P>) {
        let tables = self.tables;
        plant!(TableMadeUndeclared; (), self.right.declare_in_place(self.fx(), self.table()));
        self.flush_before_install(va);
        let child = reserve.take_table(below(self.level()), tables.context().id());
        plant!(TableMadeForOne; tables.tree.add_reached(1), tables.tlb.frames().table(child).mark(TableMarks::MADE_FOR_ALL));
        // INV-TABLE-ZERO: the child's zeroes are visible to walkers before the pointer to it is.
        tables.tlb.fx().publish();
        self.put(va, P::Isa::table(TableEntry { pfn: child, write_protected: true, origin: false }));
        tables.tlb.fx().publish();
        self.page().adjust_live(1);
        tables.tlb.frames().adjust(Gauge::PageTablePages, 1);
        if let Some(family) = tables.family() {
            family.count_noted(Region::of(va));
        }
        tables.tlb.count(Counter::PwTableMadeForAll, 1);
    }
}

impl<'h, P: Platform> FoundEntry<'h, P> {
    /// Locks the own table of the entry, for an edit that may also be one for all sharers.
    #[inline(always)]
    pub fn lock_for_all<'f>(&self) -> Option<LockedTable<'h, P, EditForAll<'f, P>>> {
        self.lock_by(EditForAll::own())
    }

    /// The same, unless the entry has changed since it was found.
    #[inline(always)]
    pub fn lock_for_all_if_unchanged<'f>(&self) -> Option<LockedTable<'h, P, EditForAll<'f, P>>> {
        self.lock_for_all().filter(|locked| self.is_unchanged_in(locked))
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
    ) -> Option<LockedTable<'h, P, EditForAll<'f, P>>> {
        if !self.tree.has_shared() {
            return self.lock_level_for_all(va, Level::PTE);
        }
        if let Some(token) = token {
            token.announce_edit(PageRange::page(va));
        }
        self.lock_walked(va, |path| EditForAll::new(path, token)).ok()
    }

    /// Makes the tables that are missing for `va` below a shared pointer, for all its sharers.
    ///
    /// Stops at an entry that is not empty, where the path is not shared any more, and when
    /// `reserve` is empty.
    pub fn make_tables_for_all(&self, va: VirtAddr, token: &FamilyToken<'_, P>, reserve: &mut TableReserve<'_, P>) {
        token.announce_edit(PageRange::page(va));
        while !reserve.is_empty()
            && let Some(table) = self.lock_last_shared(va, |path| EditForAll::new(path, Some(token)))
            && table.level() > Level::PTE
            && table.is_empty(va)
        {
            table.make_table(va, reserve);
        }
    }

    /// Locks the own table of `level` for `va`, whose entries no other space reaches.
    pub fn lock_level_for_all<'f>(&self, va: VirtAddr, level: Level) -> Option<LockedTable<'h, P, EditForAll<'f, P>>> {
        self.try_own(PageRange::page(va))?.lock_level_by(va, level, EditForAll::own)
    }

    /// The tables with entries of `range`, each locked, and the part under each.
    ///
    /// As [`lock_for_all`](Self::lock_for_all).
    pub fn locked_for_all<'f>(
        &self,
        range: PageRange,
        token: Option<&'f FamilyToken<'f, P>>,
    ) -> impl Iterator<Item = (LockedTable<'h, P, EditForAll<'f, P>>, PageRange)> + use<'f, 'h, P> {
        if let Some(token) = token {
            token.announce_edit(range);
        }
        self.walked(range, move |path| EditForAll::new(path, token))
    }
}
