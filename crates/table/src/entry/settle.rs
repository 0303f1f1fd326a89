//! Rights to store, and what TLBs may still read (INV-LINGER-CONTENTS).
//!
//! A page that moved may be read at the frame that it left until the key of its folio is paid. So
//! an entry gets a right to store to a folio after its key was settled. `mprotect` gives none while
//! the key is unpaid, and the first store faults.

use super::EntryRun;
use crate::locked_table::{LockedTable, TableRight};
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::Folio;
use pagewright_types::Rights;

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Settles the key of a folio if an entry of it is about to have a right to store.
    #[inline]
    pub(super) fn settle_before_stores(&self, folio: Folio<'_>, rights: Rights) {
        if rights.contains(Rights::WRITE) {
            self.table.tables.tlb.settle_folio(folio);
        }
    }

    /// The same, of an entry whose leaf is replaced by `leaf`.
    #[inline]
    pub(super) fn settle_before_widening(&self, old: Leaf, leaf: Leaf) {
        let gains = (leaf.rights - old.rights).contains(Rights::WRITE) && !leaf.flags.contains(LeafFlags::SPECIAL);
        if gains {
            self.settle_before_stores(self.frames().folio(leaf.pfn), leaf.rights);
        }
    }
}

impl<P: Platform, R: TableRight> LockedTable<'_, P, R> {
    /// What `new`, a leaf that gains a right to store, may be without a flush.
    ///
    /// The same leaf, without that right if TLBs may read its page at another frame.
    #[cold]
    pub(super) fn without_unsettled_right(&self, new: Pte) -> Pte {
        plant!(ProtectGivesUnsettledRight => return new);
        let tlb = self.tables.tlb;
        let must_settle = tlb.frames().find_folio(P::Isa::frame(new)).is_some_and(|folio| tlb.must_settle(folio));
        match P::Isa::decode(self.level(), new) {
            Entry::Leaf(leaf) if must_settle => {
                P::Isa::leaf(self.level(), Leaf { rights: leaf.rights - Rights::WRITE, ..leaf })
            }
            _ => new,
        }
    }
}
