//! Finding a hole between items: where may a new mapping go?
//!
//! Key types: [`GapQuery`], [`GapDirection`].
//!
//! Mirrors Linux's `vm_unmapped_area` (`mm/mmap.c`) over `mas_empty_area` and `mas_empty_area_rev`:
//! the search walks from one end of the range, tries the hole beside each entry, and enters a
//! subtree only if the biggest hole within is long enough. So it visits one node of each level, and
//! at most two more paths for the ends of the range. Where Linux asks for a hole that is longer by
//! the alignment, this search is exact: it also tries, one by one, the holes that are long enough
//! only if they happen to lie well.
//!
//! Guards below items are, as in Linux, no part of the summaries: a hole that only a guard spoils
//! is tried and passed over.
//!
//! Not guaranteed: anything if items overlap.

use super::BPlusTree;
use super::arena::NodeId;
use super::item::{EndSummary, Gaps, TreeItem, TreeKey};
use super::node::{Digest, Entries};

/// From which end of the range holes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapDirection {
    /// The highest place is wanted: Linux's `VM_UNMAPPED_AREA_TOPDOWN`, the usual layout of `mmap`.
    TopDown,
    /// The lowest place is wanted: the legacy layout.
    BottomUp,
}

/// A hole that is wanted.
///
/// Linux: `struct vm_unmapped_area_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapQuery {
    /// Its length in pages, at least 1.
    pub pages: u64,
    /// Lowest page index at which it may begin.
    pub low: u64,
    /// Page index at which it must have ended.
    pub high: u64,
    /// It begins `align_offset` pages past a multiple of this many pages, a power of two; 1 if any
    /// page will do.
    pub align: u64,
    /// See [`Self::align`].
    pub align_offset: u64,
    /// Which of the possible places is wanted.
    pub direction: GapDirection,
}

/// A free run of pages, between two entries or an entry and the end of the range.
#[derive(Clone, Copy)]
struct Hole {
    from: u64,
    to: u64,
}

/// An entry as the search sees it: occupied from `start` to `end`, with holes of up to `gap` pages
/// inside.
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
    /// Where to begin so as to lie in `hole`, if possible.
    fn fit(&self, hole: Hole) -> Option<u64> {
        let first = hole.from.max(self.low);
        let last = hole.to.min(self.high).checked_sub(self.pages)?;
        let start = match self.direction {
            GapDirection::TopDown => last.checked_sub(last.wrapping_sub(self.align_offset) & (self.align - 1))?,
            GapDirection::BottomUp => first.checked_add(self.align_offset.wrapping_sub(first) & (self.align - 1))?,
        };
        (first <= start && start <= last).then_some(start)
    }

    /// The hole itself if the query fits into it.
    fn accepts(&self, hole: Hole) -> Option<Hole> {
        self.fit(hole).map(|_| hole)
    }

    /// The `i`th of `len` slots in the direction of the search.
    fn slot(&self, i: usize, len: usize) -> usize {
        match self.direction {
            GapDirection::TopDown => len - 1 - i,
            GapDirection::BottomUp => i,
        }
    }

    /// The hole that the search crosses from `edge`, the end of what it has seen, to `entry`.
    fn before(&self, entry: Span, edge: u64) -> Hole {
        match self.direction {
            GapDirection::TopDown => Hole { from: entry.end, to: edge },
            GapDirection::BottomUp => Hole { from: edge, to: entry.start },
        }
    }

    /// Where the search meets `entry`.
    fn near(&self, entry: Span) -> u64 {
        match self.direction {
            GapDirection::TopDown => entry.end,
            GapDirection::BottomUp => entry.start,
        }
    }

    /// Where the search leaves `entry`.
    fn far(&self, entry: Span) -> u64 {
        match self.direction {
            GapDirection::TopDown => entry.start,
            GapDirection::BottomUp => entry.end,
        }
    }

    /// Whether a hole inside `entry` may do.
    fn worth_entering(&self, entry: Span) -> bool {
        entry.gap >= self.pages && entry.start < self.high && self.low < entry.end
    }
}

impl<V: TreeItem<Summary = Gaps>> BPlusTree<V> {
    /// The first page of the highest or lowest run of free pages that answers `query`, or `None` if
    /// there is none. O(log n) steps for an alignment of 1, and again for each guard that is in the
    /// way.
    pub fn find_gap(&self, query: &GapQuery) -> Option<u64> {
        debug_assert!(query.pages > 0 && query.align.is_power_of_two(), "not a hole: {query:?}");
        let mut query = *query;
        loop {
            let hole = self.find_hole(&query)?;
            let guarded = self.at_or_after(hole.to).filter(|(key, _)| key.start() == hole.to);
            let guard = guarded.map_or(0, |(_, item)| item.guard());
            let usable = Hole { from: hole.from, to: hole.to.saturating_sub(guard) };
            if let Some(start) = query.fit(usable) {
                return Some(start);
            }
            match query.direction {
                GapDirection::TopDown => query.high = hole.from,
                GapDirection::BottomUp => query.low = hole.to,
            }
        }
    }

    /// The first hole in the direction of the search into which `query` fits, guards aside.
    fn find_hole(&self, query: &GapQuery) -> Option<Hole> {
        let Some(all) = self.digest().map(Span::from) else {
            return query.accepts(Hole { from: query.low, to: query.high });
        };
        let (begin, behind) = match query.direction {
            GapDirection::TopDown => (query.high, Hole { from: query.low, to: all.start }),
            GapDirection::BottomUp => (query.low, Hole { from: all.end, to: query.high }),
        };
        query
            .accepts(query.before(all, begin))
            .or_else(|| self.hole_below(self.root, self.height, query.near(all), query))
            .or_else(|| query.accepts(behind))
    }

    /// Searches the holes between the entries of `node`, which is `level` levels above the leaves
    /// and which the search meets at `edge`.
    fn hole_below(&self, node: NodeId, level: usize, edge: u64, query: &GapQuery) -> Option<Hole> {
        match level.checked_sub(1) {
            None => hole_between(&self.leaves[node].entries, edge, query, |_, _| None),
            Some(below) => hole_between(&self.inners[node], edge, query, |entry, child| {
                if query.worth_entering(entry) {
                    self.hole_below(*child, below, query.near(entry), query)
                } else {
                    None
                }
            }),
        }
    }
}

/// Tries the holes before each entry and, by `within`, those inside it.
fn hole_between<K: TreeKey, C>(
    entries: &Entries<K, Gaps, C>,
    mut edge: u64,
    query: &GapQuery,
    within: impl Fn(Span, &C) -> Option<Hole>,
) -> Option<Hole> {
    let len = entries.contents.len();
    for slot in (0..len).map(|i| query.slot(i, len)) {
        let entry = Span::from(entries.digest_at(slot)?);
        let found = query.accepts(query.before(entry, edge)).or_else(|| within(entry, &entries.contents[slot]));
        if found.is_some() {
            return found;
        }
        edge = query.far(entry);
    }
    None
}
