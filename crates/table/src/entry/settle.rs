//! Rights to store, and what TLBs may still read (INV-LINGER-CONTENTS).
//!
//! A page that moved may be read at the frame that it left until the key of its folio is settled.
//! So an entry gets a right to store to a folio after its key was settled. `mprotect` gives none
//! while the key is owed, and the first store faults.

use super::EntryRun;
use crate::locked_table::{LockedTable, TableRight};
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Rights, VirtAddr};

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Settles the key of the folio of `leaf`, a new entry, if it has the right to store.
    ///
    /// One load where nothing has ever lingered.
    #[inline]
    pub(super) fn settle_before_stores(&self, leaf: Leaf) {
        if self.table.tables.tlb.may_have_lingered() {
            self.settle_gained_right(Rights::empty(), leaf);
        }
    }

    /// The same, of an entry whose leaf is `old` before.
    #[inline]
    pub(super) fn settle_before_widening(&self, old: Leaf, leaf: Leaf) {
        if self.table.tables.tlb.may_have_lingered() {
            self.settle_gained_right(old.rights, leaf);
        }
    }

    /// The same, of the entry for `va`, which is a leaf and gets the right to store.
    #[inline]
    pub(super) fn settle_before_reuse(&self, va: VirtAddr) {
        if self.table.tables.tlb.may_have_lingered() {
            self.settle_reused(va);
        }
    }

    #[cold]
    fn settle_gained_right(&self, before: Rights, leaf: Leaf) {
        if (leaf.rights - before).contains(Rights::WRITE) && !leaf.flags.contains(LeafFlags::SPECIAL) {
            self.table.tables.tlb.settle_folio(self.frames().folio(leaf.pfn));
        }
    }

    #[cold]
    fn settle_reused(&self, va: VirtAddr) {
        let leaf = self.table.leaf(va).expect("a leaf that is reused");
        self.table.tables.tlb.settle_folio(self.frames().folio(leaf.pfn()));
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
