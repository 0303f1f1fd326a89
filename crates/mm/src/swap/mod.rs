//! Swap: where anonymous memory goes when its frames are wanted.
//!
//! - [`SwapOps`] – a device with slots of a page; [`Backing`] – that or [`Zram`], pages compressed in the machine's own memory; `area` – one that is swapped to, with its [slots](table).
//! - `cache` – folios whose contents have a slot: put in before they are unmapped, and before they are read.
//! - `soft` – the entry that stands in a page table for a page in swap.
//!
//! ```text
//!   reclaim: folio ─ add_to_swap ─▶ cached ─ unmapped, flushed, written ─▶ evicted: the slot alone has it
//!   fault:   evicted ─ read ─▶ cached ─ mapped, entry released ─▶ no entry left: out of the cache, or kept clean
//! ```
//!
//! Locks: a folio's lock first, then a page table's, then `areas`, then one area's slots. Who holds a table's lock may try a folio's and not wait
//! for it.
//!
//! Not guaranteed: that a device has room. A page that finds none stays in memory.

mod area;
mod cache;
mod device;
mod soft;
mod table;
mod zram;

pub(crate) use cache::FromSwap;
pub use device::{Backing, SwapOps};
pub(crate) use soft::{Swapped, swapped};
pub use zram::{MmStat, Zram};

use crate::error::MmError;
use crate::mm::Mm;
use area::SwapArea;
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::SwapEntry;

/// The devices that are swapped to, by their number.
type Areas<P> = [Option<Arc<SwapArea<P>>>; SwapEntry::DEVICES];

/// All swap of a machine.
pub(crate) struct Swap<P: Platform> {
    areas: SpinLock<Areas<P>, rank::SwapAreas, P::Locks>,
}

impl<P: Platform> Swap<P> {
    pub(crate) const fn new() -> Self {
        Self { areas: SpinLock::new([const { None }; SwapEntry::DEVICES]) }
    }

    /// Device `number`, if it is swapped to.
    fn area(&self, number: u8) -> Option<Arc<SwapArea<P>>> {
        self.areas.lock()[usize::from(number)].clone()
    }

    /// The first device from `number` on.
    fn area_from(&self, number: u8) -> Option<(u8, Arc<SwapArea<P>>)> {
        let areas = self.areas.lock();
        let mut from = areas.iter().enumerate().skip(usize::from(number));
        from.find_map(|(number, area)| area.as_ref().map(|area| (number as u8, area.clone())))
    }
}

impl<P: Platform> Mm<P> {
    /// Swaps to a device with `slots` slots from now on (`swapon`). Returns its number.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`], or [`MmError::TooManySwapDevices`]; nothing has changed.
    pub fn swap_on(&self, device: Backing<P>, slots: u32) -> Result<u8, MmError> {
        if !self.permit() {
            return Err(MmError::NoKernelMemory { wanted: slots as usize * size_of::<u64>() });
        }
        let area = Arc::try_new(SwapArea::try_new(device, slots.min(SwapEntry::SLOTS))?)?;
        let mut areas = self.swap.areas.lock();
        let free = areas.iter().position(Option::is_none).ok_or(MmError::TooManySwapDevices)?;
        areas[free] = Some(area);
        Ok(free as u8)
    }

    /// Calls `visit` for each device that is swapped to.
    fn for_each_area(&self, mut visit: impl FnMut(u8, &SwapArea<P>)) {
        let mut next = self.swap.area_from(0);
        while let Some((number, area)) = next {
            visit(number, &area);
            next = self.swap.area_from(number + 1);
        }
    }

    /// Slots in all, and how many of them are free (`SwapTotal`, `SwapFree`).
    pub fn swap_slots(&self) -> (u64, u64) {
        let (mut total, mut free) = (0, 0);
        self.for_each_area(|_, area| {
            let slots = area.slots.lock();
            total += u64::from(slots.len());
            free += u64::from(slots.free());
        });
        (total, free)
    }

    /// Whether more than half of all swap is taken, so that slots are no longer kept for pages that are in memory (`vm_swap_full`).
    pub(crate) fn swap_is_filling(&self) -> bool {
        let (total, free) = self.swap_slots();
        free * 2 < total
    }
}
