//! Making a private page exclusive without a store (`FAULT_FLAG_UNSHARE` in `do_wp_page`).
//!
//! This precedes a pin for reading. The next copy-on-write would leave a page that other spaces
//! map, too, behind with its pin.

use super::{Fault, FaultKind, FaultProgress};
use crate::error::FaultError;
use pagewright_arch::LeafFlags;
use pagewright_sync::Platform;
use pagewright_table::LeafView;
use pagewright_types::{Counter, Level};

impl<P: Platform> Fault<'_, P> {
    /// Makes the entry exclusive, and leaves it as writable and as dirty as it was.
    ///
    /// Keeps the page if this entry has the only reference, and replaces it by a copy otherwise.
    pub(super) fn unshare(&self, leaf: LeafView) -> Result<FaultProgress, FaultError> {
        let outcome = match (leaf.is_special(), leaf.level()) {
            (true, Level::PTE) => self.replace(None),
            (true, _) => Ok(self.split_huge()),
            (false, _) => self.unshare_page(leaf),
        };
        if matches!(outcome, Ok(FaultProgress::Done(_))) {
            self.mm.tlb.count(Counter::PwUnshare, 1);
        }
        outcome
    }

    fn unshare_page(&self, leaf: LeafView) -> Result<FaultProgress, FaultError> {
        let Some(locked) = self.lock_if_same_leaf() else { return Ok(FaultProgress::RaceLost) };
        let folio = self.mm.frames().folio(leaf.pfn());
        // INV-COW-REUSE, as for a store.
        if folio.is_anon() && self.can_reuse(&locked, folio, leaf) {
            let own = |leaf: LeafView| leaf.with(LeafFlags::EXCLUSIVE);
            if let Some(debt) = locked.run(self.vma.mlocked()).protect(self.va, own) {
                debt.settle();
            }
            return Ok(FaultProgress::Done(FaultKind::Minor));
        }
        self.replace_by_copy(locked, leaf)
    }
}
