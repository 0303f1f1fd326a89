//! The tables that one space may edit for itself.
//!
//! [`OwnTables`] says that every path to an entry of a range goes through pointers of this space
//! alone. Only fork makes a path shared again, and holds the space for writing to do so, so the
//! statement is true as long as the space is held.
//!
//! **INV-TABLE-ZERO** The contents of a new table are visible to walkers before the entry that
//! points to it. So is what the leaves of a shared table lose when a space that is not the origin
//! takes it back.
//!
//! Neighbours: [`crate::share`] breaks the tables that other spaces share; [`crate::entry`] edits.

use crate::below;
use crate::entry::Mlocked;
use crate::locked_table::{EditOwn, LockedTable, TableRight};
use crate::reserve::TableReserve;
use crate::tables::{Descent, Tables};
use core::ops::Deref;
use pagewright_arch::{Entry, Isa, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{Platform, rank};
use pagewright_types::{Level, PageRange, VirtAddr};

/// The tables of a range, of which no other space uses any.
pub struct OwnTables<'h, P: Platform> {
    tables: Tables<'h, P>,
    range: PageRange,
}

impl<P: Platform> Clone for OwnTables<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for OwnTables<'_, P> {}

impl<'h, P: Platform> Deref for OwnTables<'h, P> {
    type Target = Tables<'h, P>;

    #[inline]
    fn deref(&self) -> &Tables<'h, P> {
        &self.tables
    }
}

impl<'h, P: Platform> OwnTables<'h, P> {
    /// The caller has seen that no pointer to a table of `range` is shared.
    #[inline]
    pub(crate) fn new(tables: Tables<'h, P>, range: PageRange) -> Self {
        Self { tables, range }
    }

    /// Notes in every table on the way to the entry for `va` that its page may be pinned.
    ///
    /// Before the pin: fork then does not share these tables (INV-SHARE-PIN).
    pub fn mark_pinned(&self, va: VirtAddr) {
        let peek = self.tree.peek(self.tlb, va);
        self.tree.mark_pinned(self.tlb, &peek);
    }

    /// Locks the own last-level table for `va`, or that of the leaf or soft entry above.
    ///
    /// `None` if there is neither.
    ///
    /// # Panics
    /// INV-TABLE-OWN: when `va` is not in the range that was made own, and is shared.
    #[inline]
    pub fn lock(&self, va: VirtAddr) -> Option<LockedTable<'h, P>> {
        self.lock_level(va, Level::PTE)
    }

    /// Locks the own table of `level` for `va`, or that of the leaf or soft entry above.
    ///
    /// `None` if there is neither.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    pub fn lock_level(&self, va: VirtAddr, level: Level) -> Option<LockedTable<'h, P>> {
        self.lock_level_by(va, level, || EditOwn)
    }

    /// As [`lock_level`](Self::lock_level), by a right that includes those of [`EditOwn`].
    pub(crate) fn lock_level_by<R: TableRight>(
        &self,
        va: VirtAddr,
        level: Level,
        right: impl Fn() -> R,
    ) -> Option<LockedTable<'h, P, R>> {
        loop {
            let found = self.descend(va, level);
            let shared = plant!(SharedTableEdited; false, found.shared);
            assert!(!shared, "INV-TABLE-OWN: {va} is edited below a pointer that other spaces share");
            let holds_page = matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_) | Entry::Soft(_));
            if found.level != level && !holds_page {
                return None;
            }
            if let Some(locked) = self.lock_found(&found, va, level, right()) {
                return Some(locked);
            }
        }
    }

    /// Locks the table at which a descent to `level` ended.
    ///
    /// `None` if the entry above that level, at which it ended, was split or cleared before the
    /// lock was acquired.
    #[inline]
    fn lock_found<R: TableRight>(
        &self,
        found: &Descent,
        va: VirtAddr,
        level: Level,
        right: R,
    ) -> Option<LockedTable<'h, P, R>> {
        let locked = LockedTable::lock((self.tables, found.slot.table, found.level), va, right);
        (found.level == level || locked.holds_page(va)).then_some(locked)
    }

    /// As [`Tables::spans`], with the table of each locked.
    ///
    /// Neighbouring leaves and soft entries above the last level that are in one table are one
    /// part. A leaf above the last level that an end of `range` cuts is split first
    /// (`zap_pmd_range`): another thread may have mapped it since the caller looked.
    ///
    /// # Panics
    /// As [`lock`](Self::lock), while it is iterated over.
    pub fn locked(
        &self,
        range: PageRange,
        mlocked: Mlocked,
    ) -> impl Iterator<Item = (LockedTable<'h, P>, PageRange)> + use<'h, P> {
        debug_assert!(self.range.covers(range), "INV-TABLE-OWN: {range} is not in {}", self.range);
        debug_assert!(self.first_shared(range).is_none(), "INV-TABLE-OWN: a table of {range} is shared");
        self.locked_parts(range, Some(mlocked))
    }

    /// The own tables of `range`, which may have shared ones between them.
    ///
    /// Splits the leaves that an end of `range` cuts if it is told whether they are locked memory.
    pub(crate) fn locked_parts(
        &self,
        range: PageRange,
        splits: Option<Mlocked>,
    ) -> impl Iterator<Item = (LockedTable<'h, P>, PageRange)> + use<'h, P> {
        let (own, mut spans) = (*self, self.found_spans(range));
        core::iter::from_fn(move || {
            loop {
                let (span, found) = spans.next_found()?;
                if let Some(locked) = own.lock_found(&found, span.start(), Level::PTE, EditOwn) {
                    if found.level == Level::PTE {
                        return Some((locked, span));
                    }
                    if let Some(mlocked) = splits
                        && plant!(CutHugeLeafTaken; false, locked.level() == Level::PMD)
                        && let Some(va) = locked.leaf_cut_by(PageRange::new(span.start(), spans.end))
                    {
                        own.split_locked(&locked, va, mlocked);
                        spans.at = span.start();
                        continue;
                    }
                    spans.at = locked.end_of_huge(span.start(), spans.end);
                    return Some((locked, PageRange::new(span.start(), spans.at)));
                }
                // The entry was split or cleared before the lock was acquired: descend again.
                spans.at = span.start();
            }
        })
    }

    /// Hooks the missing tables for `va` down to one of `level`, out of `reserve`.
    ///
    /// Returns their number. Stops at a leaf above `level`, and at a soft entry, which a table
    /// would overwrite. Hooks none in a space that has ended.
    ///
    /// # Panics
    /// When the reserve holds fewer tables than [`Tables::missing`] returned.
    pub fn ensure(&self, va: VirtAddr, level: Level, reserve: &mut TableReserve<'_, P>) -> usize {
        let mut hooked = 0;
        loop {
            let found = self.descend(va, level);
            let is_empty = P::Isa::decode(found.level, found.pte) == Entry::Empty;
            if found.level == level || !is_empty || self.tables.tree.is_closed() {
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
        let (tlb, tree) = (self.tables.tlb, self.tables.tree);
        let parent = tlb.frames().table(slot.table);
        let _guard = parent.lock::<rank::TableUpperRank>();
        if P::Isa::decode(at, tlb.fx().load(slot)) != Entry::Empty {
            return false;
        }
        tlb.flush_before_install(self.context(), slot, va, at);
        let child = reserve.take_table(below(at), tree.context().id());
        // INV-TABLE-ZERO: the child's zeroes are visible to walkers before the pointer to it is.
        tlb.fx().publish();
        tlb.fx().store(slot, P::Isa::table(TableEntry::own(child)));
        tlb.fx().publish();
        parent.adjust_live(1);
        tree.adjust_tables(tlb, 1);
        true
    }
}
