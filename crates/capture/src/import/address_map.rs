//! The translation of captured addresses to those of the trace.
//!
//! Valgrind's layout is not Linux's: mappings grow upwards from the dynamic loader, the heap
//! follows the loader, and the stack is far below the top. The shape of page tables depends on
//! addresses. So [`AddressMap`] gives each mapping the address that Linux without address
//! randomisation chooses (`arch_get_unmapped_area_topdown`: the highest gap below `mmap_base` that
//! fits; `thp_get_unmapped_area` for mappings of huge pages). Offsets within a mapping are
//! unchanged. With [`AddressLayout::AsCaptured`] all addresses are unchanged.
//!
//! A page in no mapping is not the program's, but one of valgrind's own objects or trampolines.

use std::collections::BTreeMap;

use crate::trace::{AddressLayout, PAGE_SHIFT, PAGE_SIZE, PageNo, UserAddr};

/// `mm->mmap_base` of a process with 47-bit addresses, without randomisation.
///
/// It is `TASK_SIZE` minus 128 MiB, the smallest gap that `mmap_base()` in Linux's
/// `arch/x86/mm/mmap.c` leaves for the stack.
const MMAP_BASE: u64 = 0x7fff_f7ff_f000;

/// `PMD_SIZE`, the size of a huge page.
const HUGE_PAGE: u64 = 2 << 20;

/// Rounds an address down to a page.
pub(super) const fn page_down(addr: u64) -> u64 {
    addr & !(PAGE_SIZE - 1)
}

/// Rounds an address or a length up to a page.
pub(super) const fn page_up(addr: u64) -> u64 {
    page_down(addr.wrapping_add(PAGE_SIZE - 1))
}

/// The largest power of two that is at most `len`; at least the page size.
fn power_of_two_within(len: u64) -> u64 {
    1 << len.max(PAGE_SIZE).ilog2()
}

/// A range of captured addresses with one translation.
#[derive(Clone, Copy, Debug)]
struct Region {
    end: u64,
    /// The difference of the trace's address and the captured one, wrapping.
    delta: u64,
    contents: MappedContents,
}

/// The contents of a mapping, as far as Linux aligns them to huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappedContents {
    /// Private anonymous memory, which is aligned if its length is a multiple of a huge page.
    Anonymous,
    /// A file, from this offset, whose file system aligns each mapping with a whole huge page.
    AlignedFile(u64),
    /// Contents that are not aligned.
    Unaligned,
}

impl MappedContents {
    /// The offset to which the start of a mapping of `len` bytes is congruent, if it is aligned.
    fn alignment(self, len: u64) -> Option<u64> {
        match self {
            Self::Anonymous => len.is_multiple_of(HUGE_PAGE).then_some(0),
            // `__thp_get_unmapped_area`: the huge pages of the file that the mapping has whole.
            Self::AlignedFile(offset) => {
                let first = offset.checked_next_multiple_of(HUGE_PAGE)?;
                (offset.saturating_add(len).saturating_sub(first) >= HUGE_PAGE).then_some(offset)
            }
            Self::Unaligned => None,
        }
    }

    /// The contents `bytes` after the start.
    fn after(self, bytes: u64) -> Self {
        match self {
            Self::AlignedFile(offset) => Self::AlignedFile(offset + bytes),
            Self::Anonymous | Self::Unaligned => self,
        }
    }
}

/// A contiguous part of a captured range, at its address in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: UserAddr,
    pub(super) len: u64,
}

/// The choice of a mapping's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The kernel chooses the address.
    Anywhere,
    /// The kernel chooses the address of a reservation.
    ///
    /// The program then unmaps both ends, to keep an aligned part, as glibc does for an arena.
    Reserved,
    /// The program chooses the address, by `MAP_FIXED` or by a hint that the kernel followed.
    ByProgram,
}

/// The start of the heap.
#[derive(Clone, Copy, Debug)]
struct Heap {
    captured_start: u64,
    trace_start: u64,
}

/// The translation of the addresses of one process; a forked child begins with a copy.
#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    layout: AddressLayout,
    /// The mappings by captured start, disjoint.
    regions: BTreeMap<u64, Region>,
    /// The ends of the mappings in the trace, by their start there.
    occupied: BTreeMap<u64, u64>,
    heap: Option<Heap>,
    /// The start of the heap in the trace, from which the first `brk` makes `heap`.
    brk_start: u64,
    /// The latest region of the fetch stream and of the data stream: start, end, delta.
    latest: [(u64, u64, u64); 2],
}

impl AddressMap {
    pub(super) fn new(layout: AddressLayout) -> Self {
        Self {
            layout,
            regions: BTreeMap::new(),
            occupied: BTreeMap::new(),
            heap: None,
            brk_start: 0,
            latest: [(0, 0, 0); 2],
        }
    }

    /// The page in the trace of a captured page; `None` if no mapping contains it.
    ///
    /// `stream` selects the cached region.
    pub(super) fn translate(&mut self, page: u64, stream: usize) -> Option<PageNo> {
        let addr = page << PAGE_SHIFT;
        let (start, end, delta) = self.latest[stream];
        if (start..end).contains(&addr) {
            return Some(UserAddr(addr.wrapping_add(delta)).page());
        }
        let (&start, region) = self.regions.range(..=addr).next_back()?;
        if addr >= region.end {
            return None;
        }
        self.latest[stream] = (start, region.end, region.delta);
        Some(UserAddr(addr.wrapping_add(region.delta)).page())
    }

    /// The address in the trace of a captured address; `None` if no mapping contains it.
    pub(super) fn addr(&self, addr: u64) -> Option<UserAddr> {
        let (_, region) = self.regions.range(..=addr).next_back()?;
        (addr < region.end).then(|| UserAddr(addr.wrapping_add(region.delta)))
    }

    /// Adds a mapping at a given address of the trace; it replaces mappings of the captured range.
    ///
    /// Both addresses and the length are multiples of the page size.
    pub(super) fn place(&mut self, captured: u64, trace: UserAddr, len: u64, contents: MappedContents) {
        self.remove(captured, len);
        self.insert(captured, trace.0, len, contents);
    }

    /// Sets the start of the heap in the trace.
    pub(super) fn set_brk_start(&mut self, brk: UserAddr) {
        self.brk_start = brk.0;
    }

    /// The address of the highest free range of this length below `mmap_base`.
    pub(super) fn top_down(&self, len: u64) -> UserAddr {
        self.top_down_at(len, PAGE_SIZE, 0)
    }

    /// As [`top_down`](Self::top_down), for a start that is congruent to `offset` modulo `align`.
    ///
    /// `align` is a power of two.
    fn top_down_at(&self, len: u64, align: u64, offset: u64) -> UserAddr {
        let fit = |gap_end: u64| {
            let highest = gap_end.saturating_sub(len);
            highest.saturating_sub(highest.wrapping_sub(offset) & (align - 1))
        };
        let mut gap_end = MMAP_BASE;
        for (&start, &end) in self.occupied.range(..MMAP_BASE).rev() {
            if fit(gap_end) >= end {
                break;
            }
            gap_end = gap_end.min(start);
        }
        UserAddr(fit(gap_end))
    }

    /// The address of a reservation of twice the size that the program needs.
    ///
    /// The part that the program keeps is aligned to half the length in the log. The reservation
    /// has the captured offset from that alignment, so that part is aligned in the trace too.
    fn reserve(&self, captured: u64, len: u64) -> UserAddr {
        self.top_down_at(len, power_of_two_within(len / 2), captured)
    }

    /// The address in the trace of a captured address outside all mappings.
    ///
    /// If a mapping ends there, it is the end of that mapping in the trace, because glibc places
    /// one arena after the other. Otherwise it is the captured address.
    fn intended_address(&self, captured: u64) -> u64 {
        let before = self.regions.range(..captured).next_back().filter(|(_, region)| region.end == captured);
        before.map_or(captured, |(_, region)| captured.wrapping_add(region.delta))
    }

    /// Adds a mapping at a captured address; returns its address in the trace.
    ///
    /// It replaces other mappings of the captured range.
    pub(super) fn map(&mut self, captured: u64, len: u64, placed: Placement, contents: MappedContents) -> UserAddr {
        let len = page_up(len);
        let trace = self.choose(captured, len, placed, contents);
        self.place(captured, trace, len, contents);
        trace
    }

    /// The address in the trace of a new mapping, while the present mappings exist.
    fn choose(&self, captured: u64, len: u64, placed: Placement, contents: MappedContents) -> UserAddr {
        match (self.layout, placed) {
            (AddressLayout::AsCaptured, _) => UserAddr(captured),
            (AddressLayout::Linux, Placement::Anywhere) => match contents.alignment(len) {
                Some(offset) => self.huge_aligned(len, offset),
                None => self.top_down(len),
            },
            (AddressLayout::Linux, Placement::Reserved) => self.reserve(captured, len),
            (AddressLayout::Linux, Placement::ByProgram) => {
                // The program chose an address within one of its mappings, or a free one.
                let wanted = self.addr(captured).unwrap_or(UserAddr(self.intended_address(captured)));
                if self.is_free_of_others(wanted.0, captured, len) {
                    return wanted;
                }
                // Not free in the trace: another address with the alignment of the captured one.
                self.top_down_at(len, power_of_two_within(len), captured)
            }
        }
    }

    /// The address that `__thp_get_unmapped_area` in Linux's mm/huge_memory.c chooses.
    ///
    /// It looks for a gap that is larger by a huge page, and aligns the start in it.
    fn huge_aligned(&self, len: u64, offset: u64) -> UserAddr {
        let gap = self.top_down(len + HUGE_PAGE).0;
        match offset.wrapping_sub(gap) & (HUGE_PAGE - 1) {
            0 => UserAddr(gap + HUGE_PAGE),
            up => UserAddr(gap + up),
        }
    }

    /// Removes a captured range; returns its pieces in the trace.
    pub(super) fn unmap(&mut self, captured: u64, len: u64) -> Vec<Piece> {
        let pieces = self.pieces(captured, len);
        self.remove(captured, page_up(len));
        pieces
    }

    /// The mapped pieces of a captured range in the trace.
    ///
    /// Adjacent mappings with different translations are different pieces.
    pub(super) fn pieces(&self, captured: u64, len: u64) -> Vec<Piece> {
        let end = captured.saturating_add(len);
        let mut pieces: Vec<Piece> = Vec::new();
        let first = self.regions.range(..=captured).next_back().map_or(captured, |(&start, _)| start);
        for (&start, region) in self.regions.range(first..end) {
            let (from, to) = (start.max(captured), region.end.min(end));
            if from >= to {
                continue;
            }
            let piece = Piece { start: UserAddr(from.wrapping_add(region.delta)), len: to - from };
            match pieces.last_mut() {
                Some(last) if last.start.0 + last.len == piece.start.0 => last.len += piece.len,
                _ => pieces.push(piece),
            }
        }
        pieces
    }

    /// Applies an `mremap` from one captured range to another; returns the address in the trace.
    ///
    /// The mapping is resized in place if Linux can do so, even if valgrind moved it.
    pub(super) fn remap(
        &mut self,
        old: u64,
        old_len: u64,
        new: u64,
        new_len: u64,
        placed: Placement,
        keep_old: bool,
    ) -> UserAddr {
        let (old_len, new_len) = (page_up(old_len), page_up(new_len));
        let contents = self.contents(old);
        let grows_freely = |at: u64| new_len <= old_len || self.is_free(at + old_len, new_len - old_len);
        let in_place = self.addr(old).filter(|at| !keep_old && placed != Placement::ByProgram && grows_freely(at.0));
        let trace = match (self.layout, in_place) {
            (AddressLayout::Linux, Some(at)) => at,
            // `get_unmapped_area` runs before the old mapping goes, so the places do not overlap.
            (AddressLayout::Linux, None) => self.choose(new, new_len, placed, contents),
            (AddressLayout::AsCaptured, _) => UserAddr(new),
        };
        if !keep_old {
            self.remove(old, old_len);
        }
        self.place(new, trace, new_len, contents);
        trace
    }

    /// Sets the captured break to `captured`; returns the break in the trace.
    pub(super) fn set_brk(&mut self, captured: u64) -> UserAddr {
        let heap = *self.heap.get_or_insert(Heap {
            captured_start: captured,
            trace_start: match self.layout {
                AddressLayout::Linux => self.brk_start,
                AddressLayout::AsCaptured => captured,
            },
        });
        let start = page_down(heap.captured_start);
        if let Some(region) = self.regions.get(&start) {
            let len = region.end - start;
            self.remove(start, len);
        }
        let end = page_up(captured);
        if end > start {
            self.place(start, UserAddr(page_down(heap.trace_start)), end - start, MappedContents::Anonymous);
        }
        UserAddr(captured.wrapping_sub(heap.captured_start).wrapping_add(heap.trace_start))
    }

    /// The address in the trace of a break that the program requests; 0 remains 0.
    pub(super) fn brk_request(&self, captured: u64) -> UserAddr {
        match self.heap {
            Some(heap) if captured != 0 => {
                UserAddr(captured.wrapping_sub(heap.captured_start).wrapping_add(heap.trace_start))
            }
            _ => UserAddr(captured),
        }
    }

    fn is_free(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.occupied.range(..end).next_back().is_none_or(|(_, &last)| last <= start)
    }

    /// Whether a range of the trace has no mapping, except those that a captured range replaces.
    fn is_free_of_others(&self, start: u64, captured: u64, len: u64) -> bool {
        if self.is_free(start, len) {
            return true;
        }
        let replaced = captured..captured.saturating_add(len);
        self.regions.iter().all(|(&from, region)| {
            // The parts of this mapping that remain, at their addresses in the trace.
            [(from, region.end.min(replaced.start)), (from.max(replaced.end), region.end)].iter().all(|&(from, to)| {
                let (from, to) = (from.wrapping_add(region.delta), to.wrapping_add(region.delta));
                from >= to || to <= start || start.saturating_add(len) <= from
            })
        })
    }

    /// The contents of the mapping at a captured address.
    fn contents(&self, captured: u64) -> MappedContents {
        let region = self.regions.range(..=captured).next_back().filter(|(_, region)| captured < region.end);
        region.map_or(MappedContents::Unaligned, |(start, region)| region.contents.after(captured - start))
    }

    fn insert(&mut self, captured: u64, trace: u64, len: u64, contents: MappedContents) {
        self.latest = [(0, 0, 0); 2];
        self.regions.insert(captured, Region { end: captured + len, delta: trace.wrapping_sub(captured), contents });
        self.occupied.insert(trace, trace + len);
    }

    /// Removes a captured range, and splits the mappings at its ends.
    fn remove(&mut self, captured: u64, len: u64) {
        let end = captured.saturating_add(len);
        self.latest = [(0, 0, 0); 2];
        let first = self.regions.range(..=captured).next_back().map_or(captured, |(&start, _)| start);
        let cut: Vec<(u64, Region)> = self.regions.range(first..end).map(|(&start, &region)| (start, region)).collect();
        for (start, region) in cut {
            if region.end <= captured {
                continue;
            }
            self.regions.remove(&start);
            self.occupied.remove(&start.wrapping_add(region.delta));
            if start < captured {
                self.insert(start, start.wrapping_add(region.delta), captured - start, region.contents);
            }
            if region.end > end {
                let contents = region.contents.after(end - start);
                self.insert(end, end.wrapping_add(region.delta), region.end - end, contents);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    #[test]
    fn a_mapping_takes_the_highest_gap_that_fits() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let a = space.map(0x483_5000, 2 * P, Placement::Anywhere, MappedContents::Anonymous);
        let b = space.map(0x483_7000, 3 * P, Placement::Anywhere, MappedContents::Anonymous);
        assert_eq!((a.0, b.0), (MMAP_BASE - 2 * P, MMAP_BASE - 5 * P));
        assert_eq!(space.unmap(0x483_5000, 2 * P), [Piece { start: a, len: 2 * P }]);
        assert_eq!(
            space.map(0x500_0000, 3 * P, Placement::Anywhere, MappedContents::Anonymous).0,
            MMAP_BASE - 8 * P,
            "the gap is too small"
        );
        assert_eq!(
            space.map(0x600_0000, P, Placement::Anywhere, MappedContents::Anonymous).0,
            MMAP_BASE - P,
            "the mapping fits the gap and is at its end"
        );
    }

    #[test]
    fn a_fixed_mapping_is_inside_its_reservation() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let whole = space.map(0x484_5000, 10 * P, Placement::Anywhere, MappedContents::Anonymous);
        let part = space.map(0x484_5000 + 4 * P, 2 * P, Placement::ByProgram, MappedContents::Anonymous);
        assert_eq!(part.0, whole.0 + 4 * P);
        for page in 0..10 {
            let captured = (0x484_5000 >> PAGE_SHIFT) + page;
            assert_eq!(space.translate(captured, 0), Some(PageNo((whole.0 >> PAGE_SHIFT) + page)));
        }
        assert_eq!(space.pieces(0x484_5000, 10 * P), [Piece { start: whole, len: 10 * P }]);
        assert_eq!(
            space.map(0x1_0000_0000, P, Placement::ByProgram, MappedContents::Anonymous).0,
            0x1_0000_0000,
            "a free address is unchanged"
        );
    }

    /// The calls of glibc's `new_heap`.
    ///
    /// It reserves twice the size, keeps an aligned half, and requests the next arena after it.
    #[test]
    fn arenas_keep_their_alignment_and_their_order() {
        const ARENA: u64 = 64 << 20;
        let mut space = AddressMap::new(AddressLayout::Linux);
        space.map(0x4000_0000, ARENA, Placement::Anywhere, MappedContents::Anonymous);
        let captured = 0x55d_a000;
        let aligned = 0x800_0000;
        let reserved = space.map(captured, 2 * ARENA, Placement::Reserved, MappedContents::Anonymous);
        space.unmap(captured, aligned - captured);
        space.unmap(aligned + ARENA, captured + ARENA - aligned);
        let arena = space.addr(aligned).unwrap();
        assert_eq!(arena.0, reserved.0 + (aligned - captured));
        assert_eq!(arena.0 % ARENA, 0);
        let next = space.map(aligned + ARENA, ARENA, Placement::ByProgram, MappedContents::Anonymous);
        assert!(next < arena, "the first arena has no gap after it");
        assert_eq!(next.0 % ARENA, 0);
        space.unmap(aligned + ARENA, ARENA);
        space.unmap(0x4000_0000, ARENA);
        assert_eq!(
            space.map(aligned + ARENA, ARENA, Placement::ByProgram, MappedContents::Anonymous).0,
            arena.0 + ARENA,
            "after the first arena"
        );
    }

    #[test]
    fn a_range_over_mappings_with_different_translations_has_two_pieces() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let low = space.map(0x10_0000, P, Placement::Anywhere, MappedContents::Anonymous);
        let high = space.map(0x10_1000, P, Placement::Anywhere, MappedContents::Anonymous);
        assert!(high < low, "the later mapping is below");
        assert_eq!(space.unmap(0x10_0000, 2 * P), [Piece { start: low, len: P }, Piece { start: high, len: P }]);
        assert_eq!(space.translate(0x100, 1), None);
    }

    #[test]
    fn the_heap_follows_the_executable() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        space.set_brk_start(UserAddr(0x5555_5557_0000));
        assert_eq!(space.brk_request(0), UserAddr(0));
        assert_eq!(space.set_brk(0x403_5000).0, 0x5555_5557_0000);
        assert_eq!(space.brk_request(0x405_6000).0, 0x5555_5559_1000);
        assert_eq!(space.set_brk(0x405_6000).0, 0x5555_5559_1000);
        assert_eq!(space.translate(0x4055, 1), Some(PageNo(0x5_5555_5590)));
        assert_eq!(space.set_brk(0x403_6000).0, 0x5555_5557_1000);
        assert_eq!(space.translate(0x4055, 1), None, "the heap is smaller");
    }

    #[test]
    fn mremap_grows_in_place_where_linux_would() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let hole = space.map(0x10_0000, 4 * P, Placement::Anywhere, MappedContents::Anonymous);
        let it = space.map(0x20_0000, P, Placement::Anywhere, MappedContents::Anonymous);
        space.unmap(0x10_0000, 4 * P);
        let grown = space.remap(0x20_0000, P, 0x30_0000, 3 * P, Placement::Anywhere, false);
        assert_eq!(grown, it, "Linux grows it in place, although valgrind moved it");
        assert_eq!(space.translate(0x302, 1), Some(PageNo((it.0 >> PAGE_SHIFT) + 2)));
        assert_eq!(space.translate(0x200, 1), None);
        assert_eq!(space.top_down(2 * P).0, hole.0 + 2 * P);
        assert_eq!(space.map(0x40_0000, P, Placement::Anywhere, MappedContents::Anonymous).0, MMAP_BASE - P);
        assert_eq!(
            space.remap(0x30_0000, 3 * P, 0x30_0000, 2 * P, Placement::Anywhere, false),
            it,
            "it shrinks in place"
        );
    }

    #[test]
    fn mremap_moves_a_mapping_below_its_old_place() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        // Something above it, without which it would grow in place.
        space.map(0x10_0000, P, Placement::Anywhere, MappedContents::Unaligned);
        let it = space.map(0x20_0000, 3 * P, Placement::Anywhere, MappedContents::Anonymous);
        let moved = space.remap(0x20_0000, 3 * P, 0x20_0000, 9 * P, Placement::Anywhere, false);
        assert_eq!(moved.0, it.0 - 9 * P, "Linux moves it, although valgrind grew it in place");
        assert_eq!(space.translate(0x208, 1), Some(PageNo((moved.0 >> PAGE_SHIFT) + 8)));
        assert_eq!(
            space.map(0x60_0000, 3 * P, Placement::Anywhere, MappedContents::Anonymous),
            it,
            "the old place is free"
        );
        let fixed = space.remap(0x60_0000, 3 * P, 0x60_3000, 3 * P, Placement::ByProgram, false);
        assert_eq!(fixed.0, it.0 - 12 * P, "the place after the old one is not free");
    }

    /// The addresses are those of Linux 6.18, for an empty space whose top is aligned likewise.
    #[test]
    fn mappings_of_huge_pages_are_aligned() {
        const HUGE: u64 = 2 << 20;
        let mut space = AddressMap::new(AddressLayout::Linux);
        let aligned = space.map(0x1000_0000, 2 * HUGE, Placement::Anywhere, MappedContents::Anonymous);
        assert_eq!(aligned.0, 0x7fff_f7a0_0000);
        let part = MappedContents::AlignedFile(8 * P);
        let file = space.map(0x2000_0000, 2 * HUGE - 8 * P, Placement::Anywhere, part);
        assert_eq!((file.0 % HUGE, file.0), (8 * P, 0x7fff_f760_8000));
        let small = space.map(0x3000_0000, HUGE, Placement::Anywhere, part);
        assert_eq!(small.0, file.0 - HUGE, "it has no whole huge page of the file");
        let shared = space.map(0x4000_0000, HUGE, Placement::Anywhere, MappedContents::Unaligned);
        assert_eq!(shared.0, small.0 - HUGE);
        space.unmap(0x2000_0000, P);
        let moved = space.remap(0x2000_1000, P, 0x5000_0000, 2 * HUGE, Placement::Anywhere, false);
        assert_eq!(moved.0 % HUGE, 9 * P, "what remains begins at the next page of the file");
    }

    #[test]
    fn a_fixed_mapping_takes_the_place_of_what_it_replaces() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let low = space.map(0x10_0000, 2 * P, Placement::Anywhere, MappedContents::Anonymous);
        space.map(0x10_2000, 2 * P, Placement::Anywhere, MappedContents::Anonymous);
        let whole = space.map(0x10_0000, 4 * P, Placement::ByProgram, MappedContents::Anonymous);
        assert_eq!(whole, low, "both mappings are replaced");
        let below = space.map(0x20_0000, P, Placement::Anywhere, MappedContents::Anonymous);
        assert_eq!(below.0, low.0 - P);
        let over = space.map(0x20_0000, 2 * P, Placement::ByProgram, MappedContents::Anonymous);
        assert_eq!(over.0, low.0 - 3 * P, "the page after it has another mapping");
        assert_eq!(space.translate(0x100, 1), Some(low.page()));
    }

    #[test]
    fn the_captured_layout_keeps_every_address() {
        let mut space = AddressMap::new(AddressLayout::AsCaptured);
        assert_eq!(space.map(0x483_5000, P, Placement::Anywhere, MappedContents::Anonymous).0, 0x483_5000);
        assert_eq!(space.set_brk(0x403_5000).0, 0x403_5000);
        assert_eq!(space.remap(0x483_5000, P, 0x500_0000, P, Placement::Anywhere, false).0, 0x500_0000);
    }
}
