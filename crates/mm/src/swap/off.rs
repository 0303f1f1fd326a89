//! `swapoff(2)`: everything that a device has comes back (`try_to_unuse`).
//!
//! No slot of it is given out any more; then every entry that names one is found, where it can
//! stand – in page tables, in caches of shared memory – and its page put back; and what is left in
//! the swap cache alone leaves it. Others go on meanwhile: a fork copies an entry to where was
//! looked already, a page-out that had its slot before puts it into a table. So it is looked again,
//! until no slot is in use.
//!
//! Neighbours: `fault` and `file` bring pages back as for an access.
//!
//! Not guaranteed: an end while somebody never lets go of a page that he has locked. Nobody does
//! that.

use super::area::SwapArea;
use super::swapped;
use super::table::Slot;
use crate::error::{FaultError, MmError};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Entry;
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Swaps to device `number` no longer, and brings back what is there.
    ///
    /// # Errors
    /// [`MmError::NoSuchSwapDevice`]; [`MmError::CommitRefused`] if what is promised would be
    /// more than may be without it; want of memory, or [`MmError::Device`] when a page can't be
    /// read. It is swapped to as before then; pages that are back already stay.
    pub fn swap_off(&self, number: u8) -> Result<(), MmError> {
        let missing = MmError::NoSuchSwapDevice { device: number };
        let area = self.swap.area(number).ok_or(missing)?;
        self.call(|| {
            // As Linux: those pages are to be had elsewhere (`security_vm_enough_memory_mm`).
            let pages = u64::from(area.look().len());
            self.promise(None, pages)?;
            self.take_back(pages);
            if area.change(&self.swap.totals).close() {
                return Err(missing);
            }
            if let Err(error) = self.empty_area(number, &area) {
                area.change(&self.swap.totals).open();
                return Err(error.into());
            }
            self.forget_area(number);
            Ok(())
        })
    }

    fn empty_area(&self, number: u8, area: &SwapArea<P>) -> Result<(), FaultError> {
        loop {
            let mut outcome = Ok(());
            self.for_each_space(|space| {
                if outcome.is_ok() {
                    outcome = self.unuse_space(space, number);
                }
            });
            self.files.for_each(|file| {
                let mut at = 0;
                while outcome.is_ok()
                    && let Some(index) = file.next_swapped(at, u64::MAX, |entry| entry.device() == number)
                {
                    at = index + 1;
                    outcome = file.find(self, index).map(|found| {
                        found.into_iter().for_each(|found| self.put_folio(found.folio));
                    });
                }
            });
            outcome?;
            self.empty_cache(area);
            if area.look().is_empty() {
                return Ok(());
            }
            self.fx().relax();
        }
    }

    /// Brings back all that one space has there (`unuse_mm`).
    fn unuse_space(&self, space: &Space<P>, number: u8) -> Result<(), FaultError> {
        let mut at = VirtAddr::ZERO;
        while space.rss().swapped() > 0
            && let Some(va) = self.next_in_swap(space, at, number)
        {
            self.swap_in_at(space, va)?;
            at = PageRange::page(va).end();
        }
        Ok(())
    }

    /// The first page of a space from `at` on that is in swap there.
    fn next_in_swap(&self, space: &Space<P>, at: VirtAddr, number: u8) -> Option<VirtAddr> {
        let map = space.map().read();
        let ranges = map.iter().map(|(start, vma)| vma.range(start)).filter(|range| range.end() > at);
        for range in ranges {
            let range = PageRange::new(range.start().max(at), range.end());
            for (table, part) in space.table().locked_tables(&self.tlb, range) {
                let is_there = |va: &VirtAddr| match table.entry(*va) {
                    Entry::Soft(soft) => swapped(soft).is_some_and(|page| page.entry.device() == number),
                    Entry::Leaf(_) | Entry::Empty | Entry::Table(_) => false,
                };
                if let Some(va) = part.iter().find(is_there) {
                    return Some(va);
                }
            }
        }
        None
    }

    /// Takes folios whose slots no entry names out of the swap cache.
    ///
    /// Those that somebody has locked stay.
    fn empty_cache(&self, area: &SwapArea<P>) {
        let mut at = 0;
        loop {
            let unnamed = {
                let slots = area.look();
                let unnamed = |(slot, what, entries)| match what {
                    Slot::Cached(pfn) if entries == 0 => Some((slot, pfn)),
                    Slot::Cached(_) | Slot::Evicted { .. } | Slot::Free { .. } => None,
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

    /// A device that has nothing any more.
    fn forget_area(&self, number: u8) {
        let mut areas = self.swap.areas.lock();
        let gone = areas.devices[usize::from(number)].take();
        // Those that had their priority after it move up (`plist_del`, `least_priority++`).
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
