//! What a tree stores: keys, items, and the summaries by which a search skips subtrees.
//!
//! Key types: [`TreeKey`], [`TreeItem`], [`SubtreeSummary`] with its three kinds `()`, [`MaxEnd`] and [`Gaps`].
//!
//! All positions are page indices (of an address space or of a file), ends are exclusive.
//!
//! Not guaranteed: that an item's summary agrees with its key – [`TreeItem::summary`] is the item's
//! promise, and it must change only inside [`BPlusTree::update`](super::BPlusTree::update) and
//! [`BPlusTree::rekey`](super::BPlusTree::rekey).

/// The order of a tree's items.
pub trait TreeKey: Copy + Ord {
    /// The greatest key there is.
    ///
    /// Fills the unused slots of a node.
    const MAX: Self;

    /// Page index at which an item with this key begins.
    ///
    /// Never falls as keys rise.
    fn start(self) -> u64;

    /// The greatest key whose item begins at `start`.
    fn last_at(start: u64) -> Self;
}

/// One item for each first page.
impl TreeKey for u64 {
    const MAX: Self = u64::MAX;

    #[inline]
    fn start(self) -> u64 {
        self
    }

    #[inline]
    fn last_at(start: u64) -> Self {
        start
    }
}

/// Several items may begin at one page (first part) if they differ in the second part.
impl TreeKey for (u64, u64) {
    const MAX: Self = (u64::MAX, u64::MAX);

    #[inline]
    fn start(self) -> u64 {
        self.0
    }

    #[inline]
    fn last_at(start: u64) -> Self {
        (start, u64::MAX)
    }
}

/// What a tree stores.
pub trait TreeItem {
    /// Its place in the order.
    type Key: TreeKey;
    /// What a search wants to know of many items at once; `()` for nothing.
    type Summary: SubtreeSummary;

    /// The summary of this item alone, which has key `key`.
    ///
    /// The tree keeps it beside the key and looks at the item no more.
    fn summary(&self, key: Self::Key) -> Self::Summary;

    /// Pages below the item in which [`BPlusTree::find_gap`](super::BPlusTree::find_gap) may not place
    /// anything, although they are free: the guard of a stack that grows down (Linux's
    /// `vm_start_gap`). Look-ups don't see it.
    fn guard(&self) -> u64 {
        0
    }
}

/// Knowledge about a run of neighbouring items.
///
/// Joining is associative.
pub trait SubtreeSummary: Copy + PartialEq {
    /// The summary of this run followed by the run `next`, whose first item begins at page
    /// `next_start`.
    #[must_use]
    fn join(self, next_start: u64, next: Self) -> Self;
}

/// A summary that bounds how far its items reach, as searches for overlaps need.
pub trait EndSummary: SubtreeSummary {
    /// The page index past the furthest page of any item in the run.
    fn end(self) -> u64;
}

/// No knowledge: for trees that are searched by key only.
impl SubtreeSummary for () {
    #[inline]
    fn join(self, _next_start: u64, (): Self) -> Self {}
}

/// How far the items of a run reach; they may overlap.
///
/// Linux: `rb_subtree_last` of `mm/interval_tree.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxEnd {
    end: u64,
}

impl MaxEnd {
    /// Of one item that ends before page `end`.
    #[inline]
    pub const fn until(end: u64) -> Self {
        Self { end }
    }
}

impl SubtreeSummary for MaxEnd {
    #[inline]
    fn join(self, _next_start: u64, next: Self) -> Self {
        Self { end: self.end.max(next.end) }
    }
}

impl EndSummary for MaxEnd {
    #[inline]
    fn end(self) -> u64 {
        self.end
    }
}

/// The extent of a run of disjoint items and the biggest hole between them.
///
/// Linux: `gap[]` of the maple tree's `maple_arange_64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    end: u64,
    gap: u64,
}

impl Gaps {
    /// Of one item that ends before page `end`.
    #[inline]
    pub const fn until(end: u64) -> Self {
        Self { end, gap: 0 }
    }

    /// Pages of the biggest hole between two neighbours of the run.
    #[inline]
    pub const fn gap(self) -> u64 {
        self.gap
    }
}

impl SubtreeSummary for Gaps {
    #[inline]
    fn join(self, next_start: u64, next: Self) -> Self {
        let between = next_start.saturating_sub(self.end);
        Self { end: self.end.max(next.end), gap: self.gap.max(next.gap).max(between) }
    }
}

impl EndSummary for Gaps {
    #[inline]
    fn end(self) -> u64 {
        self.end
    }
}
