//! Counts, for each frame, the cached entries of the whole machine that point to it.
//!
//! At every allocation a judge asks whether a CPU can still reach the allocated frames. A search of
//! every TLB would cost more than the allocation; with these counts the answer is a look-up. They
//! are kept only while a judge is bound.
//!
//! Neighbours: the arrays of [`crate::tlb`] report the entries that they gain and lose. Walks in
//! flight are few and not counted.

use pagewright_types::{Level, Order, Pfn};
use std::cell::Cell;

/// The counts, for base pages and tables, and for blocks: of 2 MiB and 1 GiB with 4 KiB pages.
pub(crate) struct ReachCounts([(Level, Box<[Cell<u32>]>); Level::COUNT - 1]);

/// A cached value that points to physical memory.
pub(crate) trait PointsTo: Copy {
    /// The block that a value points to, as its first frame and size.
    ///
    /// `level` is that of the table entry for which the value is cached.
    fn points_to(self, level: Level) -> (Pfn, Level);
}

impl ReachCounts {
    /// Makes counts of zero for `frames` frames, of the tree whose last level is `last`.
    pub(crate) fn new(frames: usize, last: Level) -> Self {
        let sizes = [Level::PTE, Level::PMD, Level::PUD].map(|level| last.of_same_tree(level.raw()));
        Self(sizes.map(|level| {
            let blocks = frames.div_ceil(level.pages() as usize);
            (level, vec![Cell::new(0); blocks].into_boxed_slice())
        }))
    }

    /// The count of a block, or `None` past the end of memory.
    ///
    /// An entry may point past the end of memory. An access through it is a machine check, and no
    /// such frame is ever allocated.
    fn cell(&self, (pfn, size): (Pfn, Level)) -> Option<&Cell<u32>> {
        self.0[size.index()].1.get(pfn.index() / size.pages() as usize)
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

    /// Whether any entry points into the block.
    pub(crate) fn any(&self, pfn: Pfn, order: Order) -> bool {
        let end = pfn.index() + order.frames() as usize;
        self.0.iter().any(|(size, counts)| {
            let pages = size.pages() as usize;
            let blocks = pfn.index() / pages..end.div_ceil(pages).min(counts.len());
            counts.get(blocks).is_some_and(|counts| counts.iter().any(|count| count.get() != 0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb::WalkCacheEntry;
    use pagewright_types::Granule;

    #[test]
    fn a_table_counts_in_the_size_of_its_granule() {
        let (last, above) = (Granule::Size16K.level(0), Granule::Size16K.level(1));
        let reached = ReachCounts::new(4096, last);
        let path = WalkCacheEntry { table: Pfn::new(4092), ..WalkCacheEntry::default() };
        reached.gain(path.points_to(above));
        assert!(reached.any(Pfn::new(4092), last.granule().order()));
        assert!(!reached.any(Pfn::new(4088), last.granule().order()));
        reached.lose(path.points_to(above));
        assert!(!reached.any(Pfn::new(4092), last.granule().order()));
    }

    #[test]
    fn an_entry_of_any_size_that_overlaps_a_block_counts() {
        let reached = ReachCounts::new(4096, Level::PTE);
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
