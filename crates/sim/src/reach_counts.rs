//! How many cached entries of the whole machine lead to each frame.
//!
//! A judge asks at every allocation whether anybody still reaches the frames handed out. Searching
//! every TLB for that would cost more than the allocation; these counts answer "no" at once. They
//! are kept while a judge is bound and cost nothing otherwise.
//!
//! Neighbours: [`crate::tlb`]'s arrays tell what enters and leaves them. Walks in flight are few,
//! and are looked at one by one.

use pagewright_types::{Level, Order, Pfn};
use std::cell::Cell;

/// Counts by the size of what is mapped: frames (tables too), 2 MiB blocks, 1 GiB blocks.
pub(crate) struct ReachCounts([Box<[Cell<u32>]>; Level::COUNT - 1]);

/// A cached value that leads to physical memory.
pub(crate) trait PointsTo: Copy {
    /// First frame and size of what a value cached for an entry of `level` leads to.
    fn points_to(self, level: Level) -> (Pfn, Level);
}

impl ReachCounts {
    /// No entry leads to any of `frames` frames.
    pub(crate) fn new(frames: usize) -> Self {
        Self([Level::PTE, Level::PMD, Level::PUD].map(|level| {
            let blocks = frames.div_ceil(level.pages() as usize);
            vec![Cell::new(0); blocks].into_boxed_slice()
        }))
    }

    /// An entry may lead past the end of memory; an access through it is a machine check, and
    /// nobody can be handed that frame.
    fn cell(&self, (pfn, size): (Pfn, Level)) -> Option<&Cell<u32>> {
        self.0[size.index()].get(pfn.index() / size.pages() as usize)
    }

    #[inline]
    pub(crate) fn gain(&self, to: (Pfn, Level)) {
        if let Some(count) = self.cell(to) {
            count.set(count.get() + 1);
        }
    }

    #[inline]
    pub(crate) fn lose(&self, to: (Pfn, Level)) {
        if let Some(count) = self.cell(to) {
            count.set(count.get() - 1);
        }
    }

    /// Whether any entry leads into the block.
    pub(crate) fn any(&self, pfn: Pfn, order: Order) -> bool {
        let end = pfn.index() + order.frames() as usize;
        [Level::PTE, Level::PMD, Level::PUD].into_iter().any(|size| {
            let pages = size.pages() as usize;
            let counts = &self.0[size.index()];
            let blocks = pfn.index() / pages..end.div_ceil(pages).min(counts.len());
            counts.get(blocks).is_some_and(|counts| counts.iter().any(|count| count.get() != 0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_reached_by_any_size_that_covers_part_of_it() {
        let reached = ReachCounts::new(4096);
        let pmd = (Pfn::new(1024), Level::PMD);
        reached.gain(pmd);
        reached.gain((Pfn::new(7), Level::PTE));
        assert!(reached.any(Pfn::new(1500), Order::ZERO));
        assert!(!reached.any(Pfn::new(1536), Order::PMD));
        assert!(reached.any(Pfn::new(0), Order::PMD));
        assert!(!reached.any(Pfn::new(8), Order::ZERO));
        reached.lose(pmd);
        assert!(!reached.any(Pfn::new(1024), Order::PMD));
        reached.gain((Pfn::new(u32::MAX), Level::PTE));
        assert!(!reached.any(Pfn::new(5000), Order::ZERO), "no memory there");
    }
}
