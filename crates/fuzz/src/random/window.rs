//! The pages that a program uses.

use super::program::{ProgramMode, ProgramShape};
use pagewright_types::{Level, PAGE_SIZE, VirtAddr};

/// The middle of the window.
const MIDDLE: u64 = 3 << 30;
/// The start of the heap, far above the window.
pub(crate) const HEAP: VirtAddr = VirtAddr::new(5 << 30);
/// Bytes of a block that a huge page can map.
pub(super) const BLOCK: u64 = Level::PMD.span();
/// The pages of each block that programs use, so that checks of a huge page stay cheap.
///
/// They are the first ones, which smaller folios map in pieces, and the middle and last ones.
const OF_BLOCK: &[u64] = &[0, 1, 3, 4, 7, 15, 16, 255, 256, 511];
/// The same in explored programs.
const OF_EXPLORED: &[u64] = &[0, 1, 3, 256, 511];

/// The pages that programs of a shape use.
///
/// They span two last-level tables and two tables of the level above, so that unmapping and mapping
/// them frees and allocates tables. A huge window has blocks of 2 MiB instead, with few pages each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: VirtAddr,
    /// The number of pages that programs use.
    pub(super) pages: u64,
    pub(super) heap_pages: u64,
    /// Whether it consists of blocks.
    pub(super) is_huge: bool,
    /// The pages of each block.
    of_block: &'static [u64],
}

impl Window {
    pub(crate) fn of(shape: ProgramShape) -> Self {
        let is_explored = matches!(shape.mode, ProgramMode::Explore(_));
        let heap_pages = if is_explored { 2 } else { 12 };
        if shape.is_huge() {
            // The second block, and with it a third one, have another table above the last level.
            let (blocks, of_block) = if is_explored { (2, OF_EXPLORED) } else { (3, OF_BLOCK) };
            let (start, pages) = (VirtAddr::new(MIDDLE - BLOCK), blocks * of_block.len() as u64);
            return Self { start, pages, heap_pages, is_huge: true, of_block };
        }
        let pages = match shape.mode {
            ProgramMode::Fast => 64,
            ProgramMode::Calls | ProgramMode::Linux => 48,
            ProgramMode::Explore(_) => 4,
        };
        let start = VirtAddr::new(MIDDLE - pages / 2 * PAGE_SIZE);
        Self { start, pages, heap_pages, is_huge: false, of_block: &[] }
    }

    /// The number of blocks of a huge window.
    pub(super) fn blocks(self) -> u64 {
        self.pages / self.of_block.len().max(1) as u64
    }

    /// The length in bytes.
    pub(crate) fn bytes(self) -> u64 {
        if self.is_huge { self.blocks() * BLOCK } else { self.pages * PAGE_SIZE }
    }

    /// The page with this index among those that programs use.
    pub(crate) fn page(self, index: u64) -> VirtAddr {
        if !self.is_huge {
            return self.start.add(index * PAGE_SIZE);
        }
        let of_block = self.of_block.len() as u64;
        let page = self.of_block[(index % of_block) as usize];
        self.start.add(index / of_block * BLOCK + page * PAGE_SIZE)
    }

    /// The same; index 0 is the page before the window, and the last index the page behind it.
    pub(super) fn page_or_neighbour(self, index: u64) -> VirtAddr {
        match index {
            0 => VirtAddr::new(self.start.raw() - PAGE_SIZE),
            last if last > self.pages => self.start.add(self.bytes()),
            _ => self.page(index - 1),
        }
    }

    /// The page with this index of a range from `start` on: the window, or neighbouring pages.
    pub(super) fn page_of_range(self, start: VirtAddr, index: u64) -> VirtAddr {
        if start == self.start { self.page(index) } else { start.add(index * PAGE_SIZE) }
    }

    /// Whether the checks read a page of some mapping: in a huge window, few of each block.
    pub(super) fn is_read(self, va: VirtAddr) -> bool {
        !self.is_huge || self.of_block.contains(&(va.page_index() % Level::ENTRIES as u64))
    }

    /// The window and one page on each side: the first page, and their number.
    pub(crate) fn with_neighbours(self) -> (VirtAddr, u64) {
        (VirtAddr::new(self.start.raw() - PAGE_SIZE), self.bytes() / PAGE_SIZE + 2)
    }

    /// The pages of the window and of the heap, and the pages next to them.
    pub(crate) fn all_pages(self) -> impl Iterator<Item = VirtAddr> {
        let window = (0..self.pages + 2).map(move |index| self.page_or_neighbour(index));
        window.chain((0..=self.heap_pages).map(|page| HEAP.add(page * PAGE_SIZE)))
    }
}
