//! The buddy allocator: free blocks of 2^0 to 2^18 frames, split on demand, coalesced when freed.
//!
//! Linux's `mm/page_alloc.c`: `__rmqueue_smallest`, `expand` and `__free_one_page`.
//!
//! Key type: `Buddy`, one for each zone, inside the zone's lock.
//!
//! A free block may be *parked*: it carries the key of a debt that must be settled before the
//! frames are used. Keys follow the frames: coalescing merges keys, splitting copies them. Parked
//! blocks queue at the back of their list. So the allocator takes settled blocks of an order first,
//! and flushes that happen anyway have time to pay the debt.
//!
//! Each free block remembers when it was freed, by a clock that counts freed frames. After as many
//! freed frames as fit the last-level cache, the lines of the block have left the cache, and
//! clearing it may bypass the cache. A small block that coalesces into a large one does not make
//! the large block younger. It keeps its own time of freeing for when it is split off again.
//!
//! Invariants:
//! - INV-FRAME-BUDDY: free blocks are disjoint and naturally aligned, lie in one zone, and no two
//!   of them are buddies of one order below the largest.
//! - INV-FRAME-KEY: the key under which a block is handed out is at least the key under which any
//!   of its frames was freed.
//!
//! Not guaranteed: that only the frames that owe a debt carry its key. Coalescing applies the key
//! to all frames of the merged block.

use crate::clear::Residency;
use crate::list::FrameList;
use crate::memmap::Memmap;
use crate::record::{FrameKind, FrameState};
use crate::zone::ZoneId;
use pagewright_types::{DebtKey, FrameRange, Order, Pfn};

/// The age, in freed frames, of a block that was never used.
const NEVER: u32 = 1 << 31;

/// The free blocks of a zone.
pub(crate) struct Buddy {
    lists: [FrameList; Order::COUNT],
    zone: ZoneId,
    /// Frames freed so far; wraps around.
    ///
    /// Frames added at boot count as freed half the range of the clock ago.
    clock: u32,
}

impl Buddy {
    pub(crate) const fn new(zone: ZoneId) -> Self {
        Self { lists: [FrameList::EMPTY; Order::COUNT], zone, clock: NEVER }
    }

    /// Free blocks of one order.
    pub(crate) const fn blocks(&self, order: Order) -> u32 {
        self.lists[order.index()].len()
    }

    /// Adds frames at boot, as the largest naturally aligned blocks.
    pub(crate) fn add_range(&mut self, memmap: &Memmap, range: FrameRange) {
        let mut at = range.start();
        while at < range.end() {
            let left = range.end().raw() - at.raw();
            let fits = left.ilog2().min(at.raw().trailing_zeros()).min(u32::from(Order::PUD.raw()));
            let order = Order::new(fits as u8);
            self.coalesce(memmap, at, order, (DebtKey::NONE, self.clock.wrapping_sub(NEVER)));
            at = at.add(order.frames());
        }
    }

    /// Takes a block of `order`, split off the smallest block that is large enough.
    ///
    /// With `settled_only`, takes only a block without a debt. The record keeps the state `Free`
    /// until the caller changes it.
    pub(crate) fn take(&mut self, memmap: &Memmap, order: Order, settled_only: bool) -> Option<(Pfn, DebtKey)> {
        let found = (order.raw()..=Order::PUD.raw()).map(Order::new).find_map(|larger| {
            let pfn = self.lists[larger.index()].first()?;
            // INV-FRAME-QUEUE: if the first block is parked, all of them are.
            let key = memmap.at(pfn).debt();
            (!settled_only || key == DebtKey::NONE).then_some((pfn, larger, key))
        });
        let (pfn, larger, key) = found?;
        self.lists[larger.index()].remove(memmap, pfn);
        for smaller in (order.raw()..larger.raw()).rev().map(Order::new) {
            let half = pfn.add(smaller.frames());
            self.link(memmap, half, smaller, (key, self.younger(memmap, half, smaller, memmap.at(pfn).stamp())));
        }
        memmap.at(pfn).set_kind(FrameKind::block(FrameState::Free, order, self.zone));
        Some((pfn, key))
    }

    /// Frees a block and coalesces it with its buddies.
    ///
    /// Returns how many other frames came under a debt: the frames of a settled buddy that joined a
    /// parked block, or of a settled block that joined a parked buddy.
    pub(crate) fn put(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, key: DebtKey) -> u32 {
        self.clock = self.clock.wrapping_add(order.frames());
        self.coalesce(memmap, pfn, order, (key, self.clock))
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

    fn coalesce(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, (key, stamp): (DebtKey, u32)) -> u32 {
        let freed = order;
        let (mut pfn, mut order, mut key, mut stamp) = (pfn, order, key, stamp);
        memmap.at(pfn).set_own_stamp(stamp, order);
        let mut newly_parked = 0;
        while order < Order::PUD {
            let buddy = Pfn::new(pfn.raw() ^ order.frames());
            let wanted = FrameKind::block(FrameState::Free, order, self.zone);
            let Some(record) = memmap.get(buddy).filter(|record| record.kind() == wanted) else { break };
            let buddy_key = record.debt();
            if (key == DebtKey::NONE) != (buddy_key == DebtKey::NONE) {
                newly_parked += order.frames();
            }
            // A block of which a quarter or less was just freed keeps the age of the rest. The
            // freed part keeps its own stamp.
            if order > freed {
                stamp = record.stamp();
            }
            self.lists[order.index()].remove(memmap, buddy);
            record.set_kind(FrameKind::INTERIOR);
            memmap.at(pfn).set_kind(FrameKind::INTERIOR);
            pfn = pfn.min(buddy);
            key = key.merge(buddy_key);
            order = Order::new(order.raw() + 1);
            if order.raw() == freed.raw() + 1 {
                memmap.at(pfn).set_own_stamp(stamp, order);
            }
        }
        self.link(memmap, pfn, order, (key, stamp));
        newly_parked
    }

    fn link(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, (key, stamp): (DebtKey, u32)) {
        let record = memmap.at(pfn);
        record.set_debt(key);
        record.set_stamp(stamp);
        record.set_kind(FrameKind::block(FrameState::Free, order, self.zone));
        queue(&mut self.lists[order.index()], memmap, pfn, key);
    }
}

/// Puts a free block on a list: settled blocks at the front, parked ones at the back.
///
/// Keeps INV-FRAME-QUEUE.
pub(crate) fn queue(list: &mut FrameList, memmap: &Memmap, pfn: Pfn, key: DebtKey) {
    if key == DebtKey::NONE { list.push_front(memmap, pfn) } else { list.push_back(memmap, pfn) }
}
