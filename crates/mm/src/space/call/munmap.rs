//! `munmap(2)`: removes mappings.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::vma::AddressMap;
use crate::space::{HeldMap, Space};
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_table::{TableReserve, Tables};
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Unmaps `len` bytes at `addr`, rounded up to pages.
    ///
    /// Pages of the range that are not mapped are no error.
    ///
    /// # Errors
    /// [`MmError`] with `EINVAL` for a misaligned start, length 0 or a range outside user memory,
    /// [`MmError::Sealed`], [`MmError::TooManyMappings`], or the memory for splits; nothing has
    /// changed.
    pub fn munmap(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        let range = bounded(addr, len)?;
        if range.is_empty() {
            return Err(MmError::EmptyRange { at: addr });
        }
        if range.end() > P::Isa::USER_END {
            return Err(MmError::OutOfBounds { addr, len });
        }
        self.call(|| {
            let mut map = space.map().write();
            self.reserve_unmap(&mut map, range)?;
            self.unmap_reserved(space, &mut map, range);
            self.settle_charge(&mut map);
            Ok(())
        })
    }

    /// Makes [`Mm::unmap_reserved`] of `range` infallible, and one insert of a new mapping.
    ///
    /// # Errors
    /// [`MmError::TooManyMappings`], [`MmError::Sealed`], or the memory for splits.
    pub(in crate::space) fn reserve_unmap(&self, map: &mut AddressMap<P>, range: PageRange) -> Result<(), MmError> {
        let limit = self.settings.get(crate::settings::MmSetting::MaxMapCount);
        let splits = [range.start(), range.end()].iter().filter(|&&at| cuts(map, at)).count();
        // As in Linux, only an unmap in the middle of one mapping increases their number.
        if splits == 2 && map.overlapping(range).count() == 1 && map.len() as u64 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        map.check_none_sealed(range)?;
        map.reserve(self, splits + 1)
    }

    /// Unmaps `range`, for which the caller has called [`Mm::reserve_unmap`].
    pub(in crate::space) fn unmap_reserved(&self, space: &Space<P>, map: &mut HeldMap<'_, P>, range: PageRange) {
        self.unmap_range(space, map, range, true);
    }

    /// Unmaps `range` and keeps its tables, because the caller maps it again under the same lock.
    pub(in crate::space) fn unmap_for_replacement(&self, space: &Space<P>, map: &mut HeldMap<'_, P>, range: PageRange) {
        self.unmap_range(space, map, range, false);
    }

    fn unmap_range(&self, space: &Space<P>, map: &mut HeldMap<'_, P>, range: PageRange, free_tables: bool) {
        map.split_out(range);
        let Some(first) = map.overlapping(range).next().map(|(start, _)| start) else { return };
        let mut gather = Gather::new(&self.tlb, space.table().context());
        for (start, vma) in map.overlapping(range) {
            self.zap(space, map.tables(&self.tlb), (vma, Zap::Everything), vma.range(start), &mut gather);
        }
        if free_tables {
            let before = map.before(first).map_or(VirtAddr::ZERO, |(_, vma)| VirtAddr::from_page_index(vma.end()));
            let after = map.find_or_after(range.end());
            let after = after.map_or(top_of_tables::<P>(), |(start, _)| VirtAddr::from_page_index(start));
            map.tables_exclusive(&self.tlb).free(range, PageRange::new(before, after), &mut gather);
        }
        // INV-MM-UNMAPPED: no CPU can use the old mapping when the call returns, nor when another
        // call maps the range.
        gather.settle();
        while let Some(vma) = map.take_first_in(range) {
            if let Some(shmem) = map.release(&vma) {
                self.drop_file(&shmem);
            }
        }
    }

    /// Allocates the missing tables down to the one with the last-level entry for `va`.
    ///
    /// The caller holds no table lock.
    pub(crate) fn make_table(&self, tables: Tables<'_, P>, va: VirtAddr) -> Result<(), MmError> {
        let mut reserve = TableReserve::new(&self.tlb);
        self.fill(&mut reserve, tables.missing(va, Level::PTE))?;
        tables.ensure(va, Level::PTE, &mut reserve);
        Ok(())
    }
}

/// Returns the end of the addresses that tables of user memory cover.
///
/// The table of the last user page may also cover addresses above user memory.
pub(in crate::space) fn top_of_tables<P: Platform>() -> VirtAddr {
    P::Isa::USER_END.align_up(Level::PGD.span()).unwrap_or(P::Isa::USER_END)
}

/// Returns whether a mapping begins before `at` and ends after it.
fn cuts<P: Platform>(map: &AddressMap<P>, at: VirtAddr) -> bool {
    map.find(at).is_some_and(|(start, _)| start != at.page_index())
}
