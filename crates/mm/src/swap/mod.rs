//! Swap: where anonymous and shared memory goes when its frames are needed.
//!
//! - [`SwapOps`] – a device with page-sized slots; [`SwapBacking`] – such a device, or [`Zram`],
//!   which compresses pages in memory; `area` – a device in use, with its slots (`slot_table`).
//! - `cache` – the swap cache: folios whose contents have a slot. A folio enters it before it is
//!   unmapped (`add_to_swap`), and before it is read (`swap_in`).
//! - `swapoff` – bringing back everything that a device has.
//! - `swap_pte` – the page-table entry that stands for a swapped-out page.
//!
//! ```text
//!   reclaim: folio ─ add_to_swap ─▶ cached ─ unmapped, flushed, written ─▶ evicted: only the slot has it
//!   fault:   evicted ─ read ─▶ cached ─ mapped, swap PTE released ─▶ no swap PTE left: freed from the cache, or kept clean
//! ```
//!
//! Locks: a folio's lock first, then a page table's, then `areas`, then the slots of one area. With
//! a table locked, a folio's lock may only be tried.
//!
//! Not guaranteed: free slots. A page that gets no slot stays in memory.

mod add_to_swap;
mod area;
mod cache;
mod device;
mod slot_table;
mod swap_in;
mod swap_pte;
mod swapoff;
mod zram;

pub(crate) use cache::SwapOwner;
pub use device::{SwapBacking, SwapOps};
pub(crate) use swap_in::SwapInFolio;
pub(crate) use swap_pte::SwapPte;
pub use zram::{MmStat, Zram};

use crate::error::MmError;
use crate::mm::Mm;
use area::{SwapArea, SwapTotals};
use core::cmp::Reverse;
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::SwapEntry;

/// Pages allocated on one device before the next device of the same priority has its turn.
const PAGES_PER_TURN: u32 = 32;
/// The priority of the first device that is given none; each further one gets one less.
const FIRST_AUTO_PRIORITY: i16 = -2;

/// The swap areas in use.
struct SwapAreas<P: Platform> {
    /// By device number.
    devices: [Option<Arc<SwapArea<P>>>; SwapEntry::DEVICES],
    /// The priority of the next device that is given none.
    next_priority: i16,
    /// The device that comes first among those of equal priority, and the pages it got this turn.
    turn: (u8, u32),
}

impl<P: Platform> SwapAreas<P> {
    fn iter(&self) -> impl Iterator<Item = (u8, &Arc<SwapArea<P>>)> {
        let all = (0..).zip(&self.devices);
        all.filter_map(|(number, area)| area.as_ref().map(|area| (number, area)))
    }
}

/// A swap device in use, as `/proc/swaps` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapDevice {
    /// The device number in its swap entries.
    pub number: u8,
    /// `zram` or `swap`.
    pub kind: &'static str,
    /// The number of slots.
    pub slots: u32,
    /// The number of slots in use.
    pub used: u32,
    /// The priority; slots are allocated on the device of highest priority that has one.
    pub priority: i16,
}

/// A device's position in the allocation order: by falling priority, then in turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AllocOrder(Reverse<i16>, u8);

/// The swap of a machine (`mm/swap_state.c`, `mm/swapfile.c`).
pub(crate) struct SwapState<P: Platform> {
    areas: SpinLock<SwapAreas<P>, rank::SwapAreasRank, P::Locks>,
    totals: SwapTotals,
}

impl<P: Platform> SwapState<P> {
    pub(crate) const fn new() -> Self {
        let devices = [const { None }; SwapEntry::DEVICES];
        let areas = SwapAreas { devices, next_priority: FIRST_AUTO_PRIORITY, turn: (0, 0) };
        Self { areas: SpinLock::new(areas), totals: SwapTotals::new() }
    }

    /// Device `number`, if it is in use.
    fn area(&self, number: u8) -> Option<Arc<SwapArea<P>>> {
        self.areas.lock().devices.get(usize::from(number)).cloned().flatten()
    }

    /// The first device in use at or after `number`.
    fn area_from(&self, number: u8) -> Option<(u8, Arc<SwapArea<P>>)> {
        let areas = self.areas.lock();
        areas.iter().find(|(at, _)| *at >= number).map(|(number, area)| (number, area.clone()))
    }

    /// The next device to allocate from, after the one at position `after`.
    fn next_device(&self, after: Option<AllocOrder>) -> Option<(AllocOrder, u8, Arc<SwapArea<P>>)> {
        let areas = self.areas.lock();
        let turn = areas.turn.0;
        let place = |number: u8, area: &SwapArea<P>| {
            AllocOrder(Reverse(area.priority()), number.wrapping_sub(turn) % SwapEntry::DEVICES as u8)
        };
        let all = areas.iter().map(|(number, area)| (place(number, area), number, area));
        let next = all.filter(|(place, ..)| after.is_none_or(|after| *place > after)).min_by_key(|(place, ..)| *place);
        next.map(|(place, number, area)| (place, number, area.clone()))
    }

    /// Counts a slot allocated on a device, and passes the turn on after [`PAGES_PER_TURN`].
    fn count_allocation(&self, number: u8) {
        let mut areas = self.areas.lock();
        let pages = if areas.turn.0 == number { areas.turn.1 + 1 } else { 1 };
        areas.turn =
            if pages < PAGES_PER_TURN { (number, pages) } else { ((number + 1) % SwapEntry::DEVICES as u8, 0) };
    }
}

impl<P: Platform> Mm<P> {
    /// Starts swapping to a device with `slots` slots, and returns its number (`swapon(2)`).
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`], [`MmError::TooManySwapDevices`], or
    /// [`MmError::SwapDeviceInUse`] if any part of a [`Zram`] is in use already; nothing has
    /// changed.
    pub fn swap_on(&self, device: SwapBacking<P>, slots: u32) -> Result<u8, MmError> {
        self.swap_on_with(device, slots, None)
    }

    /// As [`Mm::swap_on`], with a priority (`SWAP_FLAG_PREFER`).
    ///
    /// Slots are allocated on the device of highest priority that has one; devices of equal
    /// priority take turns. A device without a priority comes after all devices in use.
    ///
    /// # Errors
    /// As [`Mm::swap_on`], and [`MmError::BadFlags`] for a negative priority.
    pub fn swap_on_with(&self, device: SwapBacking<P>, slots: u32, priority: Option<i16>) -> Result<u8, MmError> {
        if let Some(priority @ ..0) = priority {
            return Err(MmError::BadFlags { flags: i32::from(priority) as u32 });
        }
        if !self.permit() {
            return Err(MmError::NoKernelMemory { wanted: slots as usize * size_of::<u64>() });
        }
        let area = Arc::try_new(SwapArea::try_new(device, slots.min(SwapEntry::SLOTS))?)?;
        let mut areas = self.swap.areas.lock();
        let same = areas.iter().find(|(_, there)| there.device.is_same_device(&area.device)).map(|(number, _)| number);
        if let Some(device) = same {
            return Err(MmError::SwapDeviceInUse { device });
        }
        let free = areas.devices.iter().position(Option::is_none).ok_or(MmError::TooManySwapDevices)?;
        area.set_priority(priority.unwrap_or(areas.next_priority));
        if priority.is_none() {
            areas.next_priority -= 1;
        }
        self.swap.totals.adjust((0, 0), area.slots().room());
        areas.devices[free] = Some(area);
        Ok(free as u8)
    }

    /// Calls `visit` for each device in use, without locks.
    fn for_each_area(&self, mut visit: impl FnMut(u8, &SwapArea<P>)) {
        let mut next = self.swap.area_from(0);
        while let Some((number, area)) = next {
            visit(number, &area);
            next = self.swap.area_from(number + 1);
        }
    }

    /// The number of slots of all devices, and how many are free (`SwapTotal`, `SwapFree`).
    pub fn swap_slots(&self) -> (u64, u64) {
        self.swap.totals.get()
    }

    /// Calls `visit` with each device in use, by number.
    pub fn for_each_swap(&self, mut visit: impl FnMut(SwapDevice)) {
        self.for_each_area(|number, area| {
            let (slots, used) = {
                let slots = area.slots();
                (slots.len(), slots.len() - slots.free())
            };
            let kind = match area.device {
                SwapBacking::Device(_) => "swap",
                SwapBacking::Zram(_) => "zram",
            };
            visit(SwapDevice { number, kind, slots, used, priority: area.priority() });
        });
    }

    /// Pages in the swap cache (`SwapCached`).
    pub(crate) fn swap_cached(&self) -> u64 {
        let mut cached = 0;
        self.for_each_area(|_, area| cached += u64::from(area.slots().cached()));
        cached
    }

    /// The number of entries that name a slot (`swp_swapcount`).
    pub(crate) fn swap_count(&self, entry: SwapEntry) -> u32 {
        self.swap.area(entry.device()).map_or(0, |area| area.slots().get(entry.slot()).1)
    }

    /// Whether more than half of all slots are in use.
    ///
    /// Linux: `vm_swap_full`. Then a page that is back in memory does not keep its slot.
    pub(crate) fn vm_swap_full(&self) -> bool {
        let (total, free) = self.swap_slots();
        free * 2 < total
    }
}
