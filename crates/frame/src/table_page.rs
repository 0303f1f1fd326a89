//! Page-table pages: the record of a frame that holds 512 entries (Linux's `struct ptdesc`).
//!
//! Key types: [`TablePage`], a view; [`TableMarks`], sticky facts about the table.
//!
//! Neighbours: `table` and `mm` manage the entries. This module has what must be found by frame
//! number alone: level, lock, share count, marks, origin, and the number of live entries.
//!
//! Protocol: the lock of a last-level table has the rank `TableRank`, that of any other table
//! `TableUpperRank`. Entries change under the lock, and so does the live count. The share count and
//! the marks change without it: a sharer may add a sharer, and any caller may set a mark at any
//! time.
//!
//! Invariants:
//! - **INV-FRAME-TABLE** A table is retired only with its lock free, no live entry and no other
//!   sharer.
//!
//! Not guaranteed: that no CPU walks the table. Retiring the table leaves a debt, which `tlb`
//! settles.

use crate::block::Block;
use crate::frames::Frames;
use crate::record::{FrameKind, FrameRecord, FrameState};
use crate::rss::{EntryCounts, SWAP_ENTRIES};
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::PendingSequence;
use pagewright_plant::plant;
use pagewright_sync::rank::{Rank, TableRank, TableUpperRank};
use pagewright_sync::{Backend, FullBarrier, Platform, WordGuard, WordLock};
use pagewright_types::{DebtKey, Level, Order, Pfn, SpaceId};

bitflags::bitflags! {
    /// Sticky facts about a table.
    ///
    /// A mark is set before the fact becomes true. It is cleared only when the table is retired or
    /// has one owner again. The marks are above the share count in its word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct TableMarks: u32 {
        /// An entry above the last level, in this table or below it, may be a leaf or soft.
        ///
        /// Such a table is not shared (INV-HUGE-OWN).
        const HOLDS_HUGE = 1 << 28;
        /// The table was made for every space that reaches its place.
        ///
        /// None of them has counted it among its own tables.
        const MADE_FOR_ALL = 1 << 29;
        /// A page that this table maps may be pinned.
        const MAY_PIN = 1 << 30;
        /// A reference was taken through this table while it was shared.
        ///
        /// The origin may then not continue to use the table unchanged.
        const GUP_WENT_THROUGH = 1 << 31;
    }
}

/// The share count of a table, in the word that also has its marks.
const SHARES: u32 = !TableMarks::all().bits();

/// The live entries, in the word that also counts those in swap, which begin at the shift.
const LIVE: u32 = (1 << SWAPPED_SHIFT) - 1;
const SWAPPED_SHIFT: u32 = 16;

/// The bits of each number of entries by what they map; 512 is the largest.
const KIND_BITS: usize = 10;
const KIND: u32 = (1 << KIND_BITS) - 1;

/// The sequence number of pending entries, in the word that also counts migration entries.
const SEQUENCE: u32 = (1 << MIGRATING_SHIFT) - 1;
const MIGRATING_SHIFT: u32 = 16;

/// Says since when entries of a table owe a flush; opaque to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TableKey(u64);

impl TableKey {
    /// No entry of the table owes a flush.
    pub const NONE: Self = Self(0);

    /// The key with these bits.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The bits.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }
}

/// A view of the record of a page-table page.
pub struct TablePage<'a, L> {
    record: &'a FrameRecord,
    pfn: Pfn,
    locks: PhantomData<fn() -> L>,
}

impl<P: Platform> Frames<P> {
    /// Makes a table of a block, for `space`, with one share, no marks and no live entries.
    ///
    /// The caller clears the contents.
    ///
    /// # Panics
    /// In debug builds when the block has more than one frame.
    pub fn new_table(&self, block: Block, level: Level, space: SpaceId) -> Pfn {
        debug_assert_eq!(block.order(), Order::ZERO, "INV-FRAME-STATE: a table has more than one frame");
        let pfn = block.into_raw();
        let record = self.memmap.allocated(pfn);
        let kind = record.kind();
        record.flags.store(0, Ordering::Relaxed);
        record.counts.set_mappings(0);
        record.first_page_or_mlocks.store(0, Ordering::Relaxed);
        record.mapped_or_shares.store(1, Ordering::Relaxed);
        record.prev.store(0, Ordering::Relaxed);
        record.next.store(0, Ordering::Relaxed);
        record.pincount_or_swap.store(0, Ordering::Relaxed);
        plant!(LingerKeyKept; (), record.index.store(TableKey::NONE.0, Ordering::Relaxed));
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
            "INV-FRAME-STATE: frame {pfn} is {:?}, not a table",
            record.kind()
        );
        TablePage { record, pfn, locks: PhantomData }
    }

    /// Makes a block of a table that no entry points to any more.
    ///
    /// # Panics
    /// In debug builds when the table is locked, shared, or has live entries.
    ///
    /// # Safety
    /// INV-FRAME-TABLE: no entry points to the table, and no other call retires it. A walker may
    /// still be in it until the debt of the block is settled.
    #[allow(unsafe_code)]
    pub unsafe fn retire(&self, pfn: Pfn) -> Block {
        let table = self.table(pfn);
        // Pairs with the Release of the last `remove_sharer`.
        fence(Ordering::Acquire);
        debug_assert_eq!(table.live(), 0, "INV-FRAME-TABLE: {table:?} is retired with live entries");
        debug_assert_eq!(table.migrating(), 0, "INV-MIGRATE-COUNT: {table:?} is retired with migration entries");
        debug_assert!(table.shares() <= 1, "INV-FRAME-TABLE: {table:?} is retired while shared");
        debug_assert!(!table.is_locked(), "INV-FRAME-TABLE: {table:?} is retired while locked");
        debug_assert_eq!(table.deposits(), 0, "INV-HUGE-DEPOSIT: {table:?} is retired with deposits");
        table.record.counts.set_mappings(0);
        table.record.set_debt(DebtKey::NONE);
        let zone = table.record.kind().zone();
        table.record.set_kind(FrameKind::block(FrameState::Allocated, Order::ZERO, zone));
        Block::new(pfn, Order::ZERO)
    }
}

impl<'a, L: Backend> TablePage<'a, L> {
    #[inline]
    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.record
    }

    /// The frame of the table.
    #[inline]
    pub(crate) fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The level of the table.
    #[inline]
    pub fn level(&self) -> Level {
        self.record.kind().level()
    }

    /// The space for which the table was made, or that owned it alone when sharing began.
    pub fn origin(&self) -> SpaceId {
        SpaceId::new(self.record.owner_or_space.load(Ordering::Relaxed))
    }

    /// Sets the space that owns the table alone.
    ///
    /// The caller holds the lock.
    pub fn set_origin(&self, space: SpaceId) {
        self.record.owner_or_space.store(space.raw(), Ordering::Relaxed);
    }

    /// Takes the lock of the table.
    ///
    /// `R` is [`TableRank`] for a last-level table and [`TableUpperRank`] for any other.
    ///
    /// # Panics
    /// In debug builds when the caller breaks the lock order, or when `R` is the wrong rank.
    #[inline]
    pub fn lock<R: Rank>(&self) -> WordGuard<'a, R, L> {
        self.assert_rank::<R>();
        WordLock::lock::<R, L>(&self.record.flags, self.pfn)
    }

    /// Takes the lock of the table, unless it is held; otherwise as [`lock`](Self::lock).
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    pub fn try_lock<R: Rank>(&self) -> Option<WordGuard<'a, R, L>> {
        self.assert_rank::<R>();
        WordLock::try_lock::<R, L>(&self.record.flags, self.pfn)
    }

    #[inline]
    fn assert_rank<R: Rank>(&self) {
        let rank = if self.level() == Level::PTE { TableRank::PLACE } else { TableUpperRank::PLACE };
        debug_assert_eq!(R::PLACE, rank, "INV-LOCK-ORDER: table {} locked with rank {}", self.pfn, R::NAME);
    }

    /// Whether the lock is held, by this or another CPU.
    pub fn is_locked(&self) -> bool {
        WordLock::is_locked(&self.record.flags)
    }

    /// The number of entries that are not empty.
    #[inline]
    pub fn live(&self) -> u32 {
        self.record.counts.mappings() & LIVE
    }

    /// Changes the number of live entries, and returns it.
    ///
    /// The caller holds the lock.
    ///
    /// # Panics
    /// In debug builds when the number becomes negative or exceeds 512.
    #[inline]
    pub fn adjust_live(&self, change: i32) -> u32 {
        let live = self.live() as i32 + change;
        debug_assert!(
            (0..=Level::ENTRIES as i32).contains(&live),
            "INV-FRAME-TABLE: {self:?} gets {live} live entries"
        );
        // A store suffices under the lock. An atomic addition would cost as much as the store of
        // the entry.
        self.record.counts.set_mappings(self.record.counts.mappings() & !LIVE | live as u32);
        live as u32
    }

    /// Since when entries of the table owe a flush, and the sequence number of those that do.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn pending(&self) -> (TableKey, PendingSequence) {
        let sequence = self.record.pincount_or_swap.load(Ordering::Relaxed) & SEQUENCE;
        (TableKey(self.record.debt().raw()), PendingSequence::new(sequence))
    }

    /// Sets what [`pending`](Self::pending) returns.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn set_pending(&self, key: TableKey, sequence: PendingSequence) {
        self.record.set_debt(DebtKey::new(key.0));
        let migrating = self.record.pincount_or_swap.load(Ordering::Relaxed) & !SEQUENCE;
        self.record.pincount_or_swap.store(migrating | sequence.raw(), Ordering::Relaxed);
    }

    /// The number of migration entries in the table.
    #[inline]
    pub fn migrating(&self) -> u32 {
        self.record.pincount_or_swap.load(Ordering::Acquire) >> MIGRATING_SHIFT
    }

    /// Changes the number of migration entries.
    ///
    /// The caller holds the lock.
    ///
    /// # Panics
    /// In debug builds when the number becomes negative or exceeds that of the live entries.
    pub fn adjust_migrating(&self, change: i32) {
        let migrating = self.migrating() as i32 + change;
        debug_assert!(
            (0..=self.live() as i32).contains(&migrating),
            "INV-MIGRATE-COUNT: {self:?} gets {migrating} migration entries"
        );
        let sequence = self.record.pincount_or_swap.load(Ordering::Relaxed) & SEQUENCE;
        self.record.pincount_or_swap.store((migrating as u32) << MIGRATING_SHIFT | sequence, Ordering::Release);
    }

    /// Since when read-only translations of the table's pages may linger.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn lingering(&self) -> TableKey {
        TableKey(self.record.index.load(Ordering::Relaxed))
    }

    /// Sets what [`lingering`](Self::lingering) returns.
    ///
    /// The caller holds the lock.
    #[inline]
    pub fn set_lingering(&self, key: TableKey) {
        self.record.index.store(key.0, Ordering::Relaxed);
    }

    /// The live entries by what they hold.
    pub fn counts(&self) -> EntryCounts<u16> {
        let kinds = self.record.first_page_or_mlocks.load(Ordering::Relaxed);
        let swapped = self.record.counts.mappings() >> SWAPPED_SHIFT;
        core::array::from_fn(|kind| {
            let count = if kind == SWAP_ENTRIES { swapped } else { kinds >> (KIND_BITS * kind) & KIND };
            count as u16
        })
    }

    /// Changes the numbers of entries by what they hold.
    ///
    /// The caller holds the lock.
    ///
    /// # Panics
    /// In debug builds when a number becomes negative or exceeds that of the live entries.
    #[inline]
    pub fn adjust_counts(&self, change: EntryCounts<i32>) {
        let old = self.counts();
        let new = |kind: usize| {
            let count = i32::from(old[kind]) + change[kind];
            debug_assert!(
                (0..=self.live() as i32).contains(&count),
                "INV-TABLE-COUNTS: {self:?} counts {count} entries of kind {kind}"
            );
            count as u32
        };
        let kinds = (0..SWAP_ENTRIES).fold(0, |word, kind| word | (new(kind) & KIND) << (KIND_BITS * kind));
        self.record.first_page_or_mlocks.store(kinds, Ordering::Relaxed);
        if change[SWAP_ENTRIES] != 0 {
            self.record.counts.set_mappings(self.live() | (new(SWAP_ENTRIES) & LIVE) << SWAPPED_SHIFT);
        }
    }

    /// How the counts have changed by edits for all spaces that share the table.
    ///
    /// No such space has added them to its own resident set. They are 0 in a table of one space,
    /// and in one above the last level, whose entries are not edited for all.
    pub fn shared_edits(&self) -> EntryCounts<i16> {
        if self.level() > Level::PTE {
            return EntryCounts::default();
        }
        let (low, high) = (self.record.prev.load(Ordering::Relaxed), self.record.next.load(Ordering::Relaxed));
        [low as i16, (low >> 16) as i16, high as i16, (high >> 16) as i16]
    }

    /// Sets what [`shared_edits`](Self::shared_edits) returns.
    ///
    /// The caller holds the lock.
    ///
    /// # Panics
    /// In debug builds when a table above the last level gets any.
    pub fn set_shared_edits(&self, edits: EntryCounts<i16>) {
        if self.level() > Level::PTE {
            return debug_assert_eq!(edits, EntryCounts::default(), "INV-HUGE-OWN: {self:?} is edited for all");
        }
        let word = |at: usize| u32::from(edits[at] as u16) | u32::from(edits[at + 1] as u16) << 16;
        self.record.prev.store(word(0), Ordering::Relaxed);
        self.record.next.store(word(2), Ordering::Relaxed);
    }

    #[inline]
    fn shares_and_marks(&self) -> u32 {
        self.record.mapped_or_shares.load(Ordering::Acquire) as u32
    }

    /// The number of upper-level entries that point to this table.
    #[inline]
    pub fn shares(&self) -> u32 {
        self.shares_and_marks() & SHARES
    }

    /// Adds a sharer, and returns the number of sharers.
    ///
    /// # Panics
    /// In debug builds when the table has no sharer.
    pub fn share(&self) -> u32 {
        let before = self.record.mapped_or_shares.fetch_add(1, Ordering::AcqRel) as u32 & SHARES;
        debug_assert!(before > 0, "INV-FRAME-TABLE: {self:?} has no sharer to copy");
        before + 1
    }

    /// Removes a sharer, and returns the number of sharers left.
    ///
    /// The caller has flushed every CPU that walked the table for that sharer.
    ///
    /// # Panics
    /// In debug builds when the table has no sharer.
    pub fn remove_sharer(&self) -> u32 {
        let before = self.record.mapped_or_shares.fetch_sub(1, Ordering::AcqRel) as u32 & SHARES;
        debug_assert!(before > 0, "INV-FRAME-TABLE: {self:?} has no sharer to remove");
        before - 1
    }

    /// The marks.
    pub fn marks(&self) -> TableMarks {
        TableMarks::from_bits_truncate(self.shares_and_marks())
    }

    /// The marks, for a caller that has stored what makes a pin step back (INV-FULL-BARRIER).
    pub fn marks_after(&self, _stored: FullBarrier) -> TableMarks {
        self.marks()
    }

    /// Sets marks; the caller calls this before the facts become true.
    pub fn mark(&self, marks: TableMarks) {
        self.record.mapped_or_shares.fetch_or(marks.bits().into(), Ordering::AcqRel);
    }

    /// Clears marks.
    ///
    /// The caller holds the lock of a table that one space owns alone, and knows that the facts are
    /// no longer true.
    pub fn unmark(&self, marks: TableMarks) {
        self.record.mapped_or_shares.fetch_and(!u64::from(marks.bits()), Ordering::AcqRel);
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
