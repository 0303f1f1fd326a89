//! All mappings of a space, in order, and again by what they show.
//!
//! By address, which faults and calls look in; and in [`Places`], which the reverse map looks in.
//! Every change goes through here, so that they and the [`VmTotals`] agree and files know who maps
//! them.

use crate::error::MmError;
use crate::file::{FILE_PAGES, FileObject};
use crate::mm::Mm;
use crate::space::limits::Rlimits;
use crate::space::vma::VmTotals;
use crate::space::vma::file_index::Places;
use crate::space::vma::{VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_btree::{BPlusTree, GapDirection, GapQuery, TreeItem};
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{FileId, PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// The mappings of one space, its program break, and where the parts of its program lie.
pub struct AddressMap<P: Platform> {
    space: SpaceId,
    vmas: BPlusTree<Vma<P>>,
    places: Places,
    totals: VmTotals,
    /// The most pages that were ever mapped.
    pub(in crate::space) peak: u64,
    /// Pages that [`Mm::charge`] has promised to the space.
    pub(in crate::space) paid: u64,
    pub(in crate::space) brk_start: VirtAddr,
    pub(in crate::space) brk: VirtAddr,
    /// Where the program's own code lies.
    pub(in crate::space) code: PageRange,
    /// Where the first stack began.
    pub(in crate::space) stack_start: VirtAddr,
    /// Where searches for a hole start, downwards (`mm->mmap_base`).
    pub(in crate::space) mmap_base: VirtAddr,
    /// What the space may have.
    pub(in crate::space) limits: Rlimits,
    /// What every new mapping has (`mm->def_flags`): locked, after `mlockall(MCL_FUTURE)`.
    pub(in crate::space) new_flags: VmFlags,
    /// Set when the space ends; no call changes it any more.
    pub(crate) ended: bool,
}

impl<P: Platform> AddressMap<P> {
    pub(crate) fn new(space: SpaceId) -> Self {
        // Linux: TASK_SIZE - gap - random, with a gap of at least 128 MiB below the stack
        // (mmap_base()).
        let mmap_base = VirtAddr::new(P::Isa::USER_END.raw() - (128 << 20));
        Self {
            space,
            vmas: BPlusTree::new(),
            places: Places::new(),
            totals: VmTotals::default(),
            peak: 0,
            paid: 0,
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

    /// Mappings.
    pub fn len(&self) -> usize {
        self.vmas.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.vmas.is_empty()
    }

    /// Pages mapped, by sort.
    pub fn totals(&self) -> &VmTotals {
        &self.totals
    }

    /// Bytes mapped (`VmSize`).
    pub fn bytes(&self) -> u64 {
        self.totals.pages * PAGE_SIZE
    }

    /// The most bytes that were ever mapped (`VmPeak`).
    pub fn peak_bytes(&self) -> u64 {
        self.peak * PAGE_SIZE
    }

    /// First and present end of the heap.
    pub fn heap(&self) -> PageRange {
        PageRange::new(self.brk_start, self.brk.align_up(PAGE_SIZE).unwrap_or(self.brk_start))
    }

    /// Where the program's own code lies; empty until [`Mm::set_code`].
    pub fn code(&self) -> PageRange {
        self.code
    }

    /// Where the first stack began; 0 until [`Mm::set_stack_start`].
    pub fn stack_start(&self) -> VirtAddr {
        self.stack_start
    }

    /// All mappings with their first page, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Vma<P>)> {
        self.vmas.iter()
    }

    /// The mapping that contains `va`, with its first page.
    #[inline]
    pub fn find(&self, va: VirtAddr) -> Option<(u64, &Vma<P>)> {
        self.vmas.at(va.page_index())
    }

    /// The first mapping that ends after `va` (`find_vma`).
    pub fn find_or_after(&self, va: VirtAddr) -> Option<(u64, &Vma<P>)> {
        self.vmas.at_or_after(va.page_index())
    }

    /// The mapping before the one that starts at page `start`.
    pub(in crate::space) fn before(&self, start: u64) -> Option<(u64, &Vma<P>)> {
        self.vmas.prev(start)
    }

    /// The mappings that share a page with `range`.
    pub fn overlapping(&self, range: PageRange) -> impl Iterator<Item = (u64, &Vma<P>)> {
        let end = range.end().page_index();
        let first = (!range.is_empty()).then(|| self.vmas.at_or_after(range.start().page_index())).flatten();
        let from = first.map_or(u64::MAX, |(start, _)| start);
        self.vmas.iter_from(from).take_while(move |(start, _)| *start < end)
    }

    /// Where the first hole of `range` begins; its end if there is none.
    pub(in crate::space) fn mapped_up_to(&self, range: PageRange) -> VirtAddr {
        let mut at = range.start();
        for (start, vma) in self.overlapping(range) {
            let part = vma.range(start);
            if part.start() > at {
                break;
            }
            at = part.end().min(range.end());
        }
        at
    }

    /// Pages of `range` that are mapped, by sort.
    pub(in crate::space) fn totals_in(&self, range: PageRange) -> VmTotals {
        let mut totals = VmTotals::default();
        for (start, vma) in self.overlapping(range) {
            let pages = vma.range(start).intersect(range).map_or(0, |part| part.pages());
            totals.add_part(vma, pages);
        }
        totals
    }

    /// Whether nothing is mapped in `range` nor in the `after` pages behind it, and the guard gap
    /// of what comes next is left free.
    pub(in crate::space) fn is_clear(&self, range: PageRange, after: u64) -> bool {
        self.find_or_after(range.start())
            .is_none_or(|(start, vma)| range.end().page_index() + after.max(vma.guard()) <= start)
    }

    /// A hole of `pages` pages, as near to the start of `range` as there is one in it.
    pub(in crate::space) fn find_hole_in(&self, range: PageRange, pages: u64) -> Option<u64> {
        let (low, high) = (range.start().page_index(), range.end().page_index());
        let direction = GapDirection::BottomUp;
        self.vmas.find_gap(&GapQuery { pages, low, high, align: 1, align_offset: 0, direction })
    }

    /// A hole of `pages` pages not below `least`, as near to the top of where mappings go as there
    /// is one.
    pub(in crate::space) fn find_hole(&self, pages: u64, least: VirtAddr) -> Option<u64> {
        let top_down = GapQuery {
            pages,
            low: least.page_index(),
            high: self.mmap_base.page_index(),
            align: 1,
            align_offset: 0,
            direction: GapDirection::TopDown,
        };
        // Linux falls back to the legacy layout when the top-down area is full
        // (arch_get_unmapped_area_topdown).
        let third = VirtAddr::from_page_index(P::Isa::USER_END.page_index() / 3);
        let bottom_up = PageRange::new(third, P::Isa::USER_END);
        self.vmas.find_gap(&top_down).or_else(|| self.find_hole_in(bottom_up, pages))
    }

    /// Makes the next `inserts` inserts and splits infallible.
    pub(crate) fn reserve(&mut self, mm: &Mm<P>, inserts: usize) -> Result<(), MmError> {
        self.reserve_for(mm, inserts, false)
    }

    /// The same, if `moves` for mappings that were moved.
    pub(in crate::space) fn reserve_for(&mut self, mm: &Mm<P>, inserts: usize, moves: bool) -> Result<(), MmError> {
        self.vmas.try_reserve(inserts, || mm.permit())?;
        self.places.reserve(mm, inserts, moves)
    }

    /// Makes copying every mapping of `parent` infallible.
    pub(crate) fn reserve_copy(&mut self, mm: &Mm<P>, parent: &Self) -> Result<(), MmError> {
        self.reserve_for(mm, parent.len(), parent.places.any_moved())
    }

    /// Adds a mapping where there is none.
    ///
    /// If it shows a file, its space has [joined](FileObject::join) it.
    pub(crate) fn insert(&mut self, start: u64, vma: Vma<P>) {
        debug_assert!(start < vma.end(), "INV-MM-VMAS: an empty mapping at page {start:#x}");
        self.places.add(start, &vma);
        self.totals.add(start, &vma);
        self.peak = self.peak.max(self.totals.pages);
        let replaced = self.vmas.insert(start, vma);
        debug_assert!(replaced.is_none(), "INV-MM-VMAS: two mappings at page {start:#x}");
    }

    /// Takes a mapping out; it still counts as its file's.
    pub(in crate::space) fn remove(&mut self, start: u64) -> Option<Vma<P>> {
        let vma = self.vmas.remove(start)?;
        self.places.remove(start, &vma);
        self.totals.sub(start, &vma);
        Some(vma)
    }

    /// Changes what a mapping counts as, but neither its pages nor what they show.
    pub(in crate::space) fn change(&mut self, start: u64, change: impl FnOnce(&mut Vma<P>)) {
        let totals = &mut self.totals;
        self.vmas.update(start, |vma| {
            totals.sub(start, vma);
            change(vma);
            totals.add(start, vma);
        });
    }

    /// Takes out the first mapping that shares a page with `range`; it still counts as its file's.
    pub(in crate::space) fn take_first_in(&mut self, range: PageRange) -> Option<Vma<P>> {
        let start = self.overlapping(range).next().map(|(start, _)| start)?;
        self.remove(start)
    }

    /// Makes page `at` the first page of a mapping if it lies within one.
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

    /// Gives every mapping of `range` the flags that `flags` says, cut off at both ends where that
    /// makes it unlike. What changes is joined with its neighbours; what doesn't stays as it is,
    /// even if it and its neighbour could be one. Needs two reserved inserts.
    pub(in crate::space) fn reflag(&mut self, range: PageRange, flags: impl Fn(&Vma<P>) -> VmFlags) {
        let mut next = range.start();
        while let Some((start, vma)) = self.find_or_after(next)
            && start < range.end().page_index()
        {
            next = VirtAddr::from_page_index(vma.end());
            let (flags, part) = (flags(vma), vma.range(start).intersect(range));
            if let Some(part) = part.filter(|_| flags != vma.flags()) {
                self.cut_out(part);
                self.set_flags(part.start().page_index(), flags);
                self.merge_over(part);
            }
        }
    }

    /// Makes a mapping of its own of `part` of one.
    ///
    /// Needs two reserved inserts.
    pub(in crate::space) fn cut_out(&mut self, part: PageRange) {
        self.split_at(part.start());
        self.split_at(part.end());
    }

    /// Moves the end of a mapping.
    ///
    /// What it grows over is free.
    pub(in crate::space) fn set_end(&mut self, start: u64, end: u64) {
        let (places, totals) = (&mut self.places, &mut self.totals);
        self.vmas.update(start, |vma| {
            places.set_end(start, vma, end);
            totals.sub(start, vma);
            vma.set_end(end);
            totals.add(start, vma);
        });
        self.peak = self.peak.max(self.totals.pages);
    }

    /// Moves the start of an anonymous mapping down.
    ///
    /// Needs one reserved insert if it was moved.
    pub(in crate::space) fn grow_down(&mut self, start: u64, to: u64) {
        let (places, totals) = (&mut self.places, &mut self.totals);
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

    /// Joins neighbours that could be one, at both ends of `range` and within (`vma_merge`).
    pub(in crate::space) fn merge_over(&mut self, range: PageRange) {
        let end = range.end().page_index();
        let mut start = match self.vmas.at_or_after(range.start().page_index()) {
            Some((start, _)) => self.vmas.prev(start).map_or(start, |(before, _)| before),
            None => return,
        };
        while start <= end {
            let Some(vma) = self.vmas.get(start) else { return };
            let Some((next_start, next)) = self.vmas.next(start) else { return };
            if vma.end() != next_start || next_start > end || !vma.continues_into(start, next) {
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

    /// Where a page of `owner` with index `index` could be mapped here.
    pub(crate) fn places_of(&self, owner: FolioOwner, index: u64) -> impl Iterator<Item = VirtAddr> {
        let (anon, file) = match owner {
            FolioOwner::Anon(_) => (Some(index), None),
            FolioOwner::File(file) => (None, Some(file)),
            FolioOwner::None => (None, None),
        };
        let unmoved = anon.filter(|index| {
            let found = self.vmas.at(*index);
            found.is_some_and(|(start, vma)| !vma.is_shared() && !vma.is_moved(start))
        });
        let moved = anon.into_iter().flat_map(|index| self.places.of_moved(index));
        let shown = file.into_iter().flat_map(move |file| self.places.of_file(file, index));
        unmoved.into_iter().chain(moved).chain(shown).map(VirtAddr::from_page_index)
    }

    /// The mappings that show pages of a file from page `from` on.
    pub(crate) fn of_file_from(&self, file: FileId, from: u64) -> impl Iterator<Item = (u64, &Vma<P>)> {
        self.places.of_file_from(file, from).filter_map(|start| Some((start, self.vmas.get(start)?)))
    }

    /// Whether page `pgoff + pages` of a file can be named.
    pub(in crate::space) fn can_name(pgoff: u64, pages: u64) -> bool {
        pgoff.checked_add(pages).is_some_and(|end| end < 1 << FILE_PAGES)
    }

    /// The mappings that a child gets.
    pub(crate) fn copied(&self) -> impl Iterator<Item = (u64, &Vma<P>)> {
        self.vmas.iter().filter(|(_, vma)| !vma.flags().contains(VmFlags::DONTCOPY))
    }

    /// Copies the mappings of `parent` that a child gets into this empty map (`dup_mmap`).
    ///
    /// Each file counts the copies already. Neighbours that were unlike by their locks only stay
    /// apart, as in Linux.
    pub(crate) fn copy_from(&mut self, parent: &Self) {
        for (start, vma) in parent.copied() {
            let mut copy = vma.duplicate();
            if vma.flags().contains(VmFlags::WIPEONFORK) {
                copy.forget_anon();
            }
            // Locks are the parent's alone.
            copy.set_flags(copy.flags() - VmFlags::LOCK_MASK);
            self.insert(start, copy);
        }
        self.brk_start = parent.brk_start;
        self.brk = parent.brk;
        self.code = parent.code;
        self.stack_start = parent.stack_start;
        self.mmap_base = parent.mmap_base;
        self.limits = parent.limits;
    }

    /// Ends with `vma` as the caller's: takes back what its file counted, and says whether that was
    /// the last mapping of shared memory that only mappings keep alive.
    pub(in crate::space) fn release(&self, vma: &Vma<P>) -> Option<Arc<FileObject<P>>> {
        let file = vma.file()?;
        file.leave(self.space, vma.may_store_to_file()).then(|| file.clone())
    }
}
