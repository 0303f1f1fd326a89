//! The buddy allocator: free blocks of 2^0 to 2^18 frames, split on demand, coalesced when freed.
//!
//! Linux's `mm/page_alloc.c`: `__rmqueue_smallest`, `expand` and `__free_one_page`.
//!
//! Key type: `Buddy`, one for each zone, inside the zone's lock.
//!
//! A free block is *settled*, or *parked*: a parked block carries the key of a debt that must be
//! settled before the frames are used. The two are on different lists and never coalesce. So no
//! settled frame waits for a flush, and neither kind hides the other. The allocator takes settled
//! blocks first, and flushes that happen anyway have time to pay the debts. Once the ledger's floor
//! covers a key, the block is moved to the settled lists and coalesces there.
//!
//! Each free block remembers when it was freed, by a clock that counts freed frames. After as many
//! freed frames as fit the last-level cache, the lines of the block have left the cache, and
//! clearing it may bypass the cache. A small block that coalesces into a large one does not make
//! the large block younger. It keeps its own time of freeing for when it is split off again.
//!
//! Invariants:
//! - INV-FRAME-BUDDY: free blocks are disjoint and naturally aligned, lie in one zone, and no two
//!   settled or two parked blocks are buddies of one order below the largest.
//! - INV-FRAME-KEY: the key under which a block is handed out is at least the key under which any
//!   of its frames was freed, unless the floor covers that key.
//! - INV-FRAME-PARKED: only frames that were freed with a key are parked, and only the floor or an
//!   allocation ends it.
//!
//! Not guaranteed: that only the frames that owe a debt carry its key. Coalescing of parked blocks
//! applies the youngest key to all of their frames, as a merged key, which every CPU owes.

use crate::clear::Residency;
use crate::list::FrameList;
use crate::memmap::Memmap;
use crate::record::{FrameKind, FrameState};
use crate::zone::ZoneId;
use pagewright_plant::plant;
use pagewright_types::{DebtFloor, DebtKey, FrameRange, Order, Pfn};

/// The age, in freed frames, of a block that was never used.
const NEVER: u32 = 1 << 31;

/// Which free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeKind {
    /// Those whose frames can be used at once.
    Settled,
    /// Those whose frames owe a debt.
    Parked,
}

impl FreeKind {
    fn of(key: DebtKey) -> Self {
        if key == DebtKey::NONE { Self::Settled } else { Self::Parked }
    }
}

/// The free blocks of a zone.
pub(crate) struct Buddy {
    settled: [FrameList; Order::COUNT],
    parked: [FrameList; Order::COUNT],
    /// The floor to which the parked blocks were compared last; no block owes a debt up to it.
    floor: DebtFloor,
    zone: ZoneId,
    /// Frames freed so far; wraps around.
    ///
    /// Frames added at boot count as freed half the range of the clock ago.
    clock: u32,
}

impl Buddy {
    pub(crate) const fn new(zone: ZoneId) -> Self {
        Self {
            settled: [FrameList::EMPTY; Order::COUNT],
            parked: [FrameList::EMPTY; Order::COUNT],
            floor: DebtFloor::NONE,
            zone,
            clock: NEVER,
        }
    }

    /// Free blocks of one order.
    pub(crate) const fn blocks(&self, order: Order) -> u32 {
        self.settled[order.index()].len() + self.parked[order.index()].len()
    }

    fn list(&mut self, kind: FreeKind, order: Order) -> &mut FrameList {
        match kind {
            FreeKind::Settled => &mut self.settled[order.index()],
            FreeKind::Parked => &mut self.parked[order.index()],
        }
    }

    /// Adds frames at boot, as the largest naturally aligned blocks.
    pub(crate) fn add_range(&mut self, memmap: &Memmap, range: FrameRange) {
        let mut at = range.start();
        while at < range.end() {
            let left = range.end().raw() - at.raw();
            let fits = left.ilog2().min(at.raw().trailing_zeros()).min(u32::from(Order::PUD.raw()));
            let order = Order::new(fits as u8);
            let stamp = self.clock.wrapping_sub(NEVER);
            memmap.at(at).set_own_stamp(stamp, order);
            self.coalesce(memmap, at, order, (DebtKey::NONE, stamp));
            at = at.add(order.frames());
        }
    }

    /// Takes a block of `order`, split off the smallest block of its kind that is large enough.
    ///
    /// The record keeps the state `Free` until the caller changes it.
    pub(crate) fn take(&mut self, memmap: &Memmap, order: Order, kind: FreeKind) -> Option<(Pfn, DebtKey)> {
        let mut orders = (order.raw()..=Order::PUD.raw()).map(Order::new);
        let (pfn, larger) = orders.find_map(|larger| Some((self.list(kind, larger).first()?, larger)))?;
        let key = memmap.at(pfn).debt();
        self.list(kind, larger).remove(memmap, pfn);
        for smaller in (order.raw()..larger.raw()).rev().map(Order::new) {
            let half = pfn.add(smaller.frames());
            self.link(memmap, half, smaller, (key, self.younger(memmap, half, smaller, memmap.at(pfn).stamp())));
        }
        memmap.at(pfn).set_kind(FrameKind::block(FrameState::Free, order, self.zone));
        Some((pfn, key))
    }

    /// Frees a block and coalesces it with its buddies of the same kind.
    ///
    /// Returns whether the block is parked.
    pub(crate) fn put(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, key: DebtKey) -> bool {
        self.clock = self.clock.wrapping_add(order.frames());
        memmap.at(pfn).set_own_stamp(self.clock, order);
        let key = if self.floor.covers(key) { DebtKey::NONE } else { key };
        self.coalesce(memmap, pfn, order, (key, self.clock));
        key != DebtKey::NONE
    }

    /// Moves the parked blocks whose debts are paid to the settled lists.
    ///
    /// Returns the number of their frames. Takes time only if the floor has risen.
    pub(crate) fn unpark(&mut self, memmap: &Memmap, floor: DebtFloor) -> u32 {
        if floor <= self.floor {
            return 0;
        }
        self.floor = floor;
        let mut frames = 0;
        for order in (0..=Order::PUD.raw()).map(Order::new) {
            let mut next = self.parked[order.index()].first();
            while let Some(pfn) = next {
                next = self.parked[order.index()].after(memmap, pfn);
                let record = memmap.at(pfn);
                if floor.covers(record.debt()) {
                    self.parked[order.index()].remove(memmap, pfn);
                    self.coalesce(memmap, pfn, order, (DebtKey::NONE, record.stamp()));
                    frames += order.frames();
                }
            }
        }
        frames
    }

    /// What is known about the cache lines of a block that was just taken.
    ///
    /// They are cold if at least `cold_after` frames were freed after the block was.
    pub(crate) fn residency(&self, memmap: &Memmap, pfn: Pfn, cold_after: u32) -> Residency {
        let record = memmap.at(pfn);
        let stamp = self.younger(memmap, pfn, record.kind().order(), record.stamp());
        let age = self.clock.wrapping_sub(stamp);
        if age >= cold_after { Residency::Cold } else { Residency::Unknown }
    }

    /// The later of `stamp` and the own stamp of `pfn`, if that is of a block of at least `order`.
    fn younger(&self, memmap: &Memmap, pfn: Pfn, order: Order, stamp: u32) -> u32 {
        let age = |stamp: u32| self.clock.wrapping_sub(stamp);
        let (own, of) = memmap.at(pfn).own_stamp();
        if of >= order.raw() && age(own) < age(stamp) { own } else { stamp }
    }

    fn coalesce(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, (key, stamp): (DebtKey, u32)) {
        let freed = order;
        let kind = FreeKind::of(key);
        let (mut pfn, mut order, mut key, mut stamp) = (pfn, order, key, stamp);
        while order < Order::PUD {
            let buddy = Pfn::new(pfn.raw() ^ order.frames());
            let wanted = FrameKind::block(FrameState::Free, order, self.zone);
            let Some(record) = memmap.get(buddy).filter(|record| record.kind() == wanted) else { break };
            if plant!(ParkedMerges; false, FreeKind::of(record.debt()) != kind) {
                break;
            }
            // A block of which a quarter or less was just freed keeps the age of the rest. The
            // freed part keeps its own stamp.
            if order > freed {
                stamp = record.stamp();
            }
            self.list(FreeKind::of(record.debt()), order).remove(memmap, buddy);
            record.set_kind(FrameKind::INTERIOR);
            memmap.at(pfn).set_kind(FrameKind::INTERIOR);
            pfn = pfn.min(buddy);
            key = key.merge(record.debt());
            order = Order::new(order.raw() + 1);
            if order.raw() == freed.raw() + 1 {
                memmap.at(pfn).set_own_stamp(stamp, order);
            }
        }
        self.link(memmap, pfn, order, (key, stamp));
    }

    /// Puts a free block on its list.
    ///
    /// The youngest settled block is taken first, and the oldest parked one.
    fn link(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, (key, stamp): (DebtKey, u32)) {
        let record = memmap.at(pfn);
        record.set_debt(key);
        record.set_stamp(stamp);
        record.set_kind(FrameKind::block(FrameState::Free, order, self.zone));
        match FreeKind::of(key) {
            FreeKind::Settled => self.settled[order.index()].push_front(memmap, pfn),
            FreeKind::Parked => self.parked[order.index()].push_back(memmap, pfn),
        }
    }
}
