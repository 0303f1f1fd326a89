//! Swap: where anonymous memory goes when its frames are wanted.
//!
//! - [`SwapOps`] – a device with slots of a page; [`SwapBacking`] – that or [`Zram`], pages compressed
//!   in the machine's own memory; `area` – one that is swapped to, with its [slots](table).
//! - `cache` – folios whose contents have a slot: put in before they are unmapped, and before they
//!   are read.
//! - `off` – everything back out of a device.
//! - `soft` – the entry that stands in a page table for a page in swap.
//!
//! ```text
//!   reclaim: folio ─ add_to_swap ─▶ cached ─ unmapped, flushed, written ─▶ evicted: the slot alone has it
//!   fault:   evicted ─ read ─▶ cached ─ mapped, entry released ─▶ no entry left: out of the cache, or kept clean
//! ```
//!
//! Locks: a folio's lock first, then a page table's, then `areas`, then one area's slots. Who holds
//! a table's lock may try a folio's and not wait for it.
//!
//! Not guaranteed: that a device has room. A page that finds none stays in memory.

mod area;
mod cache;
mod device;
mod off;
mod soft;
mod table;
mod zram;

pub(crate) use cache::{FromSwap, NamedBy};
pub use device::{SwapBacking, SwapOps};
pub(crate) use soft::{Swapped, swapped};
pub use zram::{MmStat, Zram};

use crate::error::MmError;
use crate::mm::Mm;
use area::{SwapArea, Totals};
use core::cmp::Reverse;
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::SwapEntry;

/// Pages that go to one device before the next of the same priority has its turn.
const TURN: u32 = 32;
/// What the first device without a priority gets, and each further one less than the one before.
const FIRST_PRIORITY: i16 = -2;

/// The devices that are swapped to.
struct Areas<P: Platform> {
    /// By their number.
    devices: [Option<Arc<SwapArea<P>>>; SwapEntry::DEVICES],
    /// What the next without a priority gets.
    next_priority: i16,
    /// Which comes first among those of one priority, and how many pages it has had.
    turn: (u8, u32),
}

impl<P: Platform> Areas<P> {
    fn iter(&self) -> impl Iterator<Item = (u8, &Arc<SwapArea<P>>)> {
        let all = (0..).zip(&self.devices);
        all.filter_map(|(number, area)| area.as_ref().map(|area| (number, area)))
    }
}

/// What is known of a device that is swapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapDevice {
    /// Its number: that of its slots' entries.
    pub number: u8,
    /// What it is: `zram` or `swap`.
    pub kind: &'static str,
    /// Its slots.
    pub slots: u32,
    /// Those of them that somebody has.
    pub used: u32,
    /// Of two that have room the one with more is swapped to.
    pub priority: i16,
}

/// A device's place in the order in which they are asked for a slot: by priority, then in turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Reverse<i16>, u8);

/// All swap of a machine.
pub(crate) struct Swap<P: Platform> {
    areas: SpinLock<Areas<P>, rank::SwapAreasRank, P::Locks>,
    totals: Totals,
}

impl<P: Platform> Swap<P> {
    pub(crate) const fn new() -> Self {
        let devices = [const { None }; SwapEntry::DEVICES];
        let areas = Areas { devices, next_priority: FIRST_PRIORITY, turn: (0, 0) };
        Self { areas: SpinLock::new(areas), totals: Totals::new() }
    }

    /// Device `number`, if it is swapped to.
    fn area(&self, number: u8) -> Option<Arc<SwapArea<P>>> {
        self.areas.lock().devices.get(usize::from(number)).cloned().flatten()
    }

    /// The first device from `number` on.
    fn area_from(&self, number: u8) -> Option<(u8, Arc<SwapArea<P>>)> {
        let areas = self.areas.lock();
        areas.iter().find(|(at, _)| *at >= number).map(|(number, area)| (number, area.clone()))
    }

    /// The device to ask for a slot after the one at `after`.
    fn next_in_turn(&self, after: Option<Place>) -> Option<(Place, u8, Arc<SwapArea<P>>)> {
        let areas = self.areas.lock();
        let turn = areas.turn.0;
        let place = |number: u8, area: &SwapArea<P>| {
            Place(Reverse(area.priority()), number.wrapping_sub(turn) % SwapEntry::DEVICES as u8)
        };
        let all = areas.iter().map(|(number, area)| (place(number, area), number, area));
        let next = all.filter(|(place, ..)| after.is_none_or(|after| *place > after)).min_by_key(|(place, ..)| *place);
        next.map(|(place, number, area)| (place, number, area.clone()))
    }

    /// A page goes to a device.
    fn take_turn(&self, number: u8) {
        let mut areas = self.areas.lock();
        let pages = if areas.turn.0 == number { areas.turn.1 + 1 } else { 1 };
        areas.turn = if pages < TURN { (number, pages) } else { ((number + 1) % SwapEntry::DEVICES as u8, 0) };
    }
}

impl<P: Platform> Mm<P> {
    /// Swaps to a device with `slots` slots from now on (`swapon`).
    ///
    /// Returns its number.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`], [`MmError::TooManySwapDevices`], or
    /// [`MmError::SwapDeviceInUse`] for a [`Zram`], of which all parts are one device; nothing has
    /// changed.
    pub fn swap_on(&self, device: SwapBacking<P>, slots: u32) -> Result<u8, MmError> {
        self.swap_on_with(device, slots, None)
    }

    /// The same with a priority (`SWAP_FLAG_PREFER`): the highest that has room is swapped to,
    /// those of one priority in turn. Without one a device comes after all that there are.
    ///
    /// # Errors
    /// As of [`Mm::swap_on`], and [`MmError::BadFlags`] for a priority below 0.
    pub fn swap_on_with(&self, device: SwapBacking<P>, slots: u32, priority: Option<i16>) -> Result<u8, MmError> {
        if let Some(priority @ ..0) = priority {
            return Err(MmError::BadFlags { flags: i32::from(priority) as u32 });
        }
        if !self.permit() {
            return Err(MmError::NoKernelMemory { wanted: slots as usize * size_of::<u64>() });
        }
        let area = Arc::try_new(SwapArea::try_new(device, slots.min(SwapEntry::SLOTS), priority)?)?;
        let mut areas = self.swap.areas.lock();
        let same = areas.iter().find(|(_, there)| there.device.is_of(&area.device)).map(|(number, _)| number);
        if let Some(device) = same {
            return Err(MmError::SwapDeviceInUse { device });
        }
        let free = areas.devices.iter().position(Option::is_none).ok_or(MmError::TooManySwapDevices)?;
        if priority.is_none() {
            area.set_priority(areas.next_priority);
            areas.next_priority -= 1;
        }
        self.swap.totals.changed((0, 0), area.look().room());
        areas.devices[free] = Some(area);
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
        self.swap.totals.get()
    }

    /// Calls `visit` with each device that is swapped to, by number.
    pub fn for_each_swap(&self, mut visit: impl FnMut(SwapDevice)) {
        self.for_each_area(|number, area| {
            let (slots, used) = {
                let slots = area.look();
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
        self.for_each_area(|_, area| cached += u64::from(area.look().cached()));
        cached
    }

    /// Entries that name a slot (`swp_swapcount`).
    pub(crate) fn swap_count(&self, entry: SwapEntry) -> u32 {
        self.swap.area(entry.device()).map_or(0, |area| area.look().get(entry.slot()).1)
    }

    /// Whether more than half of all swap is taken, so that slots are no longer kept for pages that
    /// are in memory (`vm_swap_full`).
    pub(crate) fn swap_is_filling(&self) -> bool {
        let (total, free) = self.swap_slots();
        free * 2 < total
    }
}
