//! One record a frame: 64 bytes of atomics whose meaning depends on the state of the frame (Linux's
//! `struct page` and `struct folio`, `struct ptdesc`).
//!
//! A word means what the row of its frame's state says, and nothing where the row has a dot. `head`
//! stands for the first frame of a block.
//!
//! ```text
//! state       kind        refs  flags        mapcount  prev/next   entire  large  nr_mapped  pins  index       owner  debt
//! ----------  ----------  ----  -----------  --------  ----------  ------  -----  ---------  ----  ----------  -----  ----
//! Interior    0           0     .            0         .           .       .      .          .     .           .      .
//! Free head   order,zone  0     stamp        0         buddy list  .       .      .          .     own stamp   .      key
//! Pcp head    order,zone  0     residency    0         pcp list    .       .      .          .     .           .      key
//! Allocated head  order,zone  0     residency*   0         BlockList   .       .      .          .     .           .      key
//! Folio head  order,zone  refs  flags, age   its PTEs  LRU         entire  large* nr_mapped  pins* page index  FolioOwner  key
//! Folio tail  order,zone  0     .            its PTEs  deferred*   .       mlock* .          .     .           .      .
//! Table       level,zone  0     marks, lock  live      deposit     shares  .      .          .     .           space  key
//! ```
//!
//! `*` of a link: in the first tail only, as in Linux (`folio->_deferred_list`); of the residency:
//! on a `BlockList` only; of pins: of a small folio the slot in swap; of `large` and `mlock`: the
//! entries of locked memory that map the folio are counted in its own record if it is small, else
//! in its first tail's (Linux has them in a link of the unevictable list, which is no list there).
//! The deferred and deposit links have no user in this crate: they are why a large folio or a
//! shared table needs no second record. `refs` counts a pin of a small folio 1024 times. A folio
//! without references that waits on a `ReleaseList` has its link in the word of the owner, because it
//! is still on its LRU list. Resident-set counts of a last-level table find room in `large`,
//! `nr_mapped` and `pins` of its row. `debt` of a block in use is what it will owe when it is
//! freed, beyond what its last user says then.
//!
//! ```text
//!            carve, coalesce                 take                     new_folio
//! Interior <-----------------> Free  ---------------------> Allocated ---------------> Folio (refs = 1)
//!   (0)                        ^  \                        ^ ^ ^ \                   |   ^
//!                        drain |   \ refill                | | |  \ new_table        |   | thaw
//!                              |    v                 take | | |   v                 v   |
//!                              +--- Pcp -------------------+ | +-- Table         FrozenFolio (refs = 0): split
//!                                    ^                       |    retire             |
//!                                    +---------- free -------+<----------------------+ put of the last reference
//! ```
//!
//! The own stamp stays what it was while a frame is inside a larger block, free or in use.
//!
//! Only heads are written when a block changes state. The record of another frame of the block
//! keeps what it last said, and is believed only where its head agrees: see INV-FRAME-TAIL. Memory
//! that was never written reads as zeroes and is `Interior`, so a memmap costs host memory only
//! where frames were used; a hole between two ranges is `Interior` for ever.
//!
//! Protocol: `kind`, links and debt of a `Free` record change under its zone's lock, of a `Pcp`
//! record under that CPU's list lock. `Allocated` belongs to whoever has the [`Block`](crate::Block).
//! The words of a folio change by atomic read-modify-write; those of a table under its lock bit,
//! except the share count and the sticky marks.
//!
//! Invariants:
//! - INV-FRAME-SPEC: `refs` is nonzero only in the head of a folio. A speculative reference is
//!   taken by incrementing a nonzero count and by nothing else, so it fails on everything that is
//!   no folio (Linux's `get_page_unless_zero`).
//! - INV-FRAME-TAIL: a tail's record counts only if the head that its order names is a folio of
//!   that order.
//!
//! Not guaranteed: that a record read without the lock or reference that protects it still says the
//! same a moment later.

use bytemuck::Zeroable;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_types::{DebtKey, Level, Order};

use crate::clear::Residency;
use crate::zone::ZoneId;

/// What a frame is, by its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameState {
    /// Inside a block, or in no memory at all.
    ///
    /// What zeroed memory says.
    Interior = 0,
    /// First frame of a block on a buddy list.
    Free = 1,
    /// First frame of a block on a per-CPU list.
    Pcp = 2,
    /// First frame of a block that somebody owns.
    Allocated = 3,
    /// First frame of a folio, or the only one.
    Folio = 4,
    /// Another frame of a folio.
    Tail = 5,
    /// A page-table page.
    Table = 6,
}

/// FrameState, order or level, and zone: the word by which a record is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameKind(u32);

impl FrameKind {
    /// What zeroed memory says.
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

    /// The order of a block or folio; of a table, which is one frame, 0.
    pub(crate) fn order(self) -> Order {
        match self.state() {
            FrameState::Interior | FrameState::Table => Order::ZERO,
            FrameState::Free | FrameState::Pcp | FrameState::Allocated | FrameState::Folio | FrameState::Tail => {
                Order::new(self.size())
            }
        }
    }

    /// The level of a table.
    pub(crate) fn level(self) -> Level {
        debug_assert_eq!(self.state(), FrameState::Table, "INV-FRAME-STATE: a level was asked of {self:?}");
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

/// Everything that is known about one frame.
#[derive(Zeroable)]
#[repr(C, align(64))]
pub(crate) struct FrameRecord {
    kind: AtomicU32,
    /// References of a folio.
    pub(crate) refs: AtomicU32,
    /// [`FolioFlags`](crate::FolioFlags), or a table's marks and lock bit, or when a free block was
    /// freed.
    pub(crate) flags: AtomicU32,
    /// Entries that map this very page; a table's live entries.
    pub(crate) mapcount: AtomicU32,
    /// List links, as frame numbers.
    pub(crate) prev: AtomicU32,
    pub(crate) next: AtomicU32,
    /// Entries that map the folio whole; a table's share count.
    pub(crate) entire_or_shares: AtomicU32,
    /// `entire` + the sum of the pages' mapcounts; of a small folio and in the first tail of a
    /// large one, entries of locked memory that map the folio.
    pub(crate) large_mapcount_or_mlocks: AtomicU32,
    /// Pages that are mapped by entries of their own (+ a bias while the folio is mapped whole).
    pub(crate) nr_pages_mapped: AtomicU32,
    /// Pins of a large folio, exactly; of a small one in the swap cache, its
    /// [`SwapEntry`](pagewright_types::SwapEntry).
    pub(crate) pincount_or_swap: AtomicU32,
    /// Page index of a folio in what it belongs to; of frames not in use, when a block that begins
    /// here was last freed.
    pub(crate) index: AtomicU64,
    /// What a folio belongs to; the space for which a table was made.
    pub(crate) owner_or_space: AtomicU64,
    /// Key of the debt under which a free block stands, or a block in use will be freed.
    debt: AtomicU64,
}

const _: () = assert!(size_of::<FrameRecord>() <= 64, "a frame's record outgrew 64 bytes");

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

    /// When most of a block on a buddy list was freed, by the clock of its zone.
    #[inline]
    pub(crate) fn stamp(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_stamp(&self, stamp: u32) {
        self.flags.store(stamp, Ordering::Relaxed);
    }

    /// When a block that begins with this frame was last freed, whatever it is part of now, and
    /// that block's order.
    #[inline]
    pub(crate) fn own_stamp(&self) -> (u32, u8) {
        let raw = self.index.load(Ordering::Relaxed);
        (raw as u32, (raw >> 32) as u8)
    }

    #[inline]
    pub(crate) fn set_own_stamp(&self, stamp: u32, order: Order) {
        self.index.store(u64::from(order.raw()) << 32 | u64::from(stamp), Ordering::Relaxed);
    }

    /// What is known of the lines of a block on a per-CPU list.
    #[inline]
    pub(crate) fn residency(&self) -> Residency {
        Residency::from_raw(self.flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_residency(&self, residency: Residency) {
        self.flags.store(residency as u32, Ordering::Relaxed);
    }

    /// Adds a debt to what a block in use will owe.
    pub(crate) fn merge_debt(&self, key: DebtKey) {
        let mut now = self.debt();
        while let Err(other) =
            self.debt.compare_exchange_weak(now.raw(), now.merge(key).raw(), Ordering::Relaxed, Ordering::Relaxed)
        {
            now = DebtKey::new(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_word_gives_back_what_it_was_made_of() {
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
    fn zeroed_memory_is_the_inside_of_a_block() {
        let record = FrameRecord::zeroed();
        assert_eq!(record.kind(), FrameKind::INTERIOR);
        assert_eq!(record.kind().state(), FrameState::Interior);
        assert_eq!(record.refs.load(Ordering::Relaxed), 0, "INV-FRAME-SPEC");
    }
}
