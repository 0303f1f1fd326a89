//! Looking at the entries of a table, whether other spaces share it or not.

use crate::locked_table::{LockedTable, TableRight};
use crate::tables::{Tables, part_end};
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

/// The right to read a table, by the path that its space has to it.
#[derive(Clone, Copy)]
pub struct ReadOnly {
    /// Whether a pointer on the way is shared.
    pub(super) shared: bool,
    /// The product of the share counts on the way.
    pub(super) sharers: u64,
}

impl TableRight for ReadOnly {
    #[inline]
    fn limits_entries(&self) -> bool {
        self.shared
    }
}

impl<P: Platform> LockedTable<'_, P, ReadOnly> {
    /// Whether other spaces may share the table.
    pub fn is_shared(&self) -> bool {
        self.right.shared
    }

    /// The product of the share counts on the way.
    ///
    /// It is 1 if no other space reaches the table, and its inverses add up to 1 over all paths to
    /// the table. It is not the number of spaces that reach the table, and says nothing about other
    /// tables with entries of the same page.
    pub fn sharers(&self) -> u64 {
        self.right.sharers
    }
}

impl<'h, P: Platform> Tables<'h, P> {
    /// Locks the table of the last entry for `va`, to read it.
    ///
    /// `None` if there is neither a table of the last level nor a leaf above.
    pub fn read_lock(&self, va: VirtAddr) -> Option<LockedTable<'h, P, ReadOnly>> {
        self.lock_walked(va, |path| path).ok()
    }

    /// The tables with entries of `range`, each locked, and the part under each.
    pub fn read_locked(
        &self,
        range: PageRange,
    ) -> impl Iterator<Item = (LockedTable<'h, P, ReadOnly>, PageRange)> + use<'h, P> {
        self.walked(range, |path| path)
    }

    /// The tables with entries of `range`, each locked by a counted walk, and the part under each.
    ///
    /// `right` makes the right of each out of the path to it.
    pub(super) fn walked<R: TableRight, F: Fn(ReadOnly) -> R>(
        &self,
        range: PageRange,
        right: F,
    ) -> impl Iterator<Item = (LockedTable<'h, P, R>, PageRange)> + use<'h, P, R, F> {
        let (tables, mut at, end) = (*self, range.start(), range.end());
        core::iter::from_fn(move || {
            while at < end {
                let (start, table) = (at, tables.lock_walked(at, &right));
                at = part_end(start, table.as_ref().map_or_else(|level| *level, LockedTable::level), end);
                if let Ok(table) = table {
                    return Some((table, PageRange::new(start, at)));
                }
            }
            None
        })
    }
}
