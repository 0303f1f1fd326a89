//! One device that is swapped to (`struct swap_info_struct`), and how many slots all of them have.
//!
//! Every fault and every scan asks for those, so they are counted where they change
//! (`nr_swap_pages`): who changes a device's slots has them by [`SwapArea::change`], and what
//! became of their number is told when he lets go.

use super::device::SwapBacking;
use super::table::SlotTable;
use crate::error::MmError;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicI16, AtomicU64, Ordering};
use pagewright_sync::{Platform, SpinGuard, SpinLock, rank};

/// Slots of all devices, in all and free.
pub(super) struct Totals {
    slots: AtomicU64,
    free: AtomicU64,
}

impl Totals {
    pub(super) const fn new() -> Self {
        Self { slots: AtomicU64::new(0), free: AtomicU64::new(0) }
    }

    /// Both, each as it was at some moment: nothing is decided by them that must be right.
    pub(super) fn get(&self) -> (u64, u64) {
        let slots = self.slots.load(Ordering::Relaxed);
        (slots, self.free.load(Ordering::Relaxed).min(slots))
    }

    /// A device's room was one and is another; differences below 0 wrap, and so do the sums.
    pub(super) fn changed(&self, before: (u64, u64), after: (u64, u64)) {
        for (total, before, after) in [(&self.slots, before.0, after.0), (&self.free, before.1, after.1)] {
            if before != after {
                total.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        }
    }
}

/// A device and its slots.
pub(super) struct SwapArea<P: Platform> {
    pub(super) device: SwapBacking<P>,
    priority: AtomicI16,
    slots: SpinLock<SlotTable, rank::SwapRank, P::Locks>,
}

type Locked<'a, P> = SpinGuard<'a, SlotTable, rank::SwapRank, <P as Platform>::Locks>;

/// A device's slots, locked for who changes them.
pub(super) struct Change<'a, P: Platform> {
    slots: Locked<'a, P>,
    before: (u64, u64),
    totals: &'a Totals,
}

impl<P: Platform> Deref for Change<'_, P> {
    type Target = SlotTable;

    fn deref(&self) -> &SlotTable {
        &self.slots
    }
}

impl<P: Platform> DerefMut for Change<'_, P> {
    fn deref_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }
}

impl<P: Platform> Drop for Change<'_, P> {
    fn drop(&mut self) {
        self.totals.changed(self.before, self.slots.room());
    }
}

impl<P: Platform> SwapArea<P> {
    pub(super) fn try_new(device: SwapBacking<P>, slots: u32, priority: Option<i16>) -> Result<Self, MmError> {
        let wanted = slots as usize * size_of::<u64>();
        let table = SlotTable::try_new(slots).ok_or(MmError::NoKernelMemory { wanted })?;
        Ok(Self { device, priority: AtomicI16::new(priority.unwrap_or(0)), slots: SpinLock::new(table) })
    }

    /// Its slots, locked, to look at.
    pub(super) fn look(&self) -> impl Deref<Target = SlotTable> {
        self.slots.lock()
    }

    /// The same, to change them; `totals` are those of all swap.
    pub(super) fn change<'a>(&'a self, totals: &'a Totals) -> Change<'a, P> {
        let slots = self.slots.lock();
        Change { before: slots.room(), slots, totals }
    }

    /// Of two devices that have room, the one with more is swapped to.
    ///
    /// Changes with all areas locked.
    pub(super) fn priority(&self) -> i16 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(super) fn set_priority(&self, priority: i16) {
        self.priority.store(priority, Ordering::Relaxed);
    }
}
