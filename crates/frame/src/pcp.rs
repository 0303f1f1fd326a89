//! One CPU's lists of free blocks of a zone: the hot path of the allocator (Linux's
//! `struct per_cpu_pages`).
//!
//! Key types: `Pcp`, the lists; `PcpLimits`, how full they may get.
//!
//! Blocks of orders 0 to 3 and of order 9 pass through them (Linux's `PAGE_ALLOC_COSTLY_ORDER` and
//! `pageblock_order`). An empty list is refilled, and a full one drained, by a batch under the
//! zone's lock, which is taken inside this list's.
//!
//! Not guaranteed: coalescing. A block on these lists is free but no buddy of anything;
//! `Frames::drain` returns them all.

use crate::buddy::queue;
use crate::clear::Residency;
use crate::list::FrameList;
use crate::memmap::Memmap;
use crate::record::{FrameKind, FrameState};
use pagewright_types::{DebtKey, Order, Pfn};

/// Lists of a CPU: orders 0 to 3, and 9.
const LISTS: usize = 5;

/// Which list keeps blocks of `order`, if any does (Linux's `order_to_pindex`).
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

/// How full a zone's per-CPU lists get, in frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PcpLimits {
    batch: u32,
    high: u32,
}

impl PcpLimits {
    /// As Linux's `zone_batchsize`: a 4096th of the zone, at most a quarter of 1 MiB, one less than
    /// a power of two so that batches do not walk the cache in step; and six batches at most on a
    /// list, as before Linux 5.14 made this depend on the watermarks.
    pub(crate) fn of_zone(managed: u32) -> Self {
        const MEBIBYTE: u32 = (1 << 20) >> pagewright_types::PAGE_SHIFT;
        let quarter = ((managed >> 10).min(MEBIBYTE) / 4).max(1);
        let batch = ((1 << (quarter + quarter / 2).ilog2()) - 1).max(1);
        Self { batch, high: 6 * batch }
    }

    /// Blocks moved at once under the zone's lock.
    pub(crate) const fn batch(self, order: Order) -> u32 {
        let blocks = self.batch >> order.raw();
        if blocks == 0 { 1 } else { blocks }
    }

    /// Blocks above which a list is drained by a batch.
    const fn high(self, order: Order) -> u32 {
        let blocks = self.high >> order.raw();
        if blocks < 2 { 2 } else { blocks }
    }
}

/// One CPU's lists of one zone.
pub(crate) struct Pcp([FrameList; LISTS]);

impl Pcp {
    pub(crate) const EMPTY: Self = Self([FrameList::EMPTY; LISTS]);

    #[inline]
    fn list(&mut self, order: Order) -> &mut FrameList {
        let Some(list) = list_of(order) else { unreachable!("order {order} does not pass through per-CPU lists") };
        &mut self.0[list]
    }

    /// Frames on all lists.
    pub(crate) fn frames(&self) -> u32 {
        orders().zip(&self.0).map(|(order, list)| list.len() << order.raw()).sum()
    }

    /// Takes a block; with `settled_only`, one that owes nothing.
    ///
    /// The caller says next what it is.
    #[inline]
    pub(crate) fn take(&mut self, memmap: &Memmap, order: Order, settled_only: bool) -> Option<(Pfn, DebtKey)> {
        let list = self.list(order);
        let pfn = list.first()?;
        // INV-FRAME-QUEUE: if the first block is parked, all are.
        let key = memmap.at(pfn).debt();
        if settled_only && key != DebtKey::NONE {
            return None;
        }
        list.remove(memmap, pfn);
        Some((pfn, key))
    }

    /// Adds a block that its caller owns.
    ///
    /// Returns whether the list is now too full.
    #[inline]
    pub(crate) fn put(
        &mut self,
        memmap: &Memmap,
        pfn: Pfn,
        kind: FrameKind,
        (key, residency): (DebtKey, Residency),
        limits: PcpLimits,
    ) -> bool {
        let record = memmap.at(pfn);
        record.set_debt(key);
        record.set_residency(residency);
        record.set_kind(kind.to(FrameState::Pcp));
        let order = kind.order();
        let list = self.list(order);
        queue(list, memmap, pfn, key);
        list.len() > limits.high(order)
    }

    /// Takes the block that has been here longest, or is parked.
    pub(crate) fn take_oldest(&mut self, memmap: &Memmap, order: Order) -> Option<(Pfn, DebtKey)> {
        let list = self.list(order);
        let pfn = list.last()?;
        let key = memmap.at(pfn).debt();
        list.remove(memmap, pfn);
        Some((pfn, key))
    }
}
