//! Splitting the large folios of a range on request (`split_huge_pages_pid`).

use crate::mm::Mm;
use crate::space::Space;
use crate::thp::end_of_pieces;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::frames::IsolatedFolio;
use pagewright_types::{PageRange, VirtAddr};

/// What a request to split the folios of a range has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Large folios that were met.
    pub found: u64,
    /// Those that were split.
    pub split: u64,
}

impl<P: Platform> Mm<P> {
    /// Splits the large folios of anonymous memory in `range`, and counts them.
    ///
    /// A folio that something refers to beside its entries stays whole.
    pub fn split_huge_pages(&self, space: &Space<P>, range: PageRange) -> SplitCounts {
        self.declare_return_of(|| {
            let (mut counts, mut at) = (SplitCounts::default(), range.start());
            while let Some((isolated, end)) = self.next_large(space, PageRange::new(at, range.end())) {
                counts.found += 1;
                counts.split += u64::from(self.split_or_putback(isolated));
                at = end.min(range.end());
            }
            counts
        })
    }

    /// Splits the large folios of all spaces' anonymous memory, and counts them.
    ///
    /// As [`split_huge_pages`](Self::split_huge_pages); one that stays whole is counted for each
    /// space that maps it. Linux: `split_huge_pages_all`.
    pub fn split_all_huge_pages(&self) -> SplitCounts {
        let mut all = SplitCounts::default();
        self.for_each_space(|space| {
            let counts = self.split_huge_pages(space, P::Isa::USER);
            all.found += counts.found;
            all.split += counts.split;
        });
        all
    }

    /// The first large folio of a range, off its list, and where its pages end.
    fn next_large(&self, space: &Space<P>, range: PageRange) -> Option<(IsolatedFolio, VirtAddr)> {
        let map = space.map().read();
        for (_, _, part) in map.parts(range) {
            for (table, under) in map.tables(&self.tlb).read_locked(part) {
                for va in table.entries(under) {
                    let Some(leaf) = table.leaf(va).filter(|leaf| !leaf.is_special()) else { continue };
                    let folio = self.frames().folio(leaf.pfn());
                    if folio.is_large()
                        && folio.is_anon()
                        && let Some(isolated) = self.frames().isolate(folio)
                    {
                        return Some((isolated, end_of_pieces(va, leaf.page_at(va), folio)));
                    }
                }
            }
        }
        None
    }
}
