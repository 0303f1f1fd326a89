//! Making a private page exclusive without a store (`FAULT_FLAG_UNSHARE` in `do_wp_page`).
//!
//! This precedes a pin for reading. The next copy-on-write would leave a page that other spaces
//! map, too, behind with its pin.

use super::{Fault, FaultProgress};
use crate::error::FaultError;
use pagewright_arch::LeafFlags;
use pagewright_sync::Platform;
use pagewright_table::{LeafView, LockedTable};
use pagewright_types::{Counter, Level};

impl<P: Platform> Fault<'_, P> {
    /// Makes the entry exclusive, and leaves it as writable and as dirty as it was.
    ///
    /// Whether it keeps the page is the rule of a store ([`reuse_or_copy`](Self::reuse_or_copy)).
    pub(super) fn unshare(&self, leaf: LeafView) -> Result<FaultProgress, FaultError> {
        let outcome = match (leaf.is_special(), leaf.level()) {
            (true, Level::PTE) => self.replace(None),
            (true, _) => Ok(self.split_huge()),
            (false, _) => self.reuse_or_copy(leaf, |locked| self.make_exclusive(locked)),
        };
        if matches!(outcome, Ok(FaultProgress::Done(_))) {
            self.mm.tlb.count(Counter::PwUnshare, 1);
        }
        outcome
    }

    /// Makes the leaf of a page that is reused exclusive, and no more.
    fn make_exclusive(&self, locked: &LockedTable<'_, P>) {
        if let Some(debt) = locked.run(self.vma.mlocked()).protect(self.va, |leaf| leaf.with(LeafFlags::EXCLUSIVE)) {
            debt.settle();
        }
    }
}
