//! Runs of entries that map neighbouring pages of a large folio, which are counted together.

use core::ops::Range;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_tlb::frames::{Folio, PageCounts};
use pagewright_types::Pfn;

/// Neighbouring entries of one table that map neighbouring pages of a large folio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PieceRun {
    /// The first frame of the folio.
    pub(super) head: Pfn,
    /// The pages that the entries map.
    pub(super) pages: Range<u32>,
    /// How the counts of these pages may change.
    pub(super) counts: PageCounts,
}

impl PieceRun {
    /// The run of the entry of `leaf`, which maps a page of `folio`, in a table of one space.
    #[inline]
    pub(super) fn of(folio: Folio<'_>, leaf: Leaf) -> Self {
        let page = folio.page_of(leaf.pfn);
        Self { head: folio.pfn(), pages: page..page + 1, counts: counts_of(leaf.flags.contains(LeafFlags::EXCLUSIVE)) }
    }

    /// Adds `next` at the end, if it goes on with this run; returns whether it did.
    #[inline]
    pub(super) fn join(&mut self, next: &Self) -> bool {
        let joins = self.head == next.head && self.pages.end == next.pages.start && self.counts == next.counts;
        if joins {
            self.pages.end = next.pages.end;
        }
        joins
    }
}

/// How the count of a page may change whose entry is, or was until now, exclusive.
#[inline]
pub(crate) fn counts_of(exclusive: bool) -> PageCounts {
    if exclusive { PageCounts::Sole } else { PageCounts::Shared }
}
