//! Where a captured process's memory is, and where it would be on Linux.
//!
//! Valgrind places programs at addresses of its own: mappings grow upwards from the loader, the
//! heap stands behind the loader, the stack ends far below the top. The shape of page tables
//! follows from addresses, so [`AddressMap`] gives each mapping the address that Linux without
//! address randomisation chooses (`arch_get_unmapped_area_topdown`: the highest gap below
//! `mmap_base` that fits) and translates what the log says. Inside a mapping nothing moves. With
//! [`AddressLayout::AsCaptured`] everything stays where it was.
//!
//! Pages in no mapping are not the program's: valgrind's own objects and trampolines lie there.

use std::collections::BTreeMap;

use crate::trace::{AddressLayout, PAGE_SHIFT, PAGE_SIZE, PageNo, UserAddr};

/// `mm->mmap_base` of a 47-bit process without randomisation: `TASK_SIZE` minus 128 MB, the least
/// gap that `mmap_base()` in Linux's `arch/x86/mm/mmap.c` leaves for the stack.
const MMAP_BASE: u64 = 0x7fff_f7ff_f000;

/// Round down to a page.
pub(super) const fn page_down(addr: u64) -> u64 {
    addr & !(PAGE_SIZE - 1)
}

/// Round up to a page.
pub(super) const fn page_up(addr: u64) -> u64 {
    page_down(addr.wrapping_add(PAGE_SIZE - 1))
}

/// The largest power of two up to `len`, at least a page.
fn power_of_two_within(len: u64) -> u64 {
    1 << len.max(PAGE_SIZE).ilog2()
}

/// A range of captured addresses that moved together.
#[derive(Clone, Copy, Debug)]
struct Region {
    end: u64,
    /// What to add to a captured address, wrapping.
    delta: u64,
}

/// A piece of a captured range, in the trace's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: UserAddr,
    pub(super) len: u64,
}

/// Who chose a mapping's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The kernel.
    Anywhere,
    /// The kernel; and the program will give back at either end what its own alignment has no use
    /// for, as glibc does for its arenas.
    Reserved,
    /// The program, by `MAP_FIXED` or a hint that was followed.
    ByProgram,
}

/// The heap's place.
#[derive(Clone, Copy, Debug)]
struct Heap {
    captured_start: u64,
    trace_start: u64,
}

/// One process's address translation.
///
/// A forked child starts with its parent's.
#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    layout: AddressLayout,
    /// By captured start; disjoint.
    regions: BTreeMap<u64, Region>,
    /// The same, as the trace has it: start to end.
    occupied: BTreeMap<u64, u64>,
    heap: Option<Heap>,
    /// Where the heap will start once the log says where it started there.
    brk_start: u64,
    /// The latest region found, for the fetch and the data stream: start, end, delta.
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

    /// The trace's page for a captured one, `None` when the program has nothing there.
    ///
    /// `stream` picks the cache.
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

    /// The trace's address for a captured one in a mapping.
    pub(super) fn addr(&self, addr: u64) -> Option<UserAddr> {
        let (_, region) = self.regions.range(..=addr).next_back()?;
        (addr < region.end).then(|| UserAddr(addr.wrapping_add(region.delta)))
    }

    /// Enter a mapping at a known place: an image's.
    ///
    /// Both addresses and the length are multiples of the page size.
    pub(super) fn place(&mut self, captured: u64, trace: UserAddr, len: u64) {
        self.remove(captured, len);
        self.insert(captured, trace.0, len);
    }

    /// Where the heap will start.
    pub(super) fn set_brk_start(&mut self, brk: UserAddr) {
        self.brk_start = brk.0;
    }

    /// The highest free range below `mmap_base` of this length.
    pub(super) fn top_down(&self, len: u64) -> UserAddr {
        self.top_down_at(len, PAGE_SIZE, 0)
    }

    /// The highest free range below `mmap_base` of this length that starts at `offset` above a
    /// multiple of `align`, a power of two.
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

    /// Where a reservation goes: below everything, at the captured offset from the alignment for
    /// which a program asks twice what it needs. What it keeps is aligned in the log; so it is in
    /// the trace.
    fn reserve(&self, captured: u64, len: u64) -> UserAddr {
        self.top_down_at(len, power_of_two_within(len / 2), captured)
    }

    /// Where a program means an address that is in none of its mappings: just behind one, if it is
    /// that; glibc puts arena after arena.
    fn intended_address(&self, captured: u64) -> u64 {
        let before = self.regions.range(..captured).next_back().filter(|(_, region)| region.end == captured);
        before.map_or(captured, |(_, region)| captured.wrapping_add(region.delta))
    }

    /// A mapping came to be at a captured address, over whatever was there; returns where the trace
    /// has it.
    pub(super) fn map(&mut self, captured: u64, len: u64, placed: Placement) -> UserAddr {
        let len = page_up(len);
        let trace = match (self.layout, placed) {
            (AddressLayout::AsCaptured, Placement::Anywhere | Placement::Reserved | Placement::ByProgram) => captured,
            (AddressLayout::Linux, Placement::Anywhere) => self.top_down(len).0,
            (AddressLayout::Linux, Placement::Reserved) => self.reserve(captured, len).0,
            (AddressLayout::Linux, Placement::ByProgram) => match self.addr(captured) {
                // Inside a mapping of its own: the program goes by what it was given.
                Some(inside) => inside.0,
                None if self.is_free(self.intended_address(captured), len) => self.intended_address(captured),
                // Whatever the program wanted there, it has the alignment that it had.
                None => self.top_down_at(len, power_of_two_within(len), captured).0,
            },
        };
        self.place(captured, UserAddr(trace), len);
        UserAddr(trace)
    }

    /// A captured range is unmapped; returns what that is in the trace.
    pub(super) fn unmap(&mut self, captured: u64, len: u64) -> Vec<Piece> {
        let pieces = self.pieces(captured, len);
        self.remove(captured, page_up(len));
        pieces
    }

    /// What a captured range is in the trace, without what isn't mapped: one piece, unless it spans
    /// mappings that moved apart.
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

    /// `mremap` moved or resized a mapping from one captured range to another; returns where the
    /// trace has it now. Linux grows in place where it can, whatever valgrind did.
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
        let before = self.addr(old);
        if !keep_old {
            self.remove(old, old_len);
        }
        let in_place = before.filter(|&at| !keep_old && placed == Placement::Anywhere && self.is_free(at.0, new_len));
        let trace = match (self.layout, in_place) {
            (AddressLayout::Linux, Some(at)) => at,
            (AddressLayout::Linux, None) => return self.map(new, new_len, placed),
            (AddressLayout::AsCaptured, _) => UserAddr(new),
        };
        self.place(new, trace, new_len);
        trace
    }

    /// The captured break is `captured` now; returns it in the trace's addresses.
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
            self.place(start, UserAddr(page_down(heap.trace_start)), end - start);
        }
        UserAddr(captured.wrapping_sub(heap.captured_start).wrapping_add(heap.trace_start))
    }

    /// A break that the program asks for, in the trace's addresses; 0 stays 0.
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

    fn insert(&mut self, captured: u64, trace: u64, len: u64) {
        self.latest = [(0, 0, 0); 2];
        self.regions.insert(captured, Region { end: captured + len, delta: trace.wrapping_sub(captured) });
        self.occupied.insert(trace, trace + len);
    }

    /// Forget a captured range, cutting the mappings at its edges.
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
                self.insert(start, start.wrapping_add(region.delta), captured - start);
            }
            if region.end > end {
                self.insert(end, end.wrapping_add(region.delta), region.end - end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    #[test]
    fn mappings_go_to_the_highest_gap() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let a = space.map(0x483_5000, 2 * P, Placement::Anywhere);
        let b = space.map(0x483_7000, 3 * P, Placement::Anywhere);
        assert_eq!((a.0, b.0), (MMAP_BASE - 2 * P, MMAP_BASE - 5 * P));
        assert_eq!(space.unmap(0x483_5000, 2 * P), [Piece { start: a, len: 2 * P }]);
        assert_eq!(space.map(0x500_0000, 3 * P, Placement::Anywhere).0, MMAP_BASE - 8 * P, "too long for the gap");
        assert_eq!(space.map(0x600_0000, P, Placement::Anywhere).0, MMAP_BASE - P, "fits the gap, at its end");
    }

    #[test]
    fn fixed_mappings_stay_inside_what_was_reserved() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let whole = space.map(0x484_5000, 10 * P, Placement::Anywhere);
        let part = space.map(0x484_5000 + 4 * P, 2 * P, Placement::ByProgram);
        assert_eq!(part.0, whole.0 + 4 * P);
        for page in 0..10 {
            let captured = (0x484_5000 >> PAGE_SHIFT) + page;
            assert_eq!(space.translate(captured, 0), Some(PageNo((whole.0 >> PAGE_SHIFT) + page)));
        }
        assert_eq!(space.pieces(0x484_5000, 10 * P), [Piece { start: whole, len: 10 * P }]);
        assert_eq!(space.map(0x1_0000_0000, P, Placement::ByProgram).0, 0x1_0000_0000, "a free address is kept");
    }

    /// `new_heap` of glibc: twice the size is reserved, cut to an aligned half, and the next arena
    /// is asked for behind it.
    #[test]
    fn arenas_keep_their_alignment_and_their_order() {
        const ARENA: u64 = 64 << 20;
        let mut space = AddressMap::new(AddressLayout::Linux);
        space.map(0x4000_0000, ARENA, Placement::Anywhere);
        let captured = 0x55d_a000;
        let aligned = 0x800_0000;
        let reserved = space.map(captured, 2 * ARENA, Placement::Reserved);
        space.unmap(captured, aligned - captured);
        space.unmap(aligned + ARENA, captured + ARENA - aligned);
        let arena = space.addr(aligned).unwrap();
        assert_eq!(arena.0, reserved.0 + (aligned - captured));
        assert_eq!(arena.0 % ARENA, 0);
        let next = space.map(aligned + ARENA, ARENA, Placement::ByProgram);
        assert!(next < arena, "no room behind the first");
        assert_eq!(next.0 % ARENA, 0);
        space.unmap(aligned + ARENA, ARENA);
        space.unmap(0x4000_0000, ARENA);
        assert_eq!(space.map(aligned + ARENA, ARENA, Placement::ByProgram).0, arena.0 + ARENA, "behind the first");
    }

    #[test]
    fn a_range_over_mappings_that_moved_apart_is_cut() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let low = space.map(0x10_0000, P, Placement::Anywhere);
        let high = space.map(0x10_1000, P, Placement::Anywhere);
        assert!(high < low, "the later one is below");
        assert_eq!(space.unmap(0x10_0000, 2 * P), [Piece { start: low, len: P }, Piece { start: high, len: P }]);
        assert_eq!(space.translate(0x100, 1), None);
    }

    #[test]
    fn the_heap_moves_to_the_executable() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        space.set_brk_start(UserAddr(0x5555_5557_0000));
        assert_eq!(space.brk_request(0), UserAddr(0));
        assert_eq!(space.set_brk(0x403_5000).0, 0x5555_5557_0000);
        assert_eq!(space.brk_request(0x405_6000).0, 0x5555_5559_1000);
        assert_eq!(space.set_brk(0x405_6000).0, 0x5555_5559_1000);
        assert_eq!(space.translate(0x4055, 1), Some(PageNo(0x5_5555_5590)));
        assert_eq!(space.set_brk(0x403_6000).0, 0x5555_5557_1000);
        assert_eq!(space.translate(0x4055, 1), None, "the heap shrank");
    }

    #[test]
    fn mremap_grows_in_place_where_linux_would() {
        let mut space = AddressMap::new(AddressLayout::Linux);
        let hole = space.map(0x10_0000, 4 * P, Placement::Anywhere);
        let it = space.map(0x20_0000, P, Placement::Anywhere);
        space.unmap(0x10_0000, 4 * P);
        let grown = space.remap(0x20_0000, P, 0x30_0000, 3 * P, Placement::Anywhere, false);
        assert_eq!(grown, it, "valgrind moved it, Linux had room above");
        assert_eq!(space.translate(0x302, 1), Some(PageNo((it.0 >> PAGE_SHIFT) + 2)));
        assert_eq!(space.translate(0x200, 1), None);
        assert_eq!(space.top_down(2 * P).0, hole.0 + 2 * P);
        assert_eq!(space.map(0x40_0000, P, Placement::Anywhere).0, MMAP_BASE - P);
        let moved = space.remap(0x30_0000, 3 * P, 0x30_0000, 9 * P, Placement::Anywhere, false);
        assert_eq!(moved.0, MMAP_BASE - 10 * P, "valgrind grew it in place, Linux had no room");
    }

    #[test]
    fn as_captured_nothing_moves() {
        let mut space = AddressMap::new(AddressLayout::AsCaptured);
        assert_eq!(space.map(0x483_5000, P, Placement::Anywhere).0, 0x483_5000);
        assert_eq!(space.set_brk(0x403_5000).0, 0x403_5000);
        assert_eq!(space.remap(0x483_5000, P, 0x500_0000, P, Placement::Anywhere, false).0, 0x500_0000);
    }
}
