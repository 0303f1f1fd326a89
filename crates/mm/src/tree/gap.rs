//! Finding a hole between items: where may a new mapping go?
//!
//! Key types: [`GapQuery`], [`Direction`].
//!
//! Mirrors Linux's `vm_unmapped_area` (`mm/mmap.c`) over `mas_empty_area` and `mas_empty_area_rev`: the search walks from one end of
//! the range, tries the hole beside each entry, and enters a subtree only if the biggest hole within is long enough. So it visits one
//! node of each level, and at most two more paths for the ends of the range. Where Linux asks for a hole that is longer by the alignment,
//! this search is exact: it also tries, one by one, the holes that are long enough only if they happen to lie well.
//!
//! Not guaranteed: anything if items overlap.

use super::Tree;
use super::arena::NodeId;
use super::item::{Extent, Gaps, Item};

/// From which end of the range holes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The highest place is wanted: Linux's `VM_UNMAPPED_AREA_TOPDOWN`, the usual layout of `mmap`.
    TopDown,
    /// The lowest place is wanted: the legacy layout.
    BottomUp,
}

/// A hole that is wanted. Linux: `struct vm_unmapped_area_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapQuery {
    /// Its length in pages.
    pub pages: u64,
    /// Lowest page index at which it may begin.
    pub low: u64,
    /// Page index at which it must have ended.
    pub high: u64,
    /// It begins `align_offset` pages past a multiple of this many pages, a power of two; 1 if any page will do.
    pub align: u64,
    /// See [`Self::align`].
    pub align_offset: u64,
    /// Which of the possible places is wanted.
    pub direction: Direction,
}

impl GapQuery {
    /// Where to begin so as to lie in the free pages `free_from..free_to`, if possible.
    fn fit(&self, free_from: u64, free_to: u64) -> Option<u64> {
        let from = free_from.max(self.low);
        let last = free_to.min(self.high).checked_sub(self.pages)?;
        let start = match self.direction {
            Direction::TopDown => last.checked_sub(last.wrapping_sub(self.align_offset) & (self.align - 1))?,
            Direction::BottomUp => from.checked_add(self.align_offset.wrapping_sub(from) & (self.align - 1))?,
        };
        (from <= start && start <= last).then_some(start)
    }

    /// The `i`th of `len` entries in the direction of the search.
    fn slot(&self, i: usize, len: usize) -> usize {
        match self.direction {
            Direction::TopDown => len - 1 - i,
            Direction::BottomUp => i,
        }
    }

    /// The free pages between an entry and the `edge` of what was visited before it.
    fn beside(&self, entry: Gaps, edge: u64) -> (u64, u64) {
        match self.direction {
            Direction::TopDown => (entry.end(), edge),
            Direction::BottomUp => (edge, entry.start()),
        }
    }

    /// The near edge of an entry: where the search meets it.
    fn near(&self, entry: Gaps) -> u64 {
        match self.direction {
            Direction::TopDown => entry.end(),
            Direction::BottomUp => entry.start(),
        }
    }

    /// The far edge of an entry: where the search leaves it.
    fn far(&self, entry: Gaps) -> u64 {
        match self.direction {
            Direction::TopDown => entry.start(),
            Direction::BottomUp => entry.end(),
        }
    }

    /// Whether a hole inside an entry may do.
    fn worth_entering(&self, entry: Gaps) -> bool {
        entry.gap() >= self.pages && entry.start() < self.high && self.low < entry.end()
    }
}

impl<V: Item<Summary = Gaps>> Tree<V> {
    /// The first page of the highest or lowest hole that answers `query`, or `None` if there is none. O(log n) steps for an alignment of 1.
    pub fn find_gap(&self, query: &GapQuery) -> Option<u64> {
        debug_assert!(query.pages > 0 && query.align.is_power_of_two(), "not a hole: {query:?}");
        let (begin, end) = match query.direction {
            Direction::TopDown => (query.high, query.low),
            Direction::BottomUp => (query.low, query.high),
        };
        let Some(all) = self.summary() else {
            return query.fit(query.low, query.high);
        };
        let (near_from, near_to) = query.beside(all, begin);
        let outer = || {
            // Past the last entry: from its far edge to the end of the range.
            let far = query.far(all);
            query.fit(far.min(end), far.max(end))
        };
        query.fit(near_from, near_to).or_else(|| self.gap_below(self.root, self.height, query.near(all), query)).or_else(outer)
    }

    /// Searches the holes between the entries below `node`, which is `level` levels above the leaves and begins at `edge`.
    fn gap_below(&self, node: NodeId, level: usize, mut edge: u64, query: &GapQuery) -> Option<u64> {
        let Some(below) = level.checked_sub(1) else {
            return self.gap_in_leaf(node, edge, query);
        };
        let inner = &self.inners[node];
        for i in 0..inner.summaries.len() {
            let slot = query.slot(i, inner.summaries.len());
            let entry = inner.summaries[slot];
            let (from, to) = query.beside(entry, edge);
            if let Some(start) = query.fit(from, to) {
                return Some(start);
            }
            if query.worth_entering(entry) {
                let within = self.gap_below(inner.children[slot], below, query.near(entry), query);
                if within.is_some() {
                    return within;
                }
            }
            edge = query.far(entry);
        }
        None
    }

    fn gap_in_leaf(&self, leaf: NodeId, mut edge: u64, query: &GapQuery) -> Option<u64> {
        let leaf = &self.leaves[leaf];
        for i in 0..leaf.items.len() {
            let (key, item) = leaf.entry(query.slot(i, leaf.items.len()))?;
            let entry = item.summary(key);
            let (from, to) = query.beside(entry, edge);
            if let Some(start) = query.fit(from, to) {
                return Some(start);
            }
            edge = query.far(entry);
        }
        None
    }
}
