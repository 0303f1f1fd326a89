//! What TLBs may still read of a file's pages (`tlb_linger`).
//!
//! A page in the cache has its key in the record of its folio: there, a store settles it. A page
//! that leaves the cache is read again into another frame, so its key joins that of the file, and
//! each page that is added to the cache takes the file's key along.
//!
//! **INV-LINGER-FILE** A page of a file is stored to after every flush that TLBs owe for any frame
//! that held it: the key of a page that leaves the cache joins that of the file, and a page that is
//! added takes it along.
//!
//! A truncation needs no key: it meets the tables of all mappings of what it removes, and flushes
//! what lingers there.
//!
//! Whether translations linger is a matter of cost, not of safety: of a file that has had a writer
//! none do, because its next store would flush at once.
//!
//! Neighbours: [`Tlb::settle_folio`](pagewright_tlb::Tlb::settle_folio) precedes each store.
//!
//! Not covered: bytes that the file system changes without a store here. A file whose pages change
//! elsewhere ([`FileOps`](super::FileOps)) must not be mapped while translations may linger.

use super::object::FileObject;
use crate::mm::Mm;
use core::sync::atomic::Ordering;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::Folio;
use pagewright_types::DebtKey;

impl<P: Platform> FileObject<P> {
    /// Whether translations of its pages may linger: it is a file that never had a writer.
    pub(crate) fn may_linger(&self) -> bool {
        !self.is_shmem() && !self.written.load(Ordering::Relaxed)
    }

    /// Notes that the file has a writer, or a mapping that may become writable for all.
    pub(crate) fn note_writer(&self) {
        if !self.written.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::Relaxed);
        }
    }

    /// The key of pages that left the cache.
    ///
    /// The caller holds the lock of the cache.
    fn evicted_key(&self) -> DebtKey {
        DebtKey::new(self.evicted_key.load(Ordering::Relaxed))
    }

    /// Adds the key of a page that leaves the cache.
    ///
    /// The caller holds the lock of the cache.
    pub(super) fn keep_key_of(&self, folio: Folio<'_>) {
        let key = self.evicted_key().merge(folio.debt());
        plant!(EvictedKeyLost; (), self.evicted_key.store(key.raw(), Ordering::Relaxed));
    }

    /// Gives a page that is added to the cache the key of those that left it.
    ///
    /// The caller holds the lock of the cache.
    #[inline]
    pub(super) fn give_key_to(&self, mm: &Mm<P>, folio: Folio<'_>) {
        let key = self.evicted_key();
        if key != DebtKey::NONE {
            self.give_owed_key_to(mm, folio, key);
        }
    }

    #[cold]
    fn give_owed_key_to(&self, mm: &Mm<P>, folio: Folio<'_>, key: DebtKey) {
        if mm.tlb.owing(key).0.is_empty() {
            self.evicted_key.store(DebtKey::NONE.raw(), Ordering::Relaxed);
        } else {
            folio.add_debt(key);
        }
    }
}
