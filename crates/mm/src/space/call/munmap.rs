//! `munmap(2)`.

use crate::counters::Gauge;
use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::Space;
use crate::space::vma::AddressMap;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_table::TableReserve;
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Unmaps `len` bytes at `addr`, rounded up to pages.
    ///
    /// Holes are no error.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed. `EINVAL` where Linux has it: a misaligned start, length 0,
    /// a range outside user memory.
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

    /// Makes [`Mm::unmap_reserved`] over `range` infallible, plus one insert for whatever the
    /// caller puts there.
    pub(in crate::space) fn reserve_unmap(&self, map: &mut AddressMap<P>, range: PageRange) -> Result<(), MmError> {
        let limit = self.settings.get(crate::settings::MmSetting::MaxMapCount);
        let splits = [range.start(), range.end()].iter().filter(|&&at| cuts(map, at)).count();
        // Only a hole in the middle of one mapping leaves more mappings than there were (Linux
        // counts the same).
        if splits == 2 && map.overlapping(range).count() == 1 && map.len() as u64 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        map.none_sealed(range)?;
        map.reserve(self, splits + 1)
    }

    /// Unmaps `range`.
    ///
    /// Splits were reserved.
    pub(in crate::space) fn unmap_reserved(&self, space: &Space<P>, map: &mut AddressMap<P>, range: PageRange) {
        self.unmap_and(space, map, range, true);
    }

    /// The same for a range that will be mapped again before the space is let go: its tables stay.
    pub(in crate::space) fn unmap_for_another(&self, space: &Space<P>, map: &mut AddressMap<P>, range: PageRange) {
        self.unmap_and(space, map, range, false);
    }

    fn unmap_and(&self, space: &Space<P>, map: &mut AddressMap<P>, range: PageRange, free_tables: bool) {
        map.cut_out(range);
        let Some(first) = map.overlapping(range).next().map(|(start, _)| start) else { return };
        let mut gather = Gather::new(&self.tlb, space.table().context());
        for (start, vma) in map.overlapping(range) {
            self.zap(space, vma, vma.range(start), &mut gather);
        }
        if free_tables {
            let before = map.before(first).map_or(VirtAddr::ZERO, |(_, vma)| VirtAddr::from_page_index(vma.end()));
            let after = map.find_or_after(range.end());
            let after = after.map_or(top_of_tables::<P>(), |(start, _)| VirtAddr::from_page_index(start));
            self.free_tables(space, range, PageRange::new(before, after), &mut gather);
        }
        // INV-MM-UNMAPPED: no CPU can use the range when the call returns, nor when somebody else
        // maps it.
        gather.settle();
        while let Some(vma) = map.take_first_in(range) {
            if let Some(shmem) = map.release(&vma) {
                self.drop_file(&shmem);
            }
        }
    }

    /// Makes the tables down to the one that holds the entry for `va`.
    ///
    /// The caller holds the space and no table.
    pub(crate) fn make_table(&self, space: &Space<P>, va: VirtAddr) -> Result<(), MmError> {
        let table = space.table();
        let mut reserve = TableReserve::new(&self.tlb);
        self.fill(&mut reserve, table.missing_tables(&self.tlb, va, Level::PTE))?;
        let before = reserve.len();
        table.ensure_tables(&self.tlb, va, Level::PTE, &mut reserve);
        self.gauges.add(Gauge::PageTablePages, (before - reserve.len()) as u64);
        Ok(())
    }

    /// Unhooks the tables that nothing within `limits` needs any more.
    pub(in crate::space) fn free_tables<'a>(
        &'a self,
        space: &'a Space<P>,
        range: PageRange,
        limits: PageRange,
        gather: &mut Gather<'a, P>,
    ) {
        let before = space.table().bytes();
        space.table().free_tables(&self.tlb, range, limits, gather);
        self.gauges.sub(Gauge::PageTablePages, (before - space.table().bytes()) / pagewright_types::PAGE_SIZE);
    }
}

/// Where the tables for user memory end: the last page of it may share a table with addresses that
/// nobody can map.
pub(in crate::space) fn top_of_tables<P: Platform>() -> VirtAddr {
    P::Isa::USER_END.align_up(Level::PGD.span()).unwrap_or(P::Isa::USER_END)
}

/// Whether a mapping crosses `at`.
fn cuts<P: Platform>(map: &AddressMap<P>, at: VirtAddr) -> bool {
    map.find(at).is_some_and(|(start, _)| start != at.page_index())
}
