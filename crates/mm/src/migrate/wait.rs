//! Waiting for pages that are being moved (`migration_entry_wait`).
//!
//! The caller holds nothing inside the lock of its space: no table, no token of a family, no folio
//! (INV-MIGRATE-WAIT). Its debt may not be settled, since a flush waits for no entry.

use crate::mm::Mm;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_sync::atomic::Ordering;
use pagewright_table::Tables;
use pagewright_types::PageRange;

impl<P: Platform> Mm<P> {
    /// Waits until no own entry of `range` is a migration entry.
    ///
    /// If the caller holds the space for writing, no other appears there. Otherwise others may, and
    /// its operation handles the entries that it meets. It is free while no page is moved.
    #[inline]
    pub(crate) fn await_migrations(&self, tables: Tables<'_, P>, range: PageRange) {
        plant!(MigrationNotAwaited => return);
        if self.migrators.load(Ordering::Acquire) > 0 {
            let mut rest = range;
            while let Some(va) = tables.first_migrating(rest) {
                tables.await_migration(va);
                rest = PageRange::new(va, range.end());
            }
        }
    }
}
