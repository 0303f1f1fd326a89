//! A swap area: one swap device in use (`struct swap_info_struct`), and the totals of all areas.
//!
//! Every fault and every scan reads the totals, so they are kept up to date (`nr_swap_pages`): a
//! caller changes a device's slots through [`SwapArea::slots_mut`], whose guard adjusts the totals
//! when it is dropped.

use super::device::SwapBacking;
use super::slot_table::SlotTable;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicI16, AtomicU64, Ordering};
use pagewright_sync::{AllocError, Platform, SpinGuard, SpinLock, rank};

/// The number of slots of all devices, and of free slots.
pub(super) struct SwapTotals {
    slots: AtomicU64,
    free: AtomicU64,
}

impl SwapTotals {
    pub(super) const fn new() -> Self {
        Self { slots: AtomicU64::new(0), free: AtomicU64::new(0) }
    }

    /// Both numbers, read separately: they may be inconsistent and are only used as estimates.
    pub(super) fn get(&self) -> (u64, u64) {
        let slots = self.slots.load(Ordering::Relaxed);
        (slots, self.free.load(Ordering::Relaxed).min(slots))
    }

    /// Adds the difference between two states of a device; negative differences wrap.
    pub(super) fn adjust(&self, before: (u64, u64), after: (u64, u64)) {
        for (total, before, after) in [(&self.slots, before.0, after.0), (&self.free, before.1, after.1)] {
            if before != after {
                total.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        }
    }
}

/// A device in use, with its slots.
pub(super) struct SwapArea<P: Platform> {
    pub(super) device: SwapBacking<P>,
    priority: AtomicI16,
    slots: SpinLock<SlotTable, rank::SwapRank, P::Locks>,
}

type Locked<'a, P> = SpinGuard<'a, SlotTable, rank::SwapRank, <P as Platform>::Locks>;

/// A device's locked slots; dropping the guard adjusts the totals.
pub(super) struct SlotTableGuard<'a, P: Platform> {
    slots: Locked<'a, P>,
    before: (u64, u64),
    totals: &'a SwapTotals,
}

impl<P: Platform> Deref for SlotTableGuard<'_, P> {
    type Target = SlotTable;

    fn deref(&self) -> &SlotTable {
        &self.slots
    }
}

impl<P: Platform> DerefMut for SlotTableGuard<'_, P> {
    fn deref_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }
}

impl<P: Platform> Drop for SlotTableGuard<'_, P> {
    fn drop(&mut self) {
        self.totals.adjust(self.before, self.slots.room());
    }
}

impl<P: Platform> SwapArea<P> {
    /// An area whose priority is [set](Self::set_priority) before others see it.
    pub(super) fn try_new(device: SwapBacking<P>, slots: u32) -> Result<Self, AllocError> {
        Ok(Self { device, priority: AtomicI16::default(), slots: SpinLock::new(SlotTable::try_new(slots)?) })
    }

    /// Locks the slots for reading.
    pub(super) fn slots(&self) -> impl Deref<Target = SlotTable> {
        self.slots.lock()
    }

    /// Locks the slots for changes; `totals` are those of all devices.
    pub(super) fn slots_mut<'a>(&'a self, totals: &'a SwapTotals) -> SlotTableGuard<'a, P> {
        let slots = self.slots.lock();
        SlotTableGuard { before: slots.room(), slots, totals }
    }

    /// The priority; it changes only with all areas locked.
    pub(super) fn priority(&self) -> i16 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(super) fn set_priority(&self, priority: i16) {
        self.priority.store(priority, Ordering::Relaxed);
    }
}
