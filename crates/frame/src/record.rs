//! The record of a frame: 64 bytes of atomics whose meaning depends on the state of the frame.
//!
//! Linux's `struct page`, `struct folio` and `struct ptdesc`.
//!
//! The row of a state says what each word of the record means; a dot means that the word has no
//! meaning in that state. `head` is the first frame of a block.
//!
//! ```text
//! state           kind        refs  flags        mapcount  prev/next   mapped   first  pins  index       owner       debt
//! --------------  ----------  ----  -----------  --------  ----------  -------  -----  ----  ----------  ----------  ----
//! Interior        0           0     .            0         .           .        .      .     .           .           .
//! Free head       order,zone  0     stamp        0         buddy list  .        .      .     own stamp   .           key
//! Pcp head        order,zone  0     residency    0         pcp list    .        .      .     .           .           0
//! Allocated head  order,zone  0     residency*   0         BlockList   .        .      .     .           .           key
//! Folio head      order,zone  refs  flags, age   entries   LRU         mapped*  first* pins* page index  FolioOwner* key
//! Folio tail      order,zone  0     .            its PTEs  deferred*   .        mlock* .     .           .           .
//! Table           level,zone  0     lock         live*     edits*      shares*  counts pend* key*        space       key
//! ```
//!
//! - `residency*`: valid only while the block is on a `BlockList`.
//! - `deferred*`: in the first tail only, as in Linux (`folio->_deferred_list`).
//! - `entries`: all that map the folio, whole or a page of it. `first*`: of those, the entries that
//!   map the first page of a large folio by itself, which its other pages count in `mapcount`.
//! - `mapped*`: the pages of a large folio that have entries of their own, and the entries that map
//!   it whole ([`MappedPages`](crate::counts::MappedPages)). A small folio has the ticket of its
//!   batch here (`lru_batch`).
//! - `mlock*`: a small folio counts the entries of locked memory that map it in `first` of its own
//!   record, a large folio in `first` of its first tail. (Linux counts them in a link of the
//!   unevictable list, which is no real list there.)
//! - `pins*`: a small folio in the swap cache stores its slot here.
//! - `FolioOwner*`: a folio on a [`ReleaseList`](crate::ReleaseList) has its link here, because it
//!   is still on its LRU list.
//!
//! - `shares*`: the number of sharers, and the sticky marks above it.
//! - `live*`: the entries that are not empty; above them, those that are in swap. `counts`: the
//!   others by what they map ([`EntryCounts`](crate::EntryCounts)), three of 10 bits.
//! - `edits*`: of a last-level table, what edits for all sharers have changed in `counts`, four of
//!   16 bits. Of any other, the first of its deposited tables and their number; each of these has
//!   the next in `next` (`deposit.rs`).
//! - `pend*` and `key*`: of flushes that outlive the lock of the table. `debt` is the key of
//!   entries that lost rights, and `pins` the sequence number that tells pending entries of the
//!   present key from older ones ([`TableKey`](crate::TableKey)). `index` is the key of read-only
//!   translations that may linger; a new table has none. `pins` also counts, above the sequence
//!   number, the migration entries of the table.
//!
//! `refs` and `mapcount` share one word ([`FrameCounts`]). `refs` counts a pin of a small folio
//! 1024 times. `debt` of a block in use is what its frames will owe when they are freed, in
//! addition to the debt that the last user names then.
//!
//! ```text
//!            carve, coalesce                 alloc                    new_folio
//! Interior <-----------------> Free  ------------------> Allocated ---------------> Folio (refs = 1)
//!   (0)                        ^  \                        ^ ^ ^ \                   |   ^
//!                        drain |   \ refill                | | |  \ new_table        |   | thaw
//!                              |    v                alloc | | |   v          freeze v   |
//!                              +--- Pcp -------------------+ | +-- Table          Frozen (refs = 0): split
//!                                    ^                       |    retire             |
//!                                    +---------- free -------+<----------------------+ put of the last reference
//! ```
//!
//! The own stamp of a frame stays while the frame is inside a larger block, free or in use.
//!
//! A change of state writes only the head of the block. The records of its other frames keep their
//! old contents and are valid only if the head agrees (INV-FRAME-TAIL). Memory that was never
//! written reads as zeroes, which is `Interior`, so a memmap costs host memory only for frames that
//! were used. A hole between two ranges stays `Interior`.
//!
//! **INV-FRAME-STATE** A frame is in the one state that its record says, and changes state only
//! along the arrows drawn in `frame::record`.
//!
//! Protocol: `kind`, links and debt of a `Free` record change under the lock of its zone, and those
//! of a `Pcp` record under the lock of that CPU's list. An `Allocated` record belongs to the owner
//! of the [`Block`](crate::Block). The words of a folio change by atomic read-modify-write. The
//! words of a table change under its lock, except the share count and the sticky marks.
//!
//! Invariants:
//! - **INV-FRAME-SPEC** `refs` is nonzero only in the head of a folio. So a speculative reference
//!   fails on everything that is not a folio, tables included. Only an increment of a nonzero count
//!   takes one (Linux's `get_page_unless_zero`).
//! - **INV-FRAME-TAIL** The record of a tail is valid only if the head that its order names is a
//!   folio of that order. Otherwise freeing a folio would have to write all its records, or a
//!   look-up would find a folio that is gone.
//!
//! Not guaranteed: that a record read without the lock or reference that protects it stays as it
//! was read.

use bytemuck::Zeroable;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_types::{DebtKey, Level, Order};

use crate::clear::Residency;
use crate::counts::FrameCounts;
use crate::zone::ZoneId;

/// The state of a frame, from its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameState {
    /// Inside a block, or in a hole of the memmap.
    ///
    /// The state of zeroed memory.
    Interior = 0,
    /// First frame of a block on a buddy list.
    Free = 1,
    /// First frame of a block on a per-CPU list.
    Pcp = 2,
    /// First frame of a block that has an owner.
    Allocated = 3,
    /// First or only frame of a folio.
    Folio = 4,
    /// Any other frame of a folio.
    Tail = 5,
    /// A page-table page.
    Table = 6,
}

/// The word that says how to read a record: state, order or level, and zone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameKind(u32);

impl FrameKind {
    /// The value of zeroed memory.
    pub(crate) const INTERIOR: Self = Self(0);
    const SIZE_SHIFT: u32 = 4;
    const ZONE_SHIFT: u32 = 12;

    pub(crate) const fn block(state: FrameState, order: Order, zone: ZoneId) -> Self {
        Self(state as u32 | (order.raw() as u32) << Self::SIZE_SHIFT | (zone.raw() as u32) << Self::ZONE_SHIFT)
    }

    pub(crate) const fn table(level: Level, zone: ZoneId) -> Self {
        Self(
            FrameState::Table as u32
                | (level.raw() as u32) << Self::SIZE_SHIFT
                | (zone.raw() as u32) << Self::ZONE_SHIFT,
        )
    }

    #[inline]
    pub(crate) fn state(self) -> FrameState {
        match self.0 & 0xf {
            0 => FrameState::Interior,
            1 => FrameState::Free,
            2 => FrameState::Pcp,
            3 => FrameState::Allocated,
            4 => FrameState::Folio,
            5 => FrameState::Tail,
            6 => FrameState::Table,
            other => unreachable!("no frame has state {other}"),
        }
    }

    const fn size(self) -> u8 {
        (self.0 >> Self::SIZE_SHIFT) as u8
    }

    /// The order of a block or folio, and 0 for a table, which is one frame.
    #[inline]
    pub(crate) fn order(self) -> Order {
        match self.state() {
            FrameState::Interior | FrameState::Table => Order::ZERO,
            FrameState::Free | FrameState::Pcp | FrameState::Allocated | FrameState::Folio | FrameState::Tail => {
                Order::new(self.size())
            }
        }
    }

    /// Whether this is the head of a folio.
    #[inline]
    pub(crate) const fn is_folio(self) -> bool {
        self.0 & 0xf == FrameState::Folio as u32
    }

    /// Whether this is a folio of one page.
    #[inline]
    pub(crate) const fn is_small_folio(self) -> bool {
        self.is_folio() && self.size() == 0
    }

    /// Whether this is the head of a folio of more than one page.
    #[inline]
    pub(crate) const fn is_large_folio(self) -> bool {
        self.is_folio() && self.size() != 0
    }

    /// The level of a table.
    pub(crate) fn level(self) -> Level {
        debug_assert_eq!(self.state(), FrameState::Table, "INV-FRAME-STATE: {self:?} is no table and has no level");
        Level::new(self.size())
    }

    pub(crate) const fn zone(self) -> ZoneId {
        ZoneId::new((self.0 >> Self::ZONE_SHIFT) as u8)
    }

    /// The same block in another state.
    pub(crate) const fn to(self, state: FrameState) -> Self {
        Self(self.0 & !0xf | state as u32)
    }
}

impl fmt::Debug for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}) in zone {}", self.state(), self.size(), self.zone())
    }
}

/// The record of one frame.
#[derive(Zeroable)]
#[repr(C, align(64))]
pub(crate) struct FrameRecord {
    kind: AtomicU32,
    /// [`FolioFlags`](crate::FolioFlags) and age of a folio; the lock of a table.
    ///
    /// Of a block on a buddy list, the time at which it was freed; of a block on a per-CPU list,
    /// its residency.
    pub(crate) flags: AtomicU32,
    /// The references of a folio, and the entries that map it or a page of it.
    ///
    /// Of a tail, the entries that map its page by itself in place of the second; of a table, the
    /// live entries.
    pub(crate) counts: FrameCounts,
    /// List links, as frame numbers.
    pub(crate) prev: AtomicU32,
    pub(crate) next: AtomicU32,
    /// How a large folio is mapped; share count and marks of a table.
    ///
    /// Of a small folio, the ticket of its batch (`lru_batch`).
    pub(crate) mapped_or_shares: AtomicU64,
    /// Entries that map the first page of a large folio by itself.
    ///
    /// In a small folio, and in the first tail of a large one, the entries of locked memory that
    /// map the folio. Of a table, entries by what they map.
    pub(crate) first_page_or_mlocks: AtomicU32,
    /// The exact number of pins of a large folio.
    ///
    /// Of a small folio in the swap cache, its [`SwapEntry`](pagewright_types::SwapEntry).
    pub(crate) pincount_or_swap: AtomicU32,
    /// The page index of a folio in its owner.
    ///
    /// Of a table, the key of translations that may linger. Of a frame not in use, the time at
    /// which a block that begins here was last freed.
    pub(crate) index: AtomicU64,
    /// The owner of a folio, and a note about its last use; the space for which a table was made.
    pub(crate) owner_or_space: AtomicU64,
    /// The key of the debt of a free block, or of the debt that a block in use will owe.
    debt: AtomicU64,
}

const _: () = assert!(size_of::<FrameRecord>() <= 64, "the record of a frame exceeds 64 bytes");

impl FrameRecord {
    #[inline]
    pub(crate) fn kind(&self) -> FrameKind {
        FrameKind(self.kind.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn set_kind(&self, kind: FrameKind) {
        self.kind.store(kind.0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn debt(&self) -> DebtKey {
        DebtKey::new(self.debt.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_debt(&self, key: DebtKey) {
        self.debt.store(key.raw(), Ordering::Relaxed);
    }

    /// The time at which most of a block on a buddy list was freed, by the clock of its zone.
    #[inline]
    pub(crate) fn stamp(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_stamp(&self, stamp: u32) {
        self.flags.store(stamp, Ordering::Relaxed);
    }

    /// The time at which a block that began with this frame was last freed, and its order.
    ///
    /// Valid whatever block the frame belongs to now.
    #[inline]
    pub(crate) fn own_stamp(&self) -> (u32, u8) {
        let raw = self.index.load(Ordering::Relaxed);
        (raw as u32, (raw >> 32) as u8)
    }

    #[inline]
    pub(crate) fn set_own_stamp(&self, stamp: u32, order: Order) {
        self.index.store(u64::from(order.raw()) << 32 | u64::from(stamp), Ordering::Relaxed);
    }

    /// What is known about the cache lines of a block on a per-CPU list or a `BlockList`.
    #[inline]
    pub(crate) fn residency(&self) -> Residency {
        Residency::from_raw(self.flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_residency(&self, residency: Residency) {
        self.flags.store(residency as u32, Ordering::Relaxed);
    }

    /// Adds a debt to the debt that a block in use will owe.
    pub(crate) fn merge_debt(&self, key: DebtKey) {
        let merged = |debt| Some(DebtKey::new(debt).merge(key).raw());
        let _ = self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
    }

    /// Forgets the debt `settled` of a block in use, unless it has changed.
    pub(crate) fn forget_debt(&self, settled: DebtKey) {
        // A failure leaves a debt that the next caller settles.
        let _ = self.debt.compare_exchange(settled.raw(), DebtKey::NONE.raw(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_word_returns_state_order_level_and_zone() {
        for zone in [0, 1, 127, 255].map(ZoneId::new) {
            for raw in 0..Order::COUNT as u8 {
                for state in
                    [FrameState::Free, FrameState::Pcp, FrameState::Allocated, FrameState::Folio, FrameState::Tail]
                {
                    let kind = FrameKind::block(state, Order::new(raw), zone);
                    assert_eq!((kind.state(), kind.order(), kind.zone()), (state, Order::new(raw), zone));
                    assert_eq!(
                        kind.to(FrameState::Allocated),
                        FrameKind::block(FrameState::Allocated, Order::new(raw), zone)
                    );
                }
            }
            for raw in 0..Level::COUNT as u8 {
                let kind = FrameKind::table(Level::new(raw), zone);
                assert_eq!((kind.state(), kind.level(), kind.zone()), (FrameState::Table, Level::new(raw), zone));
                assert_eq!(kind.order(), Order::ZERO);
            }
        }
    }

    #[test]
    fn zeroed_memory_is_interior_and_has_no_references() {
        let record = FrameRecord::zeroed();
        assert_eq!(record.kind(), FrameKind::INTERIOR);
        assert_eq!(record.kind().state(), FrameState::Interior);
        assert_eq!(record.counts.refs(), 0, "INV-FRAME-SPEC");
    }
}
