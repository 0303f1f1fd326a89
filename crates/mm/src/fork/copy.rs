//! Copying the entries of one mapping.

use crate::counters::Gauge;
use crate::error::MmError;
use crate::mm::Mm;
use crate::rmap::Tally;
use crate::space::Space;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::{Locked, OwnedLeaf, Reserve};
use pagewright_tlb::Gather;
use pagewright_types::{Counter, Level, PageRange, Rights};

impl<P: Platform> Mm<P> {
    /// Copies what stands under `range`, one table of the parent after the other. Tables of the child are had before the parent's is locked.
    pub(super) fn copy_entries<'a>(
        &'a self,
        parent: &'a Space<P>,
        child: &Space<P>,
        range: PageRange,
        gather: &mut Gather<'a, P>,
    ) -> Result<(), MmError> {
        for span in parent.table().spans(&self.tlb, range) {
            let mut reserve = Reserve::new(&self.tlb);
            reserve.fill(child.table().missing(&self.tlb, span.start(), Level::PTE))?;
            let before = reserve.len();
            child.table().ensure(&self.tlb, span.start(), Level::PTE, &mut reserve);
            self.gauges.add(Gauge::PageTablePages, (before - reserve.len()) as u64);
            let Some(from) = parent.table().lock(&self.tlb, span.start(), Level::PTE) else { continue };
            let Some(to) = child.table().lock(&self.tlb, span.start(), Level::PTE) else { continue };
            let copied = self.copy_table(child, &from, &to, span, gather);
            self.tlb.count(Counter::PwForkEntries, copied);
        }
        Ok(())
    }

    /// Copies the entries of one locked table under `span`; returns how many.
    fn copy_table<'a>(
        &'a self,
        child: &Space<P>,
        from: &Locked<'a, P>,
        to: &Locked<'_, P>,
        span: PageRange,
        gather: &mut Gather<'a, P>,
    ) -> u64 {
        let mut copied = 0;
        let mut tally = Tally::default();
        for va in span.iter() {
            let Some(leaf) = from.leaf(va) else { continue };
            copied += 1;
            if leaf.flags.contains(LeafFlags::SPECIAL) {
                to.install(va, OwnedLeaf::special(leaf));
                continue;
            }
            // First the parent loses the right to store, then the child gets the page.
            if let Some(debt) = from.update(va, share) {
                gather.absorb(debt);
            }
            // Whatever the walker noted until then is noted in the copy, too.
            let Some(leaf) = from.leaf(va) else { continue };
            let folio = self.frames().folio(leaf.pfn).get();
            self.count_mapping(leaf.pfn, &mut tally);
            to.install(va, OwnedLeaf::new(Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf }, folio));
        }
        self.raise(child, &tally);
        copied
    }
}

/// A leaf whose page belongs to two spaces from now on.
fn share(leaf: Leaf) -> Leaf {
    Leaf { rights: leaf.rights - Rights::WRITE, flags: leaf.flags - LeafFlags::EXCLUSIVE, ..leaf }
}
