//! `swapoff(2)`: everything on a device comes back to memory (`try_to_unuse`).
//!
//! Slot allocation on the device stops. Then every place that can hold one of its swap entries is
//! searched, page tables and caches of shared memory, and each page found is swapped in. Folios
//! that only the swap cache holds are removed from it. Concurrent operations continue: a fork may
//! copy a swap entry to a table that was searched already, and a page-out that had allocated its
//! slot may store the entry in a table. So the search is repeated until no slot is in use.
//!
//! Neighbours: `fault` and `file` swap pages in as for an access.
//!
//! Not guaranteed: an end while a folio of the device stays locked. No holder keeps one locked for
//! ever.

use super::SwapPte;
use super::area::SwapArea;
use super::slot_table::SlotState;
use crate::error::{FaultError, MmError};
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::space::Space;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::EntryView;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Stops swapping to device `number`, and swaps in everything on it (`swapoff(2)`).
    ///
    /// # Errors
    /// [`MmError::NoSuchSwapDevice`]; [`MmError::CommitRefused`] if the commit limit without the
    /// device is below what is committed; out of memory; or [`MmError::Device`] if a page cannot be
    /// read. The device then stays in use, and pages that were swapped in stay in memory.
    pub fn swap_off(&self, number: u8) -> Result<(), MmError> {
        let missing = MmError::NoSuchSwapDevice { device: number };
        let area = self.swap.area(number).ok_or(missing)?;
        self.declare_return_of(|| {
            // As Linux, checks that the pages fit elsewhere (`security_vm_enough_memory_mm`).
            let pages = u64::from(area.slots().len());
            self.account_pages(None, pages)?;
            self.unaccount_pages(pages);
            if area.slots_mut(&self.swap.totals).close() {
                return Err(missing);
            }
            if let Err(error) = self.try_to_unuse(number, &area) {
                area.slots_mut(&self.swap.totals).open();
                return Err(error.into());
            }
            self.remove_area(number);
            Ok(())
        })
    }

    /// Swaps in pages until no slot of the device is in use.
    fn try_to_unuse(&self, number: u8, area: &SwapArea<P>) -> Result<(), FaultError> {
        loop {
            let mut outcome = Ok(());
            self.for_each_space(|space| {
                if outcome.is_ok() {
                    outcome = self.unuse_mm(space, number);
                }
            });
            self.files.for_each(|file| {
                let mut at = 0;
                while outcome.is_ok()
                    && let Some(index) = file.next_swapped(at, u64::MAX, |entry| entry.device() == number)
                {
                    at = index + 1;
                    outcome = file.find(self, index, MemPolicy::DEFAULT).map(|found| {
                        found.into_iter().for_each(|found| self.put_folio(found.folio));
                    });
                }
            });
            outcome?;
            self.empty_cache(area);
            if area.slots().is_empty() {
                return Ok(());
            }
            self.fx().relax();
        }
    }

    /// Swaps in all pages that one space has on the device.
    fn unuse_mm(&self, space: &Space<P>, number: u8) -> Result<(), FaultError> {
        let mut at = VirtAddr::ZERO;
        let rss = self.rss(space);
        while rss.swapped() > 0
            && let Some(va) = self.next_swap_pte(space, at, number)
        {
            self.swap_in_at(space, va)?;
            at = PageRange::page(va).end();
        }
        Ok(())
    }

    /// The first page of a space at or after `at` that is on the device.
    fn next_swap_pte(&self, space: &Space<P>, at: VirtAddr, number: u8) -> Option<VirtAddr> {
        let map = space.map().read();
        let ranges = map.iter().map(|(start, vma)| vma.range(start)).filter(|range| range.end() > at);
        for range in ranges {
            let range = PageRange::new(range.start().max(at), range.end());
            for (table, part) in map.tables(&self.tlb).read_locked(range) {
                plant!(SwapOffOwnOnly => if table.is_shared() { continue });
                let is_on_device = |va: &VirtAddr| match table.entry(*va) {
                    EntryView::Soft(soft) => SwapPte::decode(soft).is_some_and(|page| page.entry.device() == number),
                    EntryView::Leaf(_) | EntryView::Empty | EntryView::Table => false,
                };
                if let Some(va) = part.iter().find(is_on_device) {
                    return Some(va);
                }
            }
        }
        None
    }

    /// Removes folios whose slots no entry names from the swap cache; locked ones stay.
    fn empty_cache(&self, area: &SwapArea<P>) {
        let mut at = 0;
        loop {
            let unnamed = {
                let slots = area.slots();
                let unnamed = |(slot, what, entries)| match what {
                    SlotState::Cached(pfn) if entries == 0 => Some((slot, pfn)),
                    SlotState::Cached(_) | SlotState::Evicted { .. } | SlotState::Free { .. } => None,
                };
                let found = slots.in_use(at).find_map(unnamed);
                found.map(|(slot, pfn)| (slot, self.frames().folio(pfn).get()))
            };
            let Some((slot, folio)) = unnamed else { return };
            self.try_free_swap(self.frames().folio_of(&folio));
            self.put_folio(folio);
            at = slot + 1;
        }
    }

    /// Removes a device without slots in use.
    fn remove_area(&self, number: u8) {
        let mut areas = self.swap.areas.lock();
        let gone = areas.devices[usize::from(number)].take();
        // Devices with lower automatic priorities move up (`plist_del`, `least_priority++`).
        if let Some(gone) = gone.as_ref().filter(|gone| gone.priority() < 0) {
            for (_, area) in areas.iter().filter(|(_, area)| area.priority() < gone.priority()) {
                area.set_priority(area.priority() + 1);
            }
            areas.next_priority += 1;
        }
        drop(areas);
        drop(gone);
    }
}
