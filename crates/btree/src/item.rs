//! Keys, items, and the summaries by which a search skips subtrees.
//!
//! Key types: [`TreeKey`], [`TreeItem`], and [`SubtreeSummary`], which `()`, [`MaxEnd`] and
//! [`Gaps`] implement.
//!
//! All positions are page indices, of an address space or of a file; ends are exclusive.
//!
//! Not guaranteed: that an item's summary agrees with its key. [`TreeItem::summary`] must depend
//! only on the key and on parts of the item that change only in
//! [`BPlusTree::update`](super::BPlusTree::update) and
//! [`BPlusTree::rekey`](super::BPlusTree::rekey).

/// A key of a tree, by which its items are ordered.
pub trait TreeKey: Copy + Ord {
    /// The greatest key; it fills the unused slots of a node.
    const MAX: Self;

    /// Returns the page index at which an item with this key begins.
    ///
    /// A greater key never has a smaller start.
    fn start(self) -> u64;

    /// Returns the greatest key whose item begins at page `start`.
    fn last_at(start: u64) -> Self;
}

/// At most one item begins at each page.
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

/// Several items may begin at one page, the first part, if they differ in the second part.
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

/// An item of a tree.
pub trait TreeItem {
    /// The key that orders it.
    type Key: TreeKey;
    /// The summary by which searches skip subtrees; `()` for look-ups by key only.
    type Summary: SubtreeSummary;

    /// Returns the summary of this item alone, under key `key`.
    ///
    /// The tree stores the summary beside the key, and searches do not read the item.
    fn summary(&self, key: Self::Key) -> Self::Summary;

    /// Returns the length in pages of the guard gap below the item.
    ///
    /// [`BPlusTree::find_gap`](super::BPlusTree::find_gap) places nothing in it, although its pages
    /// are free: the guard of a stack that grows down (Linux's `vm_start_gap`). Look-ups ignore it.
    fn guard(&self) -> u64 {
        0
    }
}

/// A summary of neighbouring items, which the tree stores for each subtree.
///
/// [`join`](Self::join) must be associative. Linux's augmented red-black trees have the same
/// (`RB_DECLARE_CALLBACKS`).
pub trait SubtreeSummary: Copy + PartialEq {
    /// Returns the summary of these items followed by the items of `next`.
    ///
    /// The first item of `next` begins at page `next_start`.
    #[must_use]
    fn join(self, next_start: u64, next: Self) -> Self;
}

/// A summary that knows where its items end, for searches by range.
pub trait EndSummary: SubtreeSummary {
    /// Returns the greatest end of any of the items, a page index.
    fn end(self) -> u64;
}

/// No summary, for trees that are searched by key only.
impl SubtreeSummary for () {
    #[inline]
    fn join(self, _next_start: u64, (): Self) -> Self {}
}

/// The greatest end of items that may overlap.
///
/// Linux: `rb_subtree_last` of `mm/interval_tree.c`, which is inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxEnd {
    end: u64,
}

impl MaxEnd {
    /// Returns the summary of one item that ends before page `end`.
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

/// The greatest end of disjoint items, and the largest gap between two of them.
///
/// Linux: `gap[]` of the maple tree's `maple_arange_64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    end: u64,
    gap: u64,
}

impl Gaps {
    /// Returns the summary of one item that ends before page `end`.
    #[inline]
    pub const fn until(end: u64) -> Self {
        Self { end, gap: 0 }
    }

    /// Returns the length in pages of the largest gap between two neighbours.
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
