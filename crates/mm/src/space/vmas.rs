//! All mappings of a space, in order, and again by file.
//!
//! Two trees: by address, which faults and calls look in; and by file and page of the file, which the reverse map looks in. Every change
//! goes through here, so that they agree and files know who maps them.

use super::vma::{STACK_GUARD_PAGES, VmFlags, Vma};
use crate::error::MmError;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::tree::{Direction, GapQuery, Item, Reach, Tree};
use pagewright_arch::Isa;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::frames::Owner;
use pagewright_types::{FileId, PAGE_SIZE, PageRange, SpaceId, VirtAddr};

/// Pages of one file that can be told apart: the coordinate by which mappings of files are ordered is the file's id above its page index.
const FILE_PAGES: u32 = 36;

fn coordinate(file: FileId, index: u64) -> u64 {
    u64::from(file.raw()) << FILE_PAGES | index
}

/// A mapping, by the pages of the file that it shows; the second part of its key is its first page in the space.
struct FileSpan {
    pages: u64,
}

impl Item for FileSpan {
    type Key = (u64, u64);
    type Summary = Reach;

    fn summary(&self, key: (u64, u64)) -> Reach {
        Reach::until(key.0 + self.pages)
    }
}

/// The mappings of one space, its program break, and where the parts of its program lie.
pub struct AddressMap<P: Platform> {
    space: SpaceId,
    vmas: Tree<Vma<P>>,
    by_file: Tree<FileSpan>,
    pages: u64,
    peak: u64,
    pub(super) brk_start: VirtAddr,
    pub(super) brk: VirtAddr,
    /// Where the program's own code lies.
    pub(super) code: PageRange,
    /// Where the first stack began.
    pub(super) stack_start: VirtAddr,
    /// Where searches for a hole start, downwards (`mm->mmap_base`).
    pub(super) mmap_base: VirtAddr,
    /// How far a stack may grow, in bytes (`RLIMIT_STACK`).
    pub(super) stack_limit: u64,
    /// Set when the space ends; no call changes it any more.
    pub(crate) ended: bool,
}

/// The lowest address at which Linux places anything by itself (`vm.mmap_min_addr`), in pages.
const MIN_PAGE: u64 = 16;

impl<P: Platform> AddressMap<P> {
    pub(crate) fn new(space: SpaceId) -> Self {
        // Linux: TASK_SIZE - gap - random, with a gap of at least 128 MiB below the stack (mmap_base()).
        let mmap_base = VirtAddr::new(P::Isa::USER_END.raw() - (128 << 20));
        Self {
            space,
            vmas: Tree::new(),
            by_file: Tree::new(),
            pages: 0,
            peak: 0,
            brk_start: VirtAddr::ZERO,
            brk: VirtAddr::ZERO,
            code: PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO),
            stack_start: VirtAddr::ZERO,
            mmap_base,
            stack_limit: 8 << 20,
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

    /// Bytes mapped (`VmSize`).
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_SIZE
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
    pub(super) fn before(&self, start: u64) -> Option<(u64, &Vma<P>)> {
        self.vmas.prev(start)
    }

    /// The mappings that share a page with `range`.
    pub fn overlapping(&self, range: PageRange) -> impl Iterator<Item = (u64, &Vma<P>)> {
        let end = range.end().page_index();
        let first = (!range.is_empty()).then(|| self.vmas.at_or_after(range.start().page_index())).flatten();
        let from = first.map_or(u64::MAX, |(start, _)| start);
        self.vmas.iter_from(from).take_while(move |(start, _)| *start < end)
    }

    /// Whether nothing is mapped in `range` nor in the `after` pages behind it, and the guard gap of what comes next is left free.
    pub(super) fn is_clear(&self, range: PageRange, after: u64) -> bool {
        self.find_or_after(range.start()).is_none_or(|(start, vma)| {
            let guard = if vma.grows_down() { STACK_GUARD_PAGES } else { 0 };
            range.end().page_index() + after.max(guard) <= start
        })
    }

    /// A hole of `pages` pages, as near to the top of where mappings go as there is one.
    pub(super) fn find_hole(&self, pages: u64) -> Option<u64> {
        let top_down = GapQuery {
            pages,
            low: MIN_PAGE,
            high: self.mmap_base.page_index(),
            align: 1,
            align_offset: 0,
            direction: Direction::TopDown,
        };
        // Linux falls back to the legacy layout when the top-down area is full (arch_get_unmapped_area_topdown).
        let bottom_up = GapQuery {
            low: P::Isa::USER_END.page_index() / 3,
            high: P::Isa::USER_END.page_index(),
            direction: Direction::BottomUp,
            ..top_down
        };
        self.vmas.find_gap(&top_down).or_else(|| self.vmas.find_gap(&bottom_up))
    }

    /// Makes the next `inserts` inserts and splits infallible.
    pub(crate) fn reserve(&mut self, mm: &Mm<P>, inserts: usize) -> Result<(), MmError> {
        self.vmas.try_reserve(inserts, || mm.permit())?;
        self.by_file.try_reserve(inserts, || mm.permit())?;
        Ok(())
    }

    /// Adds a mapping where there is none. If it shows a file, its space has [joined](FileObject::join) it.
    pub(crate) fn insert(&mut self, start: u64, vma: Vma<P>) {
        debug_assert!(start < vma.end(), "INV-MM-VMAS: an empty mapping at page {start:#x}");
        let pages = vma.end() - start;
        if let Some(file) = vma.file_id() {
            self.by_file.insert((coordinate(file, vma.pgoff()), start), FileSpan { pages });
        }
        self.pages += pages;
        self.peak = self.peak.max(self.pages);
        let replaced = self.vmas.insert(start, vma);
        debug_assert!(replaced.is_none(), "INV-MM-VMAS: two mappings at page {start:#x}");
    }

    /// Takes a mapping out; it still counts as its file's.
    pub(super) fn remove(&mut self, start: u64) -> Option<Vma<P>> {
        let vma = self.vmas.remove(start)?;
        if let Some(file) = vma.file_id() {
            self.by_file.remove((coordinate(file, vma.pgoff()), start));
        }
        self.pages -= vma.end() - start;
        Some(vma)
    }

    /// Takes out the first mapping that shares a page with `range`; it still counts as its file's.
    pub(super) fn take_first_in(&mut self, range: PageRange) -> Option<Vma<P>> {
        let start = self.overlapping(range).next().map(|(start, _)| start)?;
        self.remove(start)
    }

    /// Makes page `at` the first page of a mapping if it lies within one. Needs one reserved insert.
    pub(super) fn split_at(&mut self, at: VirtAddr) {
        let page = at.page_index();
        let Some((start, vma)) = self.vmas.at(page) else { return };
        if start == page {
            return;
        }
        let tail = vma.tail(start, page);
        if let Some(file) = vma.file() {
            file.join_again(self.space);
        }
        self.set_end(start, page);
        self.insert(page, tail);
    }

    fn set_end(&mut self, start: u64, end: u64) {
        let Some(vma) = self.vmas.get(start) else { return };
        let (old, file, pgoff) = (vma.end(), vma.file_id(), vma.pgoff());
        if let Some(file) = file {
            self.by_file.update((coordinate(file, pgoff), start), |span| span.pages = end - start);
        }
        self.vmas.update(start, |vma| vma.set_end(end));
        self.pages = self.pages - (old - start) + (end - start);
        self.peak = self.peak.max(self.pages);
    }

    /// Moves the start of an anonymous mapping down.
    pub(super) fn grow_down(&mut self, start: u64, to: u64) {
        self.vmas.rekey(start, to, |vma| vma.set_pgoff(vma.pgoff() - (start - to)));
        self.pages += start - to;
        self.peak = self.peak.max(self.pages);
    }

    /// Changes the rights of the mapping at page `start`.
    pub(super) fn set_rights(&mut self, start: u64, rights: pagewright_types::Rights) {
        self.vmas.update(start, |vma| vma.set_rights(rights));
    }

    /// Changes the flags of the mapping at page `start`.
    pub(super) fn set_flags(&mut self, start: u64, flags: VmFlags) {
        self.vmas.update(start, |vma| vma.set_flags(flags));
    }

    /// Joins neighbours that could be one, at both ends of `range` and within (`vma_merge`).
    pub(super) fn merge_over(&mut self, range: PageRange) {
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
                file.leave(self.space);
            }
            self.set_end(start, next_end);
            self.set_flags(start, flags);
        }
    }

    /// Where a page of `owner` with index `index` could be mapped here.
    pub(crate) fn places_of(&self, owner: Owner, index: u64) -> impl Iterator<Item = VirtAddr> {
        let anon = match owner {
            Owner::Anon(_) => self.vmas.at(index).filter(|(_, vma)| !vma.is_shared()).map(|_| index),
            Owner::File(_) | Owner::None => None,
        };
        let file = match owner {
            Owner::File(file) => Some(file),
            Owner::Anon(_) | Owner::None => None,
        };
        let spans = file.into_iter().flat_map(move |file| {
            let at = coordinate(file, index);
            self.by_file.overlapping(at, at + 1).map(move |((from, start), _)| start + (at - from))
        });
        anon.into_iter().chain(spans).map(VirtAddr::from_page_index)
    }

    /// The mappings that show pages of a file from page `from` on.
    pub(crate) fn of_file_from(&self, file: FileId, from: u64) -> impl Iterator<Item = (u64, &Vma<P>)> {
        let last = coordinate(file, (1 << FILE_PAGES) - 1);
        let spans = self.by_file.overlapping(coordinate(file, from), last);
        spans.filter_map(|((_, start), _)| Some((start, self.vmas.get(start)?)))
    }

    /// Whether page `pgoff + pages` of a file can be named.
    pub(super) fn can_name(pgoff: u64, pages: u64) -> bool {
        pgoff.checked_add(pages).is_some_and(|end| end < 1 << FILE_PAGES)
    }

    /// Copies every mapping of `parent` into this empty map (`dup_mmap`). Each file counts the copies already.
    pub(crate) fn copy_from(&mut self, parent: &Self) {
        for (start, vma) in parent.vmas.iter() {
            self.insert(start, vma.duplicate());
        }
        self.brk_start = parent.brk_start;
        self.brk = parent.brk;
        self.code = parent.code;
        self.stack_start = parent.stack_start;
        self.mmap_base = parent.mmap_base;
        self.stack_limit = parent.stack_limit;
    }

    /// Ends with `vma` as the caller's: takes back what its file counted, and says whether that was the last mapping of shared memory
    /// that only mappings keep alive.
    pub(super) fn release(&self, vma: &Vma<P>) -> Option<Arc<FileObject<P>>> {
        let file = vma.file()?;
        (file.leave(self.space) && file.is_shmem()).then(|| file.clone())
    }
}
