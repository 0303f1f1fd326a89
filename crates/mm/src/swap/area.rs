//! One device that is swapped to (`struct swap_info_struct`).

use super::device::Backing;
use super::table::SlotTable;
use crate::error::MmError;
use pagewright_sync::{Platform, SpinLock, rank};

/// A device and its slots.
pub(super) struct SwapArea<P: Platform> {
    pub(super) device: Backing<P>,
    pub(super) slots: SpinLock<SlotTable, rank::Swap, P::Locks>,
}

impl<P: Platform> SwapArea<P> {
    pub(super) fn try_new(device: Backing<P>, slots: u32) -> Result<Self, MmError> {
        let wanted = slots as usize * size_of::<u64>();
        let table = SlotTable::try_new(slots).ok_or(MmError::NoKernelMemory { wanted })?;
        Ok(Self { device, slots: SpinLock::new(table) })
    }
}
