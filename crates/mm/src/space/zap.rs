//! Clearing the entries under a range (`zap_page_range`, `unmap_page_range`).

use super::Space;
use crate::mm::Mm;
use crate::rmap::Tally;
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_types::{PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Clears every leaf under `range`. References and the flush ride in `gather`. The caller holds the space.
    pub(crate) fn zap<'a>(&'a self, space: &'a Space<P>, range: PageRange, gather: &mut Gather<'a, P>) {
        self.reduce(space, range, Rights::empty());
        self.zap_at_end(space, range, gather);
    }

    /// The same for a space that nobody runs and nobody will: what it could do is not reduced but over.
    pub(super) fn zap_at_end<'a>(&'a self, space: &'a Space<P>, range: PageRange, gather: &mut Gather<'a, P>) {
        space.rss().note_peak();
        for (table, part) in space.table().tables(&self.tlb, range) {
            let step = table.level().span();
            let mut tally = Tally::default();
            let mut va = part.start();
            while va < part.end() {
                if let Some(debt) = table.take(va) {
                    if !debt.parked().is_special() {
                        self.uncount_mapping(debt.parked().leaf(), &mut tally);
                    }
                    gather.absorb(debt);
                }
                va = va.align_down(step).add(step);
            }
            self.lower(space, &tally);
        }
    }
}
