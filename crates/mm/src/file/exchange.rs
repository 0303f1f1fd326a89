//! The copy of a page that moves takes its place in the cache (`folio_migrate_mapping`).

use super::cache::{CacheEntry, index_of};
use super::object::FileObject;
use crate::migrate::MigrateStop;
use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::Folio;

impl<P: Platform> FileObject<P> {
    /// Makes the cache name `copy` in place of `source`, if `exchange` succeeds under its lock.
    ///
    /// The caller holds the folio's lock and a reference. `exchange` takes the reference of the
    /// cache; the cache gets a new one of the copy.
    ///
    /// # Errors
    /// [`MigrateStop`] of `exchange`, or because the page has left the cache; nothing has changed.
    pub(crate) fn exchange_cached<T>(
        &self,
        mm: &Mm<P>,
        source: Folio<'_>,
        copy: Folio<'_>,
        exchange: impl FnOnce() -> Result<T, MigrateStop>,
    ) -> Result<T, MigrateStop> {
        let mut pages = self.pages.lock();
        let index = index_of(&pages, source).ok_or(MigrateStop)?;
        let exchanged = exchange()?;
        let page = mm.frames().folio(copy.pfn()).get().into_stored();
        pages.update(index, |cached| *cached = CacheEntry::Page(page));
        Ok(exchanged)
    }
}
