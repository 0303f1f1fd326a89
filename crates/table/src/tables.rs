//! The tables of a space that is held: descending, and adding tables.
//!
//! ```text
//!            root (PGD) ── PUD ── PMD ── PTE ── leaf
//!   find     without a lock: the hold keeps every own table hooked (INV-TABLE-STABLE)
//!   lock     the table that holds the entry, then read it again: a leaf above may have been split
//!   edit     under that lock, and only under it (INV-TABLE-LOCKED)
//! ```
//!
//! [`Tables::find`] says what the path to an entry is: through entries of this space alone
//! ([`FoundTable::Own`]), or through one that other spaces share ([`FoundTable::Shared`]). An entry
//! of the second kind cannot be edited for one space. INV-TABLE-OWN: the path is part of the type,
//! so an edit for one space has an own path.
//!
//! A pointer is shared while it is write-protected; no call shares one yet. Editing a shared table
//! without the token of its family does not compile:
//!
//! ```compile_fail,E0061
//! # fn edit<P: pagewright_sync::Platform>(table: pagewright_table::SharedTable<'_, P>) {
//! let locked = table.lock(); // an argument is missing
//! # }
//! ```
//!
//! Nor does making a token, or a view of a leaf that ignores the path:
//!
//! ```compile_fail,E0451
//! let token = pagewright_table::FamilyToken { family: core::marker::PhantomData };
//! ```
//!
//! ```compile_fail,E0616
//! # fn raw(leaf: pagewright_table::LeafView) -> pagewright_arch::Leaf {
//! leaf.leaf
//! # }
//! ```
//!
//! Not guaranteed: that an entry that was read without its table's lock is unchanged.

use crate::below;
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::LockedTable;
use crate::page_table::PageTable;
use crate::reserve::TableReserve;
use core::marker::PhantomData;
use core::ops::Deref;
use pagewright_arch::{Entry, Isa, Pte, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform, rank};
use pagewright_tlb::{Tlb, TlbContext};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// The tables of a space that is held for reading or writing.
///
/// It borrows from the guard ([`MmapRead`](crate::MmapRead), [`MmapWrite`](crate::MmapWrite)), so
/// it cannot outlive the hold.
pub struct Tables<'h, P: Platform> {
    pub(crate) tree: &'h PageTable,
    pub(crate) tlb: &'h Tlb<P>,
}

impl<P: Platform> Clone for Tables<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Tables<'_, P> {}

/// The tables of a space that is held for writing.
pub struct ExclusiveTables<'h, P: Platform>(Tables<'h, P>);

impl<P: Platform> Clone for ExclusiveTables<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for ExclusiveTables<'_, P> {}

impl<'h, P: Platform> ExclusiveTables<'h, P> {
    #[inline]
    pub(crate) fn new(tables: Tables<'h, P>) -> Self {
        Self(tables)
    }
}

impl<'h, P: Platform> Deref for ExclusiveTables<'h, P> {
    type Target = Tables<'h, P>;

    #[inline]
    fn deref(&self) -> &Tables<'h, P> {
        &self.0
    }
}

/// Where a descent to a table ended.
pub enum FoundTable<'h, P: Platform> {
    /// The table, reached through entries of this space alone.
    Own(OwnTable<'h, P>),
    /// The table, reached through an entry that other spaces share.
    Shared(SharedTable<'h, P>),
    /// A leaf above the level asked for.
    Leaf(LeafView),
    /// No table: that of this level is the last on the way.
    Missing(Level),
    /// An operation is replacing an entry on the way; descend again later.
    InTransition,
}

/// A table that only this space uses, not locked.
pub struct OwnTable<'h, P: Platform> {
    tables: Tables<'h, P>,
    table: Pfn,
    va: VirtAddr,
    seen: SeenEntry,
}

/// A table that other spaces use, too, not locked.
///
/// What it maps can be read. An edit means all of them, and needs their token.
pub struct SharedTable<'h, P: Platform>(OwnTable<'h, P>);

/// The permission to edit a shared table for every space that shares it.
///
/// Only the family of those spaces gives it. There are no families yet, and so no tokens.
pub struct FamilyToken<'f> {
    family: PhantomData<&'f ()>,
}

/// An entry as it was read without its table's lock, to be compared under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    pte: Pte,
    level: Level,
}

impl SeenEntry {
    /// The entry of a table that does not exist.
    pub const EMPTY: Self = Self { pte: Pte::EMPTY, level: Level::PTE };

    /// What the entry says, for the own path by which it was read.
    #[inline]
    pub fn view<I: Isa>(self) -> EntryView {
        EntryView::decode::<I>(self.level, self.pte, false)
    }

    #[inline]
    pub(crate) fn pte(self) -> Pte {
        self.pte
    }
}

impl<'h, P: Platform> OwnTable<'h, P> {
    /// The level of the table.
    #[inline]
    pub fn level(&self) -> Level {
        self.seen.level
    }

    /// The entry for the address of the descent, as the descent read it.
    #[inline]
    pub fn seen(&self) -> SeenEntry {
        self.seen
    }

    /// Locks the table; the entry may have changed since the descent.
    #[inline]
    pub fn lock(&self) -> LockedTable<'h, P> {
        LockedTable::new(self.tables, self.table, self.seen.level, self.va)
    }
}

impl<'h, P: Platform> SharedTable<'h, P> {
    /// The level of the table.
    pub fn level(&self) -> Level {
        self.0.level()
    }

    /// The entry for the address of the descent, as the descent read it.
    pub fn entry(&self) -> EntryView {
        EntryView::decode::<P::Isa>(self.0.seen.level, self.0.seen.pte, true)
    }

    /// Locks the table for edits that hold for every space that shares it.
    pub fn lock(&self, token: &FamilyToken<'_>) -> LockedTable<'h, P> {
        let FamilyToken { family: PhantomData } = token;
        self.0.lock()
    }
}

/// Where a descent stopped: the entry, and the path to it.
pub(crate) struct Descent {
    pub(crate) slot: PteSlot,
    pub(crate) level: Level,
    pub(crate) pte: Pte,
    pub(crate) shared: bool,
}

impl<'h, P: Platform> Tables<'h, P> {
    #[inline]
    pub(crate) fn new(tree: &'h PageTable, tlb: &'h Tlb<P>) -> Self {
        Self { tree, tlb }
    }

    /// The engine of the machine.
    #[inline]
    pub fn tlb(&self) -> &'h Tlb<P> {
        self.tlb
    }

    /// The space as the TLBs see it.
    #[inline]
    pub fn context(&self) -> &'h Arc<TlbContext> {
        self.tree.context()
    }

    /// Descends to the entry of `level` for `va`, or to the last on the way that is no pointer.
    #[inline]
    pub(crate) fn descend(&self, va: VirtAddr, level: Level) -> Descent {
        let (mut table, mut at, mut shared) = (self.tree.root(), Level::PGD, false);
        if self.tree.is_closed() {
            let slot = PteSlot { table, index: at.index_of(va) as u16 };
            return Descent { slot, level: at, pte: Pte::EMPTY, shared };
        }
        loop {
            let slot = PteSlot { table, index: at.index_of(va) as u16 };
            let pte = self.tlb.fx().load(slot);
            if at > level
                && let Entry::Table(next) = P::Isa::decode(at, pte)
            {
                shared |= next.write_protected;
                table = next.pfn;
                at = below(at);
                continue;
            }
            return Descent { slot, level: at, pte, shared };
        }
    }

    /// Descends to the table of `level` for `va`, without locks.
    #[inline]
    pub fn find(&self, va: VirtAddr, level: Level) -> FoundTable<'h, P> {
        let Descent { slot, level: at, pte, shared } = self.descend(va, level);
        if at == level {
            let table = OwnTable { tables: *self, table: slot.table, va, seen: SeenEntry { pte, level } };
            return if shared { FoundTable::Shared(SharedTable(table)) } else { FoundTable::Own(table) };
        }
        match EntryView::decode::<P::Isa>(at, pte, shared) {
            EntryView::Leaf(leaf) => FoundTable::Leaf(leaf),
            EntryView::Soft(_) => FoundTable::InTransition,
            EntryView::Empty | EntryView::Table => FoundTable::Missing(at),
        }
    }

    /// Reads the entry for `va` without a lock, whatever the path and the level.
    #[inline]
    pub fn peek(&self, va: VirtAddr) -> EntryView {
        let Descent { level, pte, shared, .. } = self.descend(va, Level::PTE);
        EntryView::decode::<P::Isa>(level, pte, shared)
    }

    /// Locks the own last-level table for `va`, or the own table of the leaf above.
    ///
    /// `None` if there is neither.
    ///
    /// # Panics
    /// INV-TABLE-OWN: when other spaces share the path. The caller breaks it first.
    #[inline]
    pub fn lock(&self, va: VirtAddr) -> Option<LockedTable<'h, P>> {
        self.lock_level(va, Level::PTE)
    }

    /// Locks the own table of `level` for `va`, or that of the leaf above.
    ///
    /// `None` if there is neither.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    pub fn lock_level(&self, va: VirtAddr, level: Level) -> Option<LockedTable<'h, P>> {
        loop {
            let found = self.descend(va, level);
            let is_leaf = matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_));
            if found.level != level && !is_leaf {
                return None;
            }
            if let Some(locked) = self.lock_found(&found, va, level) {
                return Some(locked);
            }
        }
    }

    /// Locks the table at which a descent to `level` ended.
    ///
    /// `None` if the leaf above that level, at which it ended, was split before the lock was
    /// acquired.
    #[inline]
    fn lock_found(&self, found: &Descent, va: VirtAddr, level: Level) -> Option<LockedTable<'h, P>> {
        let shared = plant!(SharedTableEdited; false, found.shared);
        assert!(!shared, "INV-TABLE-OWN: {va} is edited below an entry that other spaces share");
        let locked = LockedTable::new(*self, found.slot.table, found.level, va);
        (found.level == level || matches!(locked.entry(va), EntryView::Leaf(_))).then_some(locked)
    }

    /// Whether a leaf above the last level was ever mapped in the space.
    ///
    /// The caller holds the space for writing, or finds those that were mapped before it held it.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.tree.has_blocks()
    }

    /// The parts of `range` that have entries, in order, without locks.
    ///
    /// There is one for each last-level table and each leaf above that level.
    pub fn spans(&self, range: PageRange) -> TableSpans<'h, P> {
        TableSpans { tables: *self, at: range.start(), end: range.end() }
    }

    /// As [`spans`](Self::spans), with the table of each locked.
    ///
    /// # Panics
    /// As [`lock`](Self::lock), while it is iterated over.
    pub fn locked(&self, range: PageRange) -> impl Iterator<Item = (LockedTable<'h, P>, PageRange)> + use<'h, P> {
        let mut spans = self.spans(range);
        core::iter::from_fn(move || {
            loop {
                let (span, found) = spans.next_found()?;
                if let Some(locked) = spans.tables.lock_found(&found, span.start(), Level::PTE) {
                    return Some((locked, span));
                }
                // The leaf was split before the lock was acquired: descend again.
                spans.at = span.start();
            }
        })
    }

    /// The number of tables that [`ensure`](Self::ensure) would take from its reserve.
    ///
    /// Other CPUs may add tables concurrently, but remove none.
    pub fn missing(&self, va: VirtAddr, level: Level) -> usize {
        match self.find(va, level) {
            FoundTable::Missing(at) => usize::from(at.raw() - level.raw()),
            FoundTable::Own(_) | FoundTable::Shared(_) | FoundTable::Leaf(_) | FoundTable::InTransition => 0,
        }
    }

    /// Hooks the missing tables for `va` down to one of `level`, out of `reserve`.
    ///
    /// Returns their number. Stops at a leaf above `level`, and at a soft entry, which a table
    /// would overwrite. Hooks none in a space that has ended.
    ///
    /// # Panics
    /// When the reserve holds fewer tables than [`missing`](Self::missing) returned.
    pub fn ensure(&self, va: VirtAddr, level: Level, reserve: &mut TableReserve<'_, P>) -> usize {
        let mut hooked = 0;
        loop {
            let found = self.descend(va, level);
            let is_empty = P::Isa::decode(found.level, found.pte) == Entry::Empty;
            if found.level == level || !is_empty || self.tree.is_closed() {
                return hooked;
            }
            hooked += usize::from(self.hook((found.slot, va), found.level, reserve));
        }
    }

    /// Hooks a new table into an empty slot, unless another CPU did so first.
    ///
    /// If a leaf was cleared there and may not be flushed yet, this flushes it first
    /// (INV-TLB-CLEARED).
    fn hook(&self, (slot, va): (PteSlot, VirtAddr), at: Level, reserve: &mut TableReserve<'_, P>) -> bool {
        let (tlb, tree) = (self.tlb, self.tree);
        let parent = tlb.frames().table(slot.table);
        let _guard = parent.lock::<rank::TableUpperRank>();
        if P::Isa::decode(at, tlb.fx().load(slot)) != Entry::Empty {
            return false;
        }
        tlb.flush_before_install(self.context(), slot, va, at);
        let child = reserve.take_table(below(at), tree.context().id());
        // INV-TABLE-ZERO: the child's zeroes are visible to walkers before the pointer to it is.
        tlb.fx().publish();
        tlb.fx().store(slot, P::Isa::table(TableEntry { pfn: child, write_protected: false }));
        tlb.fx().publish();
        parent.adjust_live(1);
        tree.add_tables(tlb, 1);
        true
    }
}

/// The iterator of [`Tables::spans`].
pub struct TableSpans<'h, P: Platform> {
    tables: Tables<'h, P>,
    at: VirtAddr,
    end: VirtAddr,
}

impl<P: Platform> TableSpans<'_, P> {
    /// The next part, and the descent that found it.
    #[inline]
    fn next_found(&mut self) -> Option<(PageRange, Descent)> {
        while self.at < self.end {
            let found = self.tables.descend(self.at, Level::PTE);
            let at_bottom = found.level == Level::PTE;
            let span = if at_bottom { Level::PTE.table_span() } else { found.level.span() };
            let start = self.at;
            self.at = start.align_down(span).checked_add(span).map_or(self.end, |next| next.min(self.end));
            if at_bottom || matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_)) {
                return Some((PageRange::new(start, self.at), found));
            }
        }
        None
    }
}

impl<P: Platform> Iterator for TableSpans<'_, P> {
    type Item = PageRange;

    fn next(&mut self) -> Option<PageRange> {
        self.next_found().map(|(span, _)| span)
    }
}
