//! Searches for a gap between items, in which a new mapping can be placed.
//!
//! Key types: [`GapQuery`], [`GapDirection`].
//!
//! As Linux's `vm_unmapped_area` (`mm/mmap.c`) does with `mas_empty_area` and `mas_empty_area_rev`,
//! the search proceeds from one end of the range, tries the gap beside each entry, and enters a
//! subtree only if its largest gap is long enough. So it visits one node of each level, and at most
//! two more paths for the ends of the range. Linux searches for a gap that is longer by the
//! alignment. This search is exact: it also tries the shorter gaps, which fit only if their start
//! is suitably aligned.
//!
//! As in Linux, the summaries ignore the guard gaps below items. A gap that is long enough only
//! without the guard is tried and rejected.
//!
//! Not guaranteed: anything if items overlap.

use super::BPlusTree;
use super::arena::NodeId;
use super::item::{EndSummary, Gaps, TreeItem, TreeKey};
use super::node::{Digest, Entries};

/// The end of the range from which a search for a gap starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapDirection {
    /// Finds the highest address: `VM_UNMAPPED_AREA_TOPDOWN`, the usual layout of `mmap`.
    TopDown,
    /// Finds the lowest address: the legacy layout of `mmap`.
    BottomUp,
}

/// A search for a gap (`struct vm_unmapped_area_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapQuery {
    /// Length in pages, at least 1.
    pub pages: u64,
    /// Lowest page index of the range to search.
    pub low: u64,
    /// Page index at which the range to search ends, exclusive.
    pub high: u64,
    /// Alignment in pages, a power of two; 1 for none.
    ///
    /// The result is [`align_offset`](Self::align_offset) pages after a multiple of it.
    pub align: u64,
    /// Offset in pages from the alignment.
    pub align_offset: u64,
    /// Whether to find the highest or the lowest address.
    pub direction: GapDirection,
}

/// Free pages between two entries, or between an entry and an end of the range.
#[derive(Clone, Copy)]
struct Gap {
    from: u64,
    to: u64,
}

/// The pages of an entry, from `start` to `end`, with gaps of up to `gap` pages inside.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    gap: u64,
}

impl<K: TreeKey> From<Digest<K, Gaps>> for Span {
    fn from(entry: Digest<K, Gaps>) -> Self {
        Self { start: entry.first.start(), end: entry.summary.end(), gap: entry.summary.gap() }
    }
}

impl GapQuery {
    /// Returns the start of the result in `gap`, if it fits.
    fn fit(&self, gap: Gap) -> Option<u64> {
        let first = gap.from.max(self.low);
        let last = gap.to.min(self.high).checked_sub(self.pages)?;
        let start = match self.direction {
            GapDirection::TopDown => last.checked_sub(last.wrapping_sub(self.align_offset) & (self.align - 1))?,
            GapDirection::BottomUp => first.checked_add(self.align_offset.wrapping_sub(first) & (self.align - 1))?,
        };
        (first <= start && start <= last).then_some(start)
    }

    /// Returns `gap` if the result fits into it.
    fn if_fits(&self, gap: Gap) -> Option<Gap> {
        self.fit(gap).map(|_| gap)
    }

    /// Returns the `i`th of `len` slots in the direction of the search.
    fn slot(&self, i: usize, len: usize) -> usize {
        match self.direction {
            GapDirection::TopDown => len - 1 - i,
            GapDirection::BottomUp => i,
        }
    }

    /// Returns the gap between `edge`, up to which the search has proceeded, and `entry`.
    fn gap_before(&self, entry: Span, edge: u64) -> Gap {
        match self.direction {
            GapDirection::TopDown => Gap { from: entry.end, to: edge },
            GapDirection::BottomUp => Gap { from: edge, to: entry.start },
        }
    }

    /// Returns the end of `entry` that the search reaches first.
    fn near(&self, entry: Span) -> u64 {
        match self.direction {
            GapDirection::TopDown => entry.end,
            GapDirection::BottomUp => entry.start,
        }
    }

    /// Returns the end of `entry` that the search reaches last.
    fn far(&self, entry: Span) -> u64 {
        match self.direction {
            GapDirection::TopDown => entry.start,
            GapDirection::BottomUp => entry.end,
        }
    }

    /// Returns whether a gap inside `entry` may be long enough and in the range.
    fn may_fit_inside(&self, entry: Span) -> bool {
        entry.gap >= self.pages && entry.start < self.high && self.low < entry.end
    }
}

impl<V: TreeItem<Summary = Gaps>> BPlusTree<V> {
    /// Returns the first page of the highest or lowest free range that satisfies `query`, if any.
    ///
    /// Takes O(log n) steps for an alignment of 1, and as many again for each gap that is too short
    /// because of a guard.
    ///
    /// Linux: `vm_unmapped_area`.
    pub fn find_gap(&self, query: &GapQuery) -> Option<u64> {
        debug_assert!(query.pages > 0 && query.align.is_power_of_two(), "an impossible query: {query:?}");
        let mut query = *query;
        loop {
            let gap = self.find_unguarded(&query)?;
            let guarded = self.at_or_after(gap.to).filter(|(key, _)| key.start() == gap.to);
            let guard = guarded.map_or(0, |(_, item)| item.guard());
            let usable = Gap { from: gap.from, to: gap.to.saturating_sub(guard) };
            if let Some(start) = query.fit(usable) {
                return Some(start);
            }
            match query.direction {
                GapDirection::TopDown => query.high = gap.from,
                GapDirection::BottomUp => query.low = gap.to,
            }
        }
    }

    /// Returns the first gap in the direction of the search that satisfies `query`.
    ///
    /// Guards are ignored.
    fn find_unguarded(&self, query: &GapQuery) -> Option<Gap> {
        let Some(all) = self.digest().map(Span::from) else {
            return query.if_fits(Gap { from: query.low, to: query.high });
        };
        let (begin, after) = match query.direction {
            GapDirection::TopDown => (query.high, Gap { from: query.low, to: all.start }),
            GapDirection::BottomUp => (query.low, Gap { from: all.end, to: query.high }),
        };
        query
            .if_fits(query.gap_before(all, begin))
            .or_else(|| self.gap_below(self.root, self.height, query.near(all), query))
            .or_else(|| query.if_fits(after))
    }

    /// Searches the gaps between the entries of `node`, `level` levels above the leaves.
    ///
    /// The search reaches the node at `edge`.
    fn gap_below(&self, node: NodeId, level: usize, edge: u64, query: &GapQuery) -> Option<Gap> {
        match level.checked_sub(1) {
            None => gap_between(&self.leaves[node].entries, edge, query, |_, _| None),
            Some(below) => gap_between(&self.inners[node], edge, query, |entry, child| {
                if query.may_fit_inside(entry) { self.gap_below(*child, below, query.near(entry), query) } else { None }
            }),
        }
    }
}

/// Tries the gap before each entry and then, by `inside`, the gaps inside the entry.
fn gap_between<K: TreeKey, C>(
    entries: &Entries<K, Gaps, C>,
    mut edge: u64,
    query: &GapQuery,
    inside: impl Fn(Span, &C) -> Option<Gap>,
) -> Option<Gap> {
    let len = entries.contents.len();
    for slot in (0..len).map(|i| query.slot(i, len)) {
        let entry = Span::from(entries.digest_at(slot)?);
        let found = query.if_fits(query.gap_before(entry, edge)).or_else(|| inside(entry, &entries.contents[slot]));
        if found.is_some() {
            return found;
        }
        edge = query.far(entry);
    }
    None
}
