//! `munmap(2)`: removes mappings.
//!
//! **INV-MM-UNMAPPED** When a call that unmaps returns, no CPU can use the old mapping, even if
//! another call maps the range again.
//!
//! **INV-MM-HUGE-CUT** A call changes the pages that it names and no others: where its range cuts a
//! huge leaf, the leaf is split before anything changes.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::vma::AddressMap;
use crate::space::{HeldMap, Space, VmFlags};
use arrayvec::ArrayVec;
use pagewright_arch::Isa;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryView, Mlocked, OwnTables, TableReserve, Tables};
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, Rights, VirtAddr};

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
        self.declare_return_of(|| {
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
    pub(in crate::space) fn reserve_unmap(&self, map: &mut HeldMap<'_, P>, range: PageRange) -> Result<(), MmError> {
        let (mut mappings, mut splits, mut sealed) = (0, 0, None);
        for (start, vma) in map.overlapping(range) {
            mappings += 1;
            let all = vma.range(start);
            splits += usize::from(all.start() < range.start()) + usize::from(all.end() > range.end());
            if sealed.is_none() && vma.flags().contains(VmFlags::SEALED) {
                sealed = Some(all.start());
            }
        }
        let limit = self.settings.get(crate::settings::MmSetting::MaxMapCount);
        // As in Linux, only an unmap in the middle of one mapping increases their number.
        if splits == 2 && mappings == 1 && map.len() as u64 >= limit {
            return Err(MmError::TooManyMappings { limit });
        }
        if let Some(at) = sealed {
            return Err(MmError::Sealed { at });
        }
        map.reserve(self, splits + 1)?;
        // Where nothing is mapped, too: what is mapped there next is this space's alone.
        if plant!(MappedOverShared; mappings > 0, true) {
            self.own_ends(map.tables(&self.tlb), range)?;
        }
        self.split_huge_ends(map, map.tables(&self.tlb), range);
        Ok(())
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
        let mut gather = Gather::new(&self.tlb, space.table().context());
        let mut unmapped = UnmappedSpan::new::<P>(range);
        if space.table().has_shared() {
            self.declare_reduced(space, range, Rights::empty());
        }
        let mapped = map.parts(range).map(|(_, _, part)| part);
        let own = map.leave_shared(&self.tlb, range, mapped);
        for (start, vma) in map.iter_from(range.start()) {
            let Some(part) = unmapped.extend(vma.range(start)) else { break };
            self.zap(space, own, (vma, Zap::Everything), part, &mut gather);
        }
        if unmapped.mappings == 0 {
            return;
        }
        unmapped.cuts.iter().for_each(|at| map.split_at(*at));
        if free_tables && let Some(limits) = unmapped.table_limits(map) {
            map.free_tables(map.tables(&self.tlb).owned(range), range, limits, &mut gather);
        }
        // INV-MM-UNMAPPED: no CPU can use the old mapping when the call returns, nor when another
        // call maps the range.
        gather.settle();
        let mut first = Some(unmapped.first.page_index());
        for _ in 0..unmapped.mappings {
            let next = first.take().or_else(|| map.overlapping(range).next().map(|(start, _)| start));
            let Some(vma) = next.and_then(|start| map.remove(start)) else { break };
            if let Some(shmem) = map.release(&vma) {
                self.drop_file(&shmem);
            }
        }
    }

    /// Allocates the missing tables down to the one of `level` with the entry for `va`.
    ///
    /// The caller holds no table lock.
    pub(crate) fn make_table(&self, tables: OwnTables<'_, P>, va: VirtAddr, level: Level) -> Result<(), MmError> {
        let mut reserve = TableReserve::new(&self.tlb);
        self.fill(&mut reserve, tables.missing(va, level))?;
        tables.ensure(va, level, &mut reserve);
        Ok(())
    }

    /// Splits the huge leaf over `va`, if there is one (`split_huge_pmd`).
    ///
    /// The caller holds the space, and no table lock.
    pub(crate) fn split_huge_leaf(&self, tables: Tables<'_, P>, va: VirtAddr, mlocked: Mlocked) {
        // INV-HUGE-OWN: a path to a huge leaf is own.
        tables.owned(PageRange::page(va)).split_leaf(va, mlocked);
    }

    /// Splits the huge leaves that an end of `range` cuts (`vma_adjust_trans_huge`).
    ///
    /// INV-MM-HUGE-CUT: afterwards `range` has whole entries only. What is mapped does not change,
    /// so the caller may still fail. It holds the space, and no table lock.
    pub(in crate::space) fn split_huge_ends(&self, map: &AddressMap<P>, tables: Tables<'_, P>, range: PageRange) {
        [range.start(), range.end()].into_iter().for_each(|at| self.split_huge_leaf_across(map, tables, at));
    }

    /// Splits the huge leaf that maps pages on both sides of `at`, if there is one.
    ///
    /// The caller holds the space, and no table lock.
    pub(in crate::space) fn split_huge_leaf_across(&self, map: &AddressMap<P>, tables: Tables<'_, P>, at: VirtAddr) {
        if !tables.has_huge_leaves() || at.is_aligned(Level::PMD.span()) {
            return;
        }
        // A page that is moved or split has its leaf, or a table, afterwards.
        tables.await_migration(at);
        if let EntryView::Leaf(leaf) = tables.peek(at)
            && !at.is_aligned(leaf.level().span())
            && let Some((_, vma)) = map.find(at)
        {
            self.split_huge_leaf(tables, at, vma.mlocked());
        }
    }
}

/// Returns the end of the addresses that tables of user memory cover.
///
/// The table of the last user page may also cover addresses above user memory.
pub(in crate::space) fn top_of_tables<P: Platform>() -> VirtAddr {
    P::Isa::USER_END.align_up(Level::PGD.span()).unwrap_or(P::Isa::USER_END)
}

/// The mappings that a call unmaps, and what limits the tables that it may free.
struct UnmappedSpan {
    range: PageRange,
    mappings: usize,
    /// The first address that is unmapped.
    first: VirtAddr,
    /// The start of the next mapping.
    after: VirtAddr,
    /// The ends of the range that are in the middle of a mapping.
    cuts: ArrayVec<VirtAddr, 2>,
}

impl UnmappedSpan {
    fn new<P: Platform>(range: PageRange) -> Self {
        Self { range, mappings: 0, first: range.end(), after: top_of_tables::<P>(), cuts: ArrayVec::new() }
    }

    /// Adds the next mapping, and returns the part of it that is unmapped.
    ///
    /// `None` if the mapping is the one after the range.
    #[inline]
    fn extend(&mut self, mapping: PageRange) -> Option<PageRange> {
        let Some(part) = mapping.intersect(self.range) else {
            self.after = self.after.min(mapping.start());
            return None;
        };
        if part.start() > mapping.start() {
            self.cuts.push(part.start());
        }
        if part.end() < mapping.end() {
            self.cuts.push(part.end());
            self.after = part.end();
        }
        self.first = self.first.min(part.start());
        self.mappings += 1;
        Some(part)
    }

    /// Returns what no other mapping needs, from the mapping before to the one after.
    ///
    /// `None` if no table of the range lies in it.
    fn table_limits<P: Platform>(&self, map: &AddressMap<P>) -> Option<PageRange> {
        let span = Level::PTE.table_span();
        let fits = |from: VirtAddr| from.checked_add(span).is_some_and(|end| end <= self.after);
        let first_table = self.range.start().align_down(span);
        if !fits(first_table) {
            return None;
        }
        let before = map.before(self.first.page_index());
        let before = before.map_or(VirtAddr::ZERO, |(_, vma)| VirtAddr::from_page_index(vma.end()));
        fits(before.align_up(span)?.max(first_table)).then(|| PageRange::new(before, self.after))
    }
}
