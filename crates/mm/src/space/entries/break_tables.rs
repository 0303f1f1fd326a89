//! Breaking shared page tables before an edit of one space.
//!
//! [`pagewright_table::Tables::own`] copies tables from a reserve, which this file fills. These
//! break first:
//!
//! - a fault that changes an entry of one space, and the locked walk of `gup`;
//! - `reserve_splits` (`call/splits.rs`): `mprotect`, `mlock`, `mbind`, `mseal`, and advice that
//!   sets flags of a mapping; `mlockall` for all of the space;
//! - `mremap`, `brk`, and the growth of a stack;
//! - `advise_pages` (`call/madvise/pages.rs`): advice that discards pages, and guards;
//! - the clearing of soft-dirty bits (`clear_refs.rs`);
//! - a fork that shares nothing.
//!
//! `munmap` breaks the tables at the ends of its range ([`own_ends`](Mm::own_ends)), and leaves the
//! others. `MADV_COLD` and `MADV_PAGEOUT` break none: they leave out what others share.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::MmHooks;
use pagewright_sync::Platform;
use pagewright_table::{OwnTables, TableReserve, Tables};
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Makes the tables of `range` the space's own, so that their entries can be edited.
    ///
    /// Waits for pages of them that are being moved. If the caller holds the space for writing,
    /// none is moved from then on. The caller holds nothing inside the lock of the space.
    ///
    /// # Errors
    /// [`MmError::NoFrames`] or [`MmError::TooManyHolders`]; what programs can see has not changed.
    #[inline]
    pub(crate) fn own_tables<'h>(&self, tables: Tables<'h, P>, range: PageRange) -> Result<OwnTables<'h, P>, MmError> {
        let own = match tables.try_own(range) {
            Some(own) => own,
            None => tables.own(range, &mut MmHooks(self), |reserve, wanted| self.fill_to_break(reserve, wanted))?,
        };
        self.await_migrations(tables, range);
        Ok(own)
    }

    /// Breaks the tables that are shared and lie in `range` only in part.
    ///
    /// # Errors
    /// As [`own_tables`](Self::own_tables).
    pub(crate) fn own_ends(&self, tables: Tables<'_, P>, range: PageRange) -> Result<(), MmError> {
        tables.own_ends(range, &mut MmHooks(self), |reserve, wanted| self.fill_to_break(reserve, wanted))
    }

    fn fill_to_break(&self, reserve: &mut TableReserve<'_, P>, wanted: usize) -> Result<(), MmError> {
        Ok(self.fill(reserve, wanted)?)
    }
}
