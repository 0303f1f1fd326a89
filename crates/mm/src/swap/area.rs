//! One device that is swapped to (`struct swap_info_struct`).

use super::device::Backing;
use super::table::SlotTable;
use crate::error::MmError;
use core::sync::atomic::{AtomicI16, Ordering};
use pagewright_sync::{Platform, SpinLock, rank};

/// A device and its slots.
pub(super) struct SwapArea<P: Platform> {
    pub(super) device: Backing<P>,
    priority: AtomicI16,
    pub(super) slots: SpinLock<SlotTable, rank::Swap, P::Locks>,
}

impl<P: Platform> SwapArea<P> {
    pub(super) fn try_new(device: Backing<P>, slots: u32, priority: Option<i16>) -> Result<Self, MmError> {
        let wanted = slots as usize * size_of::<u64>();
        let table = SlotTable::try_new(slots).ok_or(MmError::NoKernelMemory { wanted })?;
        Ok(Self { device, priority: AtomicI16::new(priority.unwrap_or(0)), slots: SpinLock::new(table) })
    }

    /// Of two devices that have room, the one with more is swapped to. Changes with all areas locked.
    pub(super) fn priority(&self) -> i16 {
        self.priority.load(Ordering::Relaxed)
    }

    pub(super) fn set_priority(&self, priority: i16) {
        self.priority.store(priority, Ordering::Relaxed);
    }
}
