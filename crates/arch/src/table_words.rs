//! The entries of one table as words of memory.

use crate::entry::Pte;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::Level;

/// The entries of a table, on a machine where an access of an entry is an access of a word.
///
/// The operations are those of [`Effects`](crate::Effects), for entries of this table by their
/// index. The machine has checked the frame, once for all of them.
#[derive(Clone, Copy)]
pub struct TableWords<'m>(pub &'m [AtomicU64; Level::ENTRIES]);

impl TableWords<'_> {
    /// As [`Effects::load`](crate::Effects::load).
    ///
    /// # Panics
    /// When `index` is that of no entry; so does each operation.
    #[inline]
    pub fn load(self, index: usize) -> Pte {
        Pte::from_raw(self.0[index].load(Ordering::Acquire))
    }

    /// As [`Effects::store`](crate::Effects::store).
    #[inline]
    pub fn store(self, index: usize, pte: Pte) {
        self.0[index].store(pte.raw(), Ordering::Release);
    }

    /// As [`Effects::swap`](crate::Effects::swap).
    #[inline]
    pub fn swap(self, index: usize, pte: Pte) -> Pte {
        Pte::from_raw(self.0[index].swap(pte.raw(), Ordering::AcqRel))
    }

    /// As [`Effects::compare_exchange`](crate::Effects::compare_exchange).
    ///
    /// # Errors
    /// The entry found instead, if it differs; nothing was stored.
    #[inline]
    pub fn compare_exchange(self, index: usize, current: Pte, new: Pte) -> Result<(), Pte> {
        let outcome = self.0[index].compare_exchange(current.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire);
        outcome.map(drop).map_err(Pte::from_raw)
    }
}
