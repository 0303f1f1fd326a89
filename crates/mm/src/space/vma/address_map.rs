//! The mappings of an address space: by address, by file page, and their totals.
//!
//! Faults and calls search by address, the reverse map searches the [`MappingIndex`]. Every change
//! is made by this module, so that both agree with the [`VmTotals`] and each file knows the spaces
//! that map it.

use crate::error::MmError;
use crate::file::{FILE_PAGES, FileObject};
use crate::mm::Mm;
use crate::space::limits::Rlimits;
use crate::space::vma::mapping_index::MappingIndex;
use crate::space::vma::{CopiedTotals, VmTotals};
use crate::space::vma::{VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_btree::{BPlusTree, GapDirection, GapQuery, TreeItem};
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// The mappings of one space, its program break, its limits, and the ranges of its program.
pub struct AddressMap<P: Platform> {
    space: SpaceId,
    vmas: BPlusTree<Vma<P>>,
    mapping_index: MappingIndex,
    totals: VmTotals,
    /// Maximum of the number of mapped pages so far.
    pub(in crate::space) peak: u64,
    /// Pages that are charged to the space ([`Mm::charge`]).
    pub(in crate::space) charged: u64,
    pub(in crate::space) brk_start: VirtAddr,
    pub(in crate::space) brk: VirtAddr,
    /// The code of the program itself (`mm->start_code`, `end_code`).
    pub(in crate::space) code: PageRange,
    /// The initial stack pointer (`mm->start_stack`).
    pub(in crate::space) stack_start: VirtAddr,
    /// The address from which top-down searches for a gap start (`mm->mmap_base`).
    pub(in crate::space) mmap_base: VirtAddr,
    /// The limits of the space, with its privileges.
    pub(in crate::space) limits: Rlimits,
    /// The flags of every new mapping (`mm->def_flags`): locked, after `mlockall(MCL_FUTURE)`.
    pub(in crate::space) new_flags: VmFlags,
    /// Set when the space ends; afterwards no call changes it.
    pub(crate) ended: bool,
}

impl<P: Platform> AddressMap<P> {
    pub(crate) fn new(space: SpaceId) -> Self {
        // Linux (mmap_base()): TASK_SIZE - gap - random, with a gap for the stack of at least 128
        // MiB.
        let mmap_base = VirtAddr::new(P::Isa::USER_END.raw() - (128 << 20));
        Self {
            space,
            vmas: BPlusTree::new(),
            mapping_index: MappingIndex::new(),
            totals: VmTotals::default(),
            peak: 0,
            charged: 0,
            brk_start: VirtAddr::ZERO,
            brk: VirtAddr::ZERO,
            code: PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO),
            stack_start: VirtAddr::ZERO,
            mmap_base,
            limits: Rlimits::default(),
            new_flags: VmFlags::empty(),
            ended: false,
        }
    }

    /// Returns the number of mappings.
    pub fn len(&self) -> usize {
        self.vmas.len()
    }

    /// Returns whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.vmas.is_empty()
    }

    /// Returns the numbers of mapped pages, by kind.
    pub fn totals(&self) -> &VmTotals {
        &self.totals
    }

    /// Returns the bytes mapped (`VmSize`).
    pub fn bytes(&self) -> u64 {
        self.totals.pages * PAGE_SIZE
    }

    /// Returns the maximum of the bytes mapped so far (`VmPeak`).
    pub fn peak_bytes(&self) -> u64 {
        self.peak * PAGE_SIZE
    }

    /// Returns the pages of the heap, from its start to the program break.
    pub fn heap(&self) -> PageRange {
        PageRange::new(self.brk_start, self.brk.align_up(PAGE_SIZE).unwrap_or(self.brk_start))
    }

    /// Returns the range of the program's own code; empty until [`Mm::set_code`].
    pub fn code(&self) -> PageRange {
        self.code
    }

    /// Returns the initial stack pointer; 0 until [`Mm::set_stack_start`].
    pub fn stack_start(&self) -> VirtAddr {
        self.stack_start
    }

    /// Returns all mappings in order, each with its first page.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Vma<P>)> + Clone {
        self.vmas.iter()
    }

    /// Returns the mapping that contains `va`, with its first page (`vma_lookup`).
    #[inline]
    pub fn find(&self, va: VirtAddr) -> Option<(u64, &Vma<P>)> {
        self.vmas.at(va.page_index())
    }

    /// Returns the first mapping that ends after `va`, with its first page (`find_vma`).
    pub fn find_or_after(&self, va: VirtAddr) -> Option<(u64, &Vma<P>)> {
        self.vmas.at_or_after(va.page_index())
    }

    /// Returns the mappings that end after `va` in order, each with its first page.
    #[inline]
    pub(crate) fn iter_from(&self, va: VirtAddr) -> impl Iterator<Item = (u64, &Vma<P>)> {
        self.vmas.iter_at_or_after(va.page_index())
    }

    /// Returns the mapping before the one that starts at page `start`.
    pub(in crate::space) fn before(&self, start: u64) -> Option<(u64, &Vma<P>)> {
        self.vmas.prev(start)
    }

    /// Returns the mappings that overlap `range`, each with its first page.
    pub fn overlapping(&self, range: PageRange) -> impl Iterator<Item = (u64, &Vma<P>)> + Clone {
        // Nothing overlaps an empty range, not even the mapping around it.
        let end = if range.is_empty() { 0 } else { range.end().page_index() };
        self.vmas.iter_at_or_after(range.start().page_index()).take_while(move |(start, _)| *start < end)
    }

    /// Returns the mapped parts of `range`, each with its mapping and the first page of that.
    pub(crate) fn parts(&self, range: PageRange) -> impl Iterator<Item = (u64, &Vma<P>, PageRange)> + Clone {
        self.overlapping(range).filter_map(move |(start, vma)| Some((start, vma, vma.range(start).intersect(range)?)))
    }

    /// Returns the start of the first unmapped part of `range`; its end if all of it is mapped.
    pub(in crate::space) fn mapped_up_to(&self, range: PageRange) -> VirtAddr {
        let mut at = range.start();
        for (_, _, part) in self.parts(range) {
            if part.start() > at {
                break;
            }
            at = part.end();
        }
        at
    }

    /// Returns the numbers of mapped pages in `range`, by kind.
    pub(in crate::space) fn totals_in(&self, range: PageRange) -> VmTotals {
        let mut totals = VmTotals::default();
        self.parts(range).for_each(|(_, vma, part)| totals.add_part(vma, part.pages()));
        totals
    }

    /// Returns whether `range`, and `after` pages after it, are free.
    ///
    /// So must be the guard gap of the next mapping, behind these pages.
    pub(in crate::space) fn is_free(&self, range: PageRange, after: u64) -> bool {
        self.find_or_after(range.start())
            .is_none_or(|(start, vma)| range.end().page_index() + after + vma.guard() <= start)
    }

    /// Returns the start of the lowest gap of `pages` pages in `range`.
    pub(in crate::space) fn find_gap_in(&self, range: PageRange, pages: u64) -> Option<u64> {
        let (low, high) = (range.start().page_index(), range.end().page_index());
        let direction = GapDirection::BottomUp;
        self.vmas.find_gap(&GapQuery { pages, low, high, align: 1, align_offset: 0, direction })
    }

    /// Returns the start of the highest gap of `pages` pages from `min` up to the mmap base.
    ///
    /// If there is none, searches upwards from a third of user memory.
    pub(in crate::space) fn find_gap(&self, pages: u64, min: VirtAddr) -> Option<u64> {
        let top_down = GapQuery {
            pages,
            low: min.page_index(),
            high: self.mmap_base.page_index(),
            align: 1,
            align_offset: 0,
            direction: GapDirection::TopDown,
        };
        // The legacy layout (arch_get_unmapped_area_topdown).
        let third = VirtAddr::from_page_index(P::Isa::USER_END.page_index() / 3);
        let bottom_up = PageRange::new(third, P::Isa::USER_END);
        self.vmas.find_gap(&top_down).or_else(|| self.find_gap_in(bottom_up, pages))
    }

    /// Makes the next `inserts` inserts and splits infallible; not those of moved mappings.
    pub(crate) fn reserve(&mut self, mm: &Mm<P>, inserts: usize) -> Result<(), MmError> {
        self.reserve_for(mm, inserts, false)
    }

    /// Makes the next `inserts` inserts and splits infallible; with `moves`, of moved mappings too.
    pub(in crate::space) fn reserve_for(&mut self, mm: &Mm<P>, inserts: usize, moves: bool) -> Result<(), MmError> {
        self.vmas.try_reserve(inserts, || mm.permit())?;
        self.mapping_index.reserve(mm, inserts, moves)
    }

    /// Makes [`Self::copy_from`] with `parent` infallible; `copied` is what it copies.
    pub(crate) fn reserve_copy(&mut self, mm: &Mm<P>, parent: &Self, copied: &CopiedTotals) -> Result<(), MmError> {
        if copied.mappings == parent.len() {
            self.vmas.try_reserve_copy(&parent.vmas, || mm.permit())?;
            self.mapping_index.reserve_copy(mm, &parent.mapping_index)
        } else {
            self.vmas.try_reserve_fill(copied.mappings, || mm.permit())?;
            self.mapping_index.reserve(mm, copied.mappings, parent.mapping_index.any_moved())
        }
    }

    /// Adds a mapping to free pages.
    ///
    /// If it maps a file, the space must have [joined](FileObject::join) the file.
    pub(crate) fn insert(&mut self, start: u64, vma: Vma<P>) {
        debug_assert!(start < vma.end(), "INV-MM-VMAS: an empty mapping at page {start:#x}");
        self.mapping_index.add(start, &vma);
        self.totals.add(start, &vma);
        self.peak = self.peak.max(self.totals.pages);
        let replaced = self.vmas.insert(start, vma);
        debug_assert!(replaced.is_none(), "INV-MM-VMAS: two mappings at page {start:#x}");
    }

    /// Removes a mapping; its file still counts it.
    pub(in crate::space) fn remove(&mut self, start: u64) -> Option<Vma<P>> {
        let vma = self.vmas.remove(start)?;
        self.mapping_index.remove(start, &vma);
        self.totals.sub(start, &vma);
        Some(vma)
    }

    /// Changes a mapping and updates the totals; its range and its backing must not change.
    pub(in crate::space) fn change(&mut self, start: u64, change: impl FnOnce(&mut Vma<P>)) {
        let totals = &mut self.totals;
        self.vmas.update(start, |vma| {
            totals.sub(start, vma);
            change(vma);
            totals.add(start, vma);
        });
    }

    /// Removes the first mapping that overlaps `range`; its file still counts it.
    pub(in crate::space) fn take_first_in(&mut self, range: PageRange) -> Option<Vma<P>> {
        let start = self.overlapping(range).next().map(|(start, _)| start)?;
        self.remove(start)
    }

    /// Splits the mapping that contains `at`, if any, so that `at` begins a mapping (`split_vma`).
    ///
    /// Needs one reserved insert.
    pub(in crate::space) fn split_at(&mut self, at: VirtAddr) {
        let page = at.page_index();
        let Some((start, vma)) = self.vmas.at(page) else { return };
        if start == page {
            return;
        }
        let tail = vma.tail(start, page);
        if let Some(file) = vma.file() {
            file.join_again(self.space, vma.may_store_to_file());
        }
        self.set_end(start, page);
        self.insert(page, tail);
    }

    /// Gives every mapping of `range` the flags that `flags` returns (`vma_modify_flags`).
    ///
    /// As [`Self::update`].
    pub(in crate::space) fn update_flags(&mut self, range: PageRange, flags: impl Fn(&Vma<P>) -> VmFlags) {
        self.update(range, |vma| flags(vma) != vma.flags(), |vma| vma.set_flags(flags(vma)));
    }

    /// Changes every mapping of `range` for which `changes` holds (`vma_modify`).
    ///
    /// Splits mappings at both ends of the range where they change, and merges changed mappings
    /// with their neighbours. Mappings that do not change are not merged. Needs two reserved
    /// inserts.
    pub(in crate::space) fn update(
        &mut self,
        range: PageRange,
        changes: impl Fn(&Vma<P>) -> bool,
        change: impl Fn(&mut Vma<P>),
    ) {
        let mut next = range.start();
        while let Some((start, vma)) = self.find_or_after(next)
            && start < range.end().page_index()
        {
            next = VirtAddr::from_page_index(vma.end());
            if let Some(part) = vma.range(start).intersect(range).filter(|_| changes(vma)) {
                self.split_out(part);
                self.change(part.start().page_index(), &change);
                self.merge_over(part);
            }
        }
    }

    /// Splits the mappings at both ends of `part`.
    ///
    /// Needs two reserved inserts.
    pub(in crate::space) fn split_out(&mut self, part: PageRange) {
        self.split_at(part.start());
        self.split_at(part.end());
    }

    /// Changes the end of a mapping to page `end`; pages that it adds must be free.
    pub(in crate::space) fn set_end(&mut self, start: u64, end: u64) {
        let (places, totals) = (&mut self.mapping_index, &mut self.totals);
        self.vmas.update(start, |vma| {
            places.set_end(start, vma, end);
            totals.sub(start, vma);
            vma.set_end(end);
            totals.add(start, vma);
        });
        self.peak = self.peak.max(self.totals.pages);
    }

    /// Moves the start of an anonymous mapping down to page `to`.
    ///
    /// Needs one reserved insert if the mapping has moved.
    pub(in crate::space) fn grow_down(&mut self, start: u64, to: u64) {
        let (places, totals) = (&mut self.mapping_index, &mut self.totals);
        self.vmas.rekey(start, to, |vma| {
            places.remove(start, vma);
            totals.sub(start, vma);
            vma.extend_down(start - to);
            places.add(to, vma);
            totals.add(to, vma);
        });
        self.peak = self.peak.max(self.totals.pages);
    }

    /// Changes the rights of the mapping at page `start`.
    pub(in crate::space) fn set_rights(&mut self, start: u64, rights: pagewright_types::Rights) {
        self.change(start, |vma| vma.set_rights(rights));
    }

    /// Changes the flags of the mapping at page `start`.
    pub(in crate::space) fn set_flags(&mut self, start: u64, flags: VmFlags) {
        self.change(start, |vma| vma.set_flags(flags));
    }

    /// Merges neighbours at both ends of `range` and in it, where possible (`vma_merge`).
    pub(in crate::space) fn merge_over(&mut self, range: PageRange) {
        let end = range.end().page_index();
        let mut start = match self.vmas.at_or_after(range.start().page_index()) {
            Some((start, _)) => self.vmas.prev(start).map_or(start, |(before, _)| before),
            None => return,
        };
        while start <= end {
            let Some(vma) = self.vmas.get(start) else { return };
            let Some((next_start, next)) = self.vmas.next(start) else { return };
            if vma.end() != next_start || next_start > end || !vma.can_merge_with(start, next) {
                start = next_start;
                continue;
            }
            let (next_end, has_anon, next_flags) = (next.end(), next.has_anon(), next.flags());
            if has_anon {
                vma.note_anon();
            }
            let flags = vma.flags() | next_flags & VmFlags::IGNORED_BY_MERGE;
            if let Some(absorbed) = self.remove(next_start)
                && let Some(file) = absorbed.file()
            {
                file.leave(self.space, absorbed.may_store_to_file());
            }
            self.set_end(start, next_end);
            self.set_flags(start, flags);
        }
    }

    /// Returns where `pages` pages of `owner` from page `index` on may be mapped in this space.
    ///
    /// There is one range for each mapping, with the index of its first page.
    pub(crate) fn possible_ranges(
        &self,
        owner: FolioOwner,
        index: u64,
        pages: u64,
    ) -> impl Iterator<Item = (u64, PageRange)> {
        let (anon, file) = match owner {
            FolioOwner::Anon(_) => (true, None),
            FolioOwner::File(file) => (false, Some(file)),
            FolioOwner::None => (false, None),
        };
        let end = index + if anon { pages } else { 0 };
        let range = |from: u64, to: u64| PageRange::new(VirtAddr::from_page_index(from), VirtAddr::from_page_index(to));
        let unmoved =
            self.overlapping(range(index, end)).filter(|(start, vma)| !vma.is_shared() && !vma.is_moved(*start));
        let unmoved = unmoved.map(move |(start, vma)| {
            let (from, to) = (start.max(index), vma.end().min(end));
            (from, range(from, to))
        });
        let moved = self.mapping_index.of_moved(index, end);
        let of_file = file.into_iter().flat_map(move |file| self.mapping_index.of_file(file, index, pages));
        unmoved.chain(moved.chain(of_file).map(move |part| (part.index, range(part.start, part.start + part.pages))))
    }

    /// Returns whether `pages` pages of a file from page `pgoff` on are indices that it can have.
    pub(in crate::space) fn can_map_file_pages(pgoff: u64, pages: u64) -> bool {
        pgoff.checked_add(pages).is_some_and(|end| end < 1 << FILE_PAGES)
    }

    /// Returns the mappings that fork copies.
    pub(crate) fn copied(&self) -> impl Iterator<Item = (u64, &Vma<P>)> {
        self.vmas.iter().filter(|(_, vma)| !vma.flags().contains(VmFlags::DONTCOPY))
    }

    /// Returns the totals of the mappings that fork copies.
    pub(crate) fn copied_totals(&self) -> CopiedTotals {
        let mut totals = CopiedTotals::default();
        for (start, vma) in self.copied() {
            totals.mappings += 1;
            if vma.flags().contains(VmFlags::ACCOUNT) {
                let pages = vma.end() - start;
                totals.charged += pages;
                totals.largest_charge = totals.largest_charge.max(pages);
            }
        }
        totals
    }

    /// Returns the mappings of files that fork copies.
    pub(crate) fn copied_of_files(&self) -> impl Iterator<Item = (&Arc<FileObject<P>>, &Vma<P>)> {
        let mappings = (!self.mapping_index.has_no_file()).then(|| self.copied());
        mappings.into_iter().flatten().filter_map(|(_, vma)| Some((vma.file()?, vma)))
    }

    /// Copies the mappings of `parent` into this empty map, as fork does (`dup_mmap`).
    ///
    /// No mapping is searched for: the trees are copied node by node, or filled in order if the
    /// child does not get all mappings. The caller has registered the copies with their files. As
    /// in Linux, neighbours that differed only in their locks are not merged.
    pub(crate) fn copy_from(&mut self, parent: &Self, copied: &CopiedTotals) {
        if copied.mappings == parent.len() {
            self.vmas.copy_from(&parent.vmas, |_, vma| vma.duplicate_for_child());
            self.mapping_index.copy_from(&parent.mapping_index);
            // A child does not inherit locks; all else is as in the parent.
            self.totals = VmTotals { locked: 0, ..parent.totals };
        } else {
            let Self { mapping_index, totals, vmas, .. } = self;
            vmas.fill(parent.copied().map(|(start, vma)| {
                let copy = vma.duplicate_for_child();
                mapping_index.add(start, &copy);
                totals.add(start, &copy);
                (start, copy)
            }));
        }
        self.peak = self.totals.pages;
        self.brk_start = parent.brk_start;
        self.brk = parent.brk;
        self.code = parent.code;
        self.stack_start = parent.stack_start;
        self.mmap_base = parent.mmap_base;
        self.limits = parent.limits;
    }

    /// Removes the count that the file of `vma`, a removed mapping, has for it.
    ///
    /// Returns the file if that was the last mapping of shared memory that only mappings keep
    /// alive. The caller must then drop it ([`Mm::drop_file`]).
    pub(in crate::space) fn release(&self, vma: &Vma<P>) -> Option<Arc<FileObject<P>>> {
        let file = vma.file()?;
        file.leave(self.space, vma.may_store_to_file()).then(|| file.clone())
    }
}
