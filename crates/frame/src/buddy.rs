//! The buddy allocator: free blocks of 2^0 to 2^18 frames, split on demand, coalesced when freed.
//!
//! Linux's `mm/page_alloc.c`: `__rmqueue_smallest`, `expand` and `__free_one_page`.
//!
//! Key type: `Buddy`, one for each zone, inside the zone's lock.
//!
//! A free block is *settled*, or *parked*: a parked block carries the key of a debt that must be
//! settled before the frames are used. The two are on different lists, and free blocks coalesce
//! only if they owe the same debt. So no settled frame waits for a flush, neither kind hides the
//! other, and no CPU is flushed for a debt that it does not owe. The allocator takes settled blocks
//! first, and flushes that happen anyway have time to settle the debts. Once the ledger's floor
//! covers a key, the block is moved to the settled lists and coalesces there, 64 blocks at a time.
//!
//! Each free block remembers when it was freed, by a clock that counts freed frames. After as many
//! freed frames as fit the last-level cache, the lines of the block have left the cache, and
//! clearing it may bypass the cache. A small block that coalesces into a large one does not make
//! the large block younger. It keeps its own time of freeing for when it is split off again.
//!
//! Invariants:
//! - **INV-FRAME-BUDDY** Free blocks are disjoint and naturally aligned, each lies in one zone, and
//!   no two that owe the same debt, or none, are buddies of one order below the largest.
//! - **INV-FRAME-KEY** The key with which a block is handed out is at least the key with which any
//!   of its frames was freed, unless the ledger's floor covers that key. Otherwise a CPU could
//!   still reach frames that have a new owner.
//! - **INV-FRAME-PARKED** A free frame is parked only if it was freed with a key, and until the
//!   ledger's floor covers the key. A settled block coalesces with none that is parked, and neither
//!   is on a list of the other. So a caller that must not wait finds every settled frame, and a
//!   debt does not spread.
//! - **INV-FRAME-ONE-KEY** Each frame of a parked block was freed with the key that the block
//!   carries. If blocks with different keys coalesced, their key would be owed by every CPU.
//!
//! Not guaranteed: that each block whose debt is settled is found at once. The parked blocks of an
//! order are a queue in order of parking, and a block waits until the debts of those before it are
//! settled. Keys are opened shortly before their frames are parked, so the order is nearly that of
//! the keys. Nor that the key of a block is that of one debt: the frames of a folio may owe
//! several.

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

/// The most blocks that are parked or unparked under one hold of the lock (INV-FRAME-HOLD).
pub(crate) const BLOCKS_PER_HOLD: usize = 64;

/// The free blocks of a zone.
pub(crate) struct Buddy {
    settled: [FrameList; Order::COUNT],
    /// In order of parking, so that a step looks only at what it moves.
    parked: [FrameList; Order::COUNT],
    /// The highest floor to which parked blocks were compared; no block is parked under it anew.
    floor: DebtFloor,
    /// The most blocks that one hold of the lock has parked or unparked.
    longest_hold: usize,
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
            longest_hold: 0,
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

    /// Takes up to `most` settled blocks of `order` that are neighbours, and returns their number.
    ///
    /// `most` is not 0.
    ///
    /// They are the blocks that [`take`](Self::take) would split off one after the other, in the
    /// same order. What is split further is not put on a list in between. `each` gets the first
    /// frame of a block and its [residency](Self::residency).
    pub(crate) fn take_several(
        &mut self,
        memmap: &Memmap,
        order: Order,
        (most, cold_after): (u32, u32),
        mut each: impl FnMut(Pfn, FrameKind, Residency),
    ) -> u32 {
        let mut larger = order.raw()..=Order::PUD.raw();
        let Some(larger) = larger.find(|larger| self.settled[usize::from(*larger)].len() > 0) else { return 0 };
        let splits = (larger - order.raw()).min(most.ilog2() as u8);
        let whole = Order::new(order.raw() + splits);
        let Some((first, key)) = self.take(memmap, whole, FreeKind::Settled) else { return 0 };
        let kind = FrameKind::block(FrameState::Free, order, self.zone);
        // Of the block of each size that is being split, from the smallest on.
        let mut stamps = [memmap.at(first).stamp(); Order::COUNT + 1];
        for index in 0..1_u32 << splits {
            let pfn = first.add(index << order.raw());
            if index > 0 {
                let size = index.trailing_zeros() as u8;
                let half = Order::new(order.raw() + size);
                let stamp = self.younger(memmap, pfn, half, stamps[usize::from(size) + 1]);
                stamps[..=usize::from(size)].fill(stamp);
            }
            memmap.at(pfn).set_debt(key);
            each(pfn, kind, self.residency_of(memmap, pfn, order, (stamps[0], cold_after)));
        }
        1 << splits
    }

    /// Frees a block and coalesces it with its buddies that owe the same debt, or none as it.
    ///
    /// Returns whether the block is parked.
    pub(crate) fn put(&mut self, memmap: &Memmap, pfn: Pfn, order: Order, key: DebtKey) -> bool {
        self.clock = self.clock.wrapping_add(order.frames());
        memmap.at(pfn).set_own_stamp(self.clock, order);
        let key = if self.floor.covers(key) { DebtKey::NONE } else { key };
        self.coalesce(memmap, pfn, order, (key, self.clock));
        key != DebtKey::NONE
    }

    /// Moves up to [`BLOCKS_PER_HOLD`] parked blocks whose debts are settled to the settled lists.
    ///
    /// Returns the number of their frames. It looks at the blocks that it moves, and at the oldest
    /// of each order.
    pub(crate) fn unpark(&mut self, memmap: &Memmap, floor: DebtFloor) -> u32 {
        self.floor = self.floor.max(floor);
        let (mut blocks, mut frames) = (0, 0);
        for order in (0..=Order::PUD.raw()).map(Order::new) {
            while blocks < plant!(UnparkedAtOnce; usize::MAX, BLOCKS_PER_HOLD)
                && let Some(pfn) = self.parked[order.index()].first()
                && let record = memmap.at(pfn)
                && self.floor.covers(record.debt())
            {
                self.parked[order.index()].remove(memmap, pfn);
                self.coalesce(memmap, pfn, order, (DebtKey::NONE, record.stamp()));
                blocks += 1;
                frames += order.frames();
            }
        }
        self.note_hold(blocks);
        frames
    }

    /// Notes that the present hold of the lock has parked or unparked `blocks` blocks.
    pub(crate) fn note_hold(&mut self, blocks: usize) {
        self.longest_hold = self.longest_hold.max(blocks);
    }

    /// The most blocks that one hold of the lock has parked or unparked.
    pub(crate) const fn longest_hold(&self) -> usize {
        self.longest_hold
    }

    /// What is known about the cache lines of a block that was just taken.
    ///
    /// They are cold if at least `cold_after` frames were freed after the block was.
    pub(crate) fn residency(&self, memmap: &Memmap, pfn: Pfn, cold_after: u32) -> Residency {
        let record = memmap.at(pfn);
        self.residency_of(memmap, pfn, record.kind().order(), (record.stamp(), cold_after))
    }

    fn residency_of(&self, memmap: &Memmap, pfn: Pfn, order: Order, (stamp, cold_after): (u32, u32)) -> Residency {
        let stamp = self.younger(memmap, pfn, order, stamp);
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
        let (mut pfn, mut order, mut stamp) = (pfn, order, stamp);
        while order < Order::PUD {
            let buddy = Pfn::new(pfn.raw() ^ order.frames());
            let wanted = FrameKind::block(FrameState::Free, order, self.zone);
            let Some(record) = memmap.get(buddy).filter(|record| record.kind() == wanted) else { break };
            if plant!(ParkedMerges; false, record.debt() != key) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FRAMES: u32 = 256;

    /// Free blocks of several sizes and ages, the same for the same `seed`.
    fn some_free(seed: u32) -> (Memmap, Buddy) {
        let memmap = Memmap::try_new(FrameRange::new(Pfn::new(0), Pfn::new(FRAMES))).expect("memory");
        let mut buddy = Buddy::new(ZoneId::new(0));
        buddy.add_range(&memmap, FrameRange::new(Pfn::new(0), Pfn::new(FRAMES)));
        let taken = core::iter::from_fn(|| buddy.take(&memmap, Order::ZERO, FreeKind::Settled));
        let (mut random, mut left) = (seed, taken.collect::<Vec<_>>());
        for (pfn, _) in &left {
            memmap.transition(*pfn, FrameState::Free, FrameState::Allocated);
        }
        for _ in 0..200 {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let (pfn, _) = left.swap_remove((random >> 16) as usize % left.len());
            buddy.put(&memmap, pfn, Order::ZERO, DebtKey::NONE);
        }
        (memmap, buddy)
    }

    /// The blocks of each order, and their stamps.
    fn lists(memmap: &Memmap, buddy: &Buddy) -> Vec<(u8, Pfn, u32)> {
        let mut found = Vec::new();
        for order in 0..=Order::PUD.raw() {
            let list = &buddy.settled[usize::from(order)];
            let mut next = list.first();
            while let Some(pfn) = next {
                found.push((order, pfn, memmap.at(pfn).stamp()));
                next = list.after(memmap, pfn);
            }
        }
        found
    }

    #[test]
    fn several_blocks_are_those_that_are_taken_one_by_one() {
        for (seed, order, most, cold_after) in
            (0..40).flat_map(|seed| [(seed, 0, 63, 20), (seed, 0, 1, 60), (seed, 1, 31, 90), (seed, 3, 7, 150)])
        {
            let order = Order::new(order);
            let ((map, mut one), (memmap, mut several)) = (some_free(seed), some_free(seed));
            let (mut by_one, mut at_once) = (Vec::new(), Vec::new());
            while (by_one.len() as u32) < most
                && let Some((pfn, key)) = one.take(&map, order, FreeKind::Settled)
            {
                by_one.push((pfn, key, map.at(pfn).kind(), one.residency(&map, pfn, cold_after)));
            }
            while (at_once.len() as u32) < most {
                let left = (most - at_once.len() as u32, cold_after);
                let take = |pfn, kind, residency| at_once.push((pfn, memmap.at(pfn).debt(), kind, residency));
                if several.take_several(&memmap, order, left, take) == 0 {
                    break;
                }
            }
            assert_eq!(at_once, by_one, "seed {seed}, {most} of {order}");
            assert_eq!(lists(&memmap, &several), lists(&map, &one), "seed {seed}, {most} of {order}");
        }
    }

    /// The first frame after the free block of 16 frames that begins at 0.
    const END: u32 = 16;
    /// Frames that are in use, and coalesce with none of the free block.
    const OTHERS: FrameRange = FrameRange::new(Pfn::new(2 * END), Pfn::new(4 * END));

    fn two_blocks() -> (Memmap, Buddy) {
        let memmap = Memmap::try_new(FrameRange::new(Pfn::new(0), OTHERS.end())).expect("memory");
        let mut buddy = Buddy::new(ZoneId::new(0));
        buddy.add_range(&memmap, FrameRange::new(Pfn::new(0), Pfn::new(END)));
        buddy.add_range(&memmap, OTHERS);
        let (others, _) = buddy.take(&memmap, Order::new(5), FreeKind::Settled).expect("a block of 32");
        memmap.transition(others, FrameState::Free, FrameState::Allocated);
        (memmap, buddy)
    }

    fn free_others(memmap: &Memmap, buddy: &mut Buddy, frames: u32) {
        for index in 0..frames {
            buddy.put(memmap, OTHERS.start().add(index), Order::ZERO, DebtKey::NONE);
        }
    }

    /// Takes everything in blocks of `order`; returns those below [`END`], and their residency.
    ///
    /// With `several`, it takes neighbours together.
    fn take_all(
        memmap: &Memmap,
        buddy: &mut Buddy,
        order: Order,
        cold_after: u32,
        several: bool,
    ) -> Vec<(u32, Residency)> {
        let mut all = Vec::new();
        if several {
            while buddy.take_several(memmap, order, (31, cold_after), |pfn, _, known| all.push((pfn.raw(), known))) > 0
            {
            }
        } else {
            while let Some((pfn, _)) = buddy.take(memmap, order, FreeKind::Settled) {
                all.push((pfn.raw(), buddy.residency(memmap, pfn, cold_after)));
            }
        }
        all.retain(|(pfn, _)| *pfn < END);
        all.sort_unstable_by_key(|(pfn, _)| *pfn);
        all
    }

    #[test]
    fn a_block_is_cold_once_enough_frames_were_freed_after_it() {
        for (order, several) in (0..=4).flat_map(|order| [(Order::new(order), false), (Order::new(order), true)]) {
            for (after, cold_after) in [(0, 1), (1, 1), (1, 2), (7, 7), (7, 8), (32, 32), (32, 33)] {
                let (memmap, mut buddy) = two_blocks();
                let (pfn, _) = buddy.take(&memmap, Order::new(4), FreeKind::Settled).expect("the block of 16");
                memmap.transition(pfn, FrameState::Free, FrameState::Allocated);
                buddy.put(&memmap, pfn, Order::new(4), DebtKey::NONE);
                free_others(&memmap, &mut buddy, after);
                let known = if after >= cold_after { Residency::Cold } else { Residency::Unknown };
                let expected: Vec<_> = (0..END).step_by(order.frames() as usize).map(|pfn| (pfn, known)).collect();
                let taken = take_all(&memmap, &mut buddy, order, cold_after, several);
                assert_eq!(taken, expected, "order {order}, {after} frames later, cold after {cold_after}");
            }
        }
    }

    #[test]
    fn a_block_that_was_never_used_is_as_cold_as_can_be() {
        for (after, several) in [(0, false), (0, true), (32, false), (32, true)] {
            for (cold_after, known) in [(NEVER + after, Residency::Cold), (NEVER + after + 1, Residency::Unknown)] {
                let (memmap, mut buddy) = two_blocks();
                free_others(&memmap, &mut buddy, after);
                let taken = take_all(&memmap, &mut buddy, Order::ZERO, cold_after, several);
                assert!(taken.iter().all(|(_, is)| *is == known), "{taken:?}, cold after {cold_after}");
            }
        }
    }

    /// A block of which half was just freed is young; one of which less was is old, but for that.
    #[test]
    fn a_small_part_that_was_freed_late_is_warm_and_the_rest_cold() {
        // The freed blocks, whose double is the second half of a larger one, or everything.
        let late = [(0, 3), (0, 6), (0, 11), (0, 14), (1, 4), (1, 6), (1, 14), (2, 8), (2, 12), (3, 0), (3, 8)];
        for ((freed, at), order, several) in
            late.into_iter().flat_map(|late| (0..=4).flat_map(move |order| [(late, order, false), (late, order, true)]))
        {
            let (memmap, mut buddy) = two_blocks();
            let (freed, order) = (Order::new(freed), Order::new(order));
            let mut blocks = Vec::new();
            while let Some((pfn, _)) = buddy.take(&memmap, freed, FreeKind::Settled) {
                memmap.transition(pfn, FrameState::Free, FrameState::Allocated);
                blocks.push(pfn);
            }
            blocks.retain(|pfn| *pfn != Pfn::new(at));
            blocks.into_iter().for_each(|pfn| assert!(!buddy.put(&memmap, pfn, freed, DebtKey::NONE)));
            free_others(&memmap, &mut buddy, 32);
            buddy.put(&memmap, Pfn::new(at), freed, DebtKey::NONE);
            let young = order.raw() <= freed.raw() + 1;
            let double = 2 * freed.frames();
            let known = |pfn: u32| {
                if young && pfn / double == at / double { Residency::Unknown } else { Residency::Cold }
            };
            let expected: Vec<_> = (0..END).step_by(order.frames() as usize).map(|pfn| (pfn, known(pfn))).collect();
            let taken = take_all(&memmap, &mut buddy, order, 20, several);
            assert_eq!(taken, expected, "order {order}, after {at} of order {freed} was freed, together: {several}");
        }
    }
}
