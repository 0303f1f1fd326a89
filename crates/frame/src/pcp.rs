//! Per-CPU lists of free blocks: the fast path of the allocator (Linux's `struct per_cpu_pages`).
//!
//! Key types: `Pcp`, the lists of one CPU in one zone; `PcpLimits`, how full they may get.
//!
//! Blocks of orders 0 to 3 and of order 9 pass through these lists (Linux's
//! `PAGE_ALLOC_COSTLY_ORDER` and `pageblock_order`). The zone refills an empty list and drains a
//! full one, a batch at a time. It takes its own lock inside the lock of the list.
//!
//! The lists hold settled blocks only. A block that is freed under a debt goes to the buddy lists,
//! so no settled block waits behind it.
//!
//! Not guaranteed: coalescing. A block on these lists is free, but it is no buddy of another block.
//! `Frames::drain` moves all of them to the buddy lists.

use crate::clear::Residency;
use crate::list::FrameList;
use crate::memmap::Memmap;
use crate::record::{FrameKind, FrameState};
use pagewright_types::{Order, Pfn};

/// The lists of a CPU: orders 0 to 3, and 9.
const LISTS: usize = 5;

/// The list that holds blocks of `order`; `None` if there is none (Linux's `order_to_pindex`).
#[inline]
fn list_of(order: Order) -> Option<usize> {
    match order.raw() {
        small @ 0..=3 => Some(small as usize),
        _ if order == Order::PMD => Some(LISTS - 1),
        _ => None,
    }
}

/// Whether blocks of `order` pass through per-CPU lists.
#[inline]
pub(crate) fn keeps(order: Order) -> bool {
    list_of(order).is_some()
}

/// The orders that pass through per-CPU lists.
pub(crate) fn orders() -> impl Iterator<Item = Order> {
    (0..Order::COUNT as u8).map(Order::new).filter(|order| keeps(*order))
}

/// The limits of the per-CPU lists of a zone, in frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PcpLimits {
    batch: u32,
    high: u32,
}

impl PcpLimits {
    /// The limits for a zone of `managed` frames.
    ///
    /// The batch is that of Linux's `zone_batchsize`: a 4096th of the zone, at most a quarter of
    /// 1 MiB, one less than a power of two so that batches do not walk the cache in step. A list
    /// holds at most six batches, as before Linux 5.14 derived this limit from the watermarks.
    pub(crate) fn of_zone(managed: u32) -> Self {
        const MEBIBYTE: u32 = (1 << 20) >> pagewright_types::PAGE_SHIFT;
        let quarter = ((managed >> 10).min(MEBIBYTE) / 4).max(1);
        let batch = ((1 << (quarter + quarter / 2).ilog2()) - 1).max(1);
        Self { batch, high: 6 * batch }
    }

    /// The number of blocks to move at once under the zone's lock.
    pub(crate) const fn batch(self, order: Order) -> u32 {
        let blocks = self.batch >> order.raw();
        if blocks == 0 { 1 } else { blocks }
    }

    /// The number of blocks above which a list is drained by a batch.
    const fn high(self, order: Order) -> u32 {
        let blocks = self.high >> order.raw();
        if blocks < 2 { 2 } else { blocks }
    }
}

/// The lists of one CPU in one zone.
pub(crate) struct Pcp([FrameList; LISTS]);

impl Pcp {
    pub(crate) const EMPTY: Self = Self([FrameList::EMPTY; LISTS]);

    #[inline]
    fn list(&mut self, order: Order) -> &mut FrameList {
        let Some(list) = list_of(order) else { unreachable!("order {order} does not pass through per-CPU lists") };
        &mut self.0[list]
    }

    /// The number of frames on all lists.
    pub(crate) fn frames(&self) -> u32 {
        orders().zip(&self.0).map(|(order, list)| list.len() << order.raw()).sum()
    }

    /// Takes a block from the front of the list of its order.
    ///
    /// The record keeps the state `Pcp` until the caller changes it.
    #[inline]
    pub(crate) fn take(&mut self, memmap: &Memmap, order: Order) -> Option<Pfn> {
        let list = self.list(order);
        let pfn = list.first()?;
        list.remove(memmap, pfn);
        Some(pfn)
    }

    /// Puts a settled block on the list of its order.
    ///
    /// Returns whether the list is now too full.
    #[inline]
    pub(crate) fn put(
        &mut self,
        memmap: &Memmap,
        pfn: Pfn,
        kind: FrameKind,
        residency: Residency,
        limits: PcpLimits,
    ) -> bool {
        let record = memmap.at(pfn);
        record.set_residency(residency);
        record.set_kind(kind.to(FrameState::Pcp));
        let order = kind.order();
        let list = self.list(order);
        list.push_front(memmap, pfn);
        list.len() > limits.high(order)
    }

    /// Takes the block at the back of a list, which is the oldest.
    pub(crate) fn take_oldest(&mut self, memmap: &Memmap, order: Order) -> Option<Pfn> {
        let list = self.list(order);
        let pfn = list.last()?;
        list.remove(memmap, pfn);
        Some(pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batches of Linux's `zone_batchsize`, by the megabytes of the zone.
    #[test]
    fn limits_are_those_of_linux_at_every_size() {
        let batches = [(0, 1), (15, 1), (16, 1), (47, 1), (48, 3), (95, 3), (96, 7), (4 << 10, 63), (1 << 20, 63)];
        for (mebibytes, batch) in batches {
            let limits = PcpLimits::of_zone(mebibytes << 8);
            assert_eq!((limits.batch(Order::ZERO), limits.high(Order::ZERO)), (batch, 6 * batch), "{mebibytes} MiB");
        }
    }

    #[test]
    fn a_list_of_blocks_holds_the_frames_of_its_limits_and_at_least_two_blocks() {
        let limits = PcpLimits { batch: 63, high: 378 };
        for (order, batch, high) in
            [(0, 63, 378), (1, 31, 189), (3, 7, 47), (5, 1, 11), (6, 1, 5), (7, 1, 2), (9, 1, 2)]
        {
            let order = Order::new(order);
            assert_eq!((limits.batch(order), limits.high(order)), (batch, high), "order {order}");
        }
    }
}
