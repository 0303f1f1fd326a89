//! Page-table pages: the record of a frame that holds 512 entries (Linux's `struct ptdesc`).
//!
//! Key types: [`TablePage`], a view; [`TableMarks`], sticky facts about what went through it.
//!
//! Neighbours: `table` and `mm` keep the entries; this module keeps what must be found by frame
//! number alone: level, lock, share count, marks, origin, and how many entries are live.
//!
//! Protocol: the lock of a last-level table has rank `Table`, of any other `TableUpper`. Entries,
//! and with them the live count, change under the lock. Shares and marks change without it: a share
//! by whoever has one, a mark at any time and only to set.
//!
//! Invariants:
//! - INV-FRAME-TABLE: a table is retired only with its lock free, no live entry and no sharer but
//!   the one who retires it.
//!
//! Not guaranteed: that no CPU walks the table. Retiring it leaves a debt, which is `tlb`'s.

use crate::block::Block;
use crate::frames::Frames;
use crate::record::{FrameKind, FrameRecord, FrameState};
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, fence};
use pagewright_sync::rank::{Rank, Table, TableUpper};
use pagewright_sync::{Backend, Platform, WordGuard, WordLock};
use pagewright_types::{Level, Order, Pfn, SpaceId};

bitflags::bitflags! {
    /// Sticky facts about a table.
    ///
    /// Set before what they announce, cleared only when the table is retired or owned by one space
    /// again.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct TableMarks: u32 {
        /// A page under this table may be pinned.
        const MAY_PIN = 1;
        /// A reference was grabbed through this table while it was shared, so its origin may not
        /// take it back untouched.
        const GUP_WENT_THROUGH = 1 << 1;
    }
}

const _: () = assert!(TableMarks::all().bits() & WordLock::BIT == 0, "a mark on the lock's bit");

/// A view of a page-table page's record.
pub struct TablePage<'a, L> {
    record: &'a FrameRecord,
    pfn: Pfn,
    locks: PhantomData<fn() -> L>,
}

impl<P: Platform> Frames<P> {
    /// Makes a table of a block, for `space`: one share, no marks, no live entries.
    ///
    /// Its contents are the caller's to clear.
    ///
    /// # Panics
    /// In debug builds when the block has more than one frame.
    pub fn new_table(&self, block: Block, level: Level, space: SpaceId) -> Pfn {
        debug_assert_eq!(block.order(), Order::ZERO, "INV-FRAME-STATE: a table is one frame");
        let pfn = block.into_raw();
        let record = self.memmap.at(pfn);
        let kind = record.kind();
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is {kind:?}");
        record.flags.store(TableMarks::empty().bits(), Ordering::Relaxed);
        record.mapcount.store(0, Ordering::Relaxed);
        record.entire_or_shares.store(1, Ordering::Relaxed);
        record.owner_or_space.store(space.raw(), Ordering::Relaxed);
        record.set_kind(FrameKind::table(level, kind.zone()));
        pfn
    }

    /// The table at `pfn`.
    ///
    /// # Panics
    /// In debug builds when the frame is no table.
    #[inline]
    pub fn table(&self, pfn: Pfn) -> TablePage<'_, P::Locks> {
        let record = self.memmap.at(pfn);
        debug_assert_eq!(
            record.kind().state(),
            FrameState::Table,
            "INV-FRAME-STATE: frame {pfn} is {:?}",
            record.kind()
        );
        TablePage { record, pfn, locks: PhantomData }
    }

    /// Makes a table that nothing points to any more a block again.
    ///
    /// # Panics
    /// In debug builds when it is locked, shared or has live entries.
    pub fn retire(&self, pfn: Pfn) -> Block {
        let table = self.table(pfn);
        // Pairs with the Release of the last sharer who left.
        fence(Ordering::Acquire);
        debug_assert_eq!(table.live(), 0, "INV-FRAME-TABLE: {table:?} is retired");
        debug_assert!(table.shares() <= 1, "INV-FRAME-TABLE: {table:?} is retired");
        debug_assert!(!table.is_locked(), "INV-FRAME-TABLE: {table:?} is retired");
        table.record.mapcount.store(0, Ordering::Relaxed);
        let zone = table.record.kind().zone();
        table.record.set_kind(FrameKind::block(FrameState::Allocated, Order::ZERO, zone));
        Block::new(pfn, Order::ZERO)
    }
}

impl<'a, L: Backend> TablePage<'a, L> {
    /// The table's frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The table's level.
    #[inline]
    pub fn level(&self) -> Level {
        self.record.kind().level()
    }

    /// The space for which the table was made, or which owned it alone when sharing began.
    pub fn origin(&self) -> SpaceId {
        SpaceId::new(self.record.owner_or_space.load(Ordering::Relaxed))
    }

    /// Says which space owns the table alone.
    ///
    /// The caller holds the lock.
    pub fn set_origin(&self, space: SpaceId) {
        self.record.owner_or_space.store(space.raw(), Ordering::Relaxed);
    }

    /// Takes the table's lock.
    ///
    /// `R` is [`Table`] for a last-level table and [`TableUpper`] above.
    ///
    /// # Panics
    /// In debug builds when the lock order is broken or `R` is not the table's rank.
    #[inline]
    pub fn lock<R: Rank>(&self) -> WordGuard<'a, R, L> {
        let rank = if self.level() == Level::PTE { Table::PLACE } else { TableUpper::PLACE };
        debug_assert_eq!(R::PLACE, rank, "INV-LOCK-ORDER: {} locked as {}", self.pfn, R::NAME);
        WordLock::lock::<R, L>(&self.record.flags)
    }

    /// Whether somebody holds the lock.
    pub fn is_locked(&self) -> bool {
        self.record.flags.load(Ordering::Acquire) & WordLock::BIT != 0
    }

    /// Entries that are not empty.
    #[inline]
    pub fn live(&self) -> u32 {
        self.record.mapcount.load(Ordering::Relaxed)
    }

    /// Counts entries that became live.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn add_live(&self, entries: u32) {
        // A load and a store: the lock keeps others away, and an atomic addition would cost as much
        // as the entry's store.
        let before = self.record.mapcount.load(Ordering::Relaxed);
        debug_assert!(before + entries <= Level::ENTRIES as u32, "INV-FRAME-TABLE: {entries} more entries in {self:?}");
        self.record.mapcount.store(before + entries, Ordering::Relaxed);
    }

    /// Counts entries that became empty, and returns how many are live.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn sub_live(&self, entries: u32) -> u32 {
        let before = self.record.mapcount.load(Ordering::Relaxed);
        debug_assert!(before >= entries, "INV-FRAME-TABLE: {entries} of {before} live entries became empty");
        self.record.mapcount.store(before - entries, Ordering::Relaxed);
        before - entries
    }

    /// Entries of upper-level tables that point to this table.
    #[inline]
    pub fn shares(&self) -> u32 {
        self.record.entire_or_shares.load(Ordering::Acquire)
    }

    /// Adds a sharer, and returns how many there are.
    pub fn share(&self) -> u32 {
        let before = self.record.entire_or_shares.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-TABLE: {self:?} is shared by nobody");
        before + 1
    }

    /// Takes a sharer away, and returns how many are left.
    ///
    /// The caller has flushed every CPU that walked the table on his behalf.
    pub fn unshare(&self) -> u32 {
        let before = self.record.entire_or_shares.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "INV-FRAME-TABLE: {self:?} is left by nobody");
        before - 1
    }

    /// The marks.
    pub fn marks(&self) -> TableMarks {
        TableMarks::from_bits_truncate(self.record.flags.load(Ordering::Acquire))
    }

    /// Sets marks, before what they announce happens.
    pub fn mark(&self, marks: TableMarks) {
        self.record.flags.fetch_or(marks.bits(), Ordering::AcqRel);
    }

    /// Clears marks.
    ///
    /// The caller holds the lock of a table that one space owns alone, and knows what they
    /// announced to be over.
    pub fn unmark(&self, marks: TableMarks) {
        self.record.flags.fetch_and(!marks.bits(), Ordering::AcqRel);
    }
}

impl<L: Backend> fmt::Debug for TablePage<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TablePage")
            .field("pfn", &self.pfn)
            .field("kind", &self.record.kind())
            .field("live", &self.live())
            .field("shares", &self.shares())
            .field("locked", &self.is_locked())
            .finish_non_exhaustive()
    }
}
