//! Debts of a folio in use: what must be flushed before its frames are used for anything else.
//!
//! A folio gets a debt when a TLB may still reach its frames through a mapping that is gone, or may
//! still read its page at a frame that the page left. The call that frees the frames parks them
//! under it, and a store to the folio settles it first (`tlb`).
//!
//! Not guaranteed: that the debt is still owed. Only the ledger of `tlb` knows.

use crate::folio::Folio;
use pagewright_types::DebtKey;

impl Folio<'_> {
    /// Adds a debt that the frames will owe when they are freed, by this or another caller.
    ///
    /// For a caller that gives up a reference while a TLB may still reach the folio through a
    /// mapping that is gone.
    pub fn add_debt(self, key: DebtKey) {
        self.record().merge_debt(key);
    }

    /// The debt that [`add_debt`](Self::add_debt) recorded; [`DebtKey::NONE`] for none.
    #[inline]
    pub fn debt(self) -> DebtKey {
        self.record().debt()
    }

    /// Forgets a debt that is settled, unless another was added since it was read.
    pub fn forget_debt(self, settled: DebtKey) {
        self.record().forget_debt(settled);
    }
}
