//! The copy takes the place of the page (`folio_migrate_mapping`).
//!
//! ```text
//!   flush complete: no CPU can store through an entry
//!   clear the dirty flag, remembered
//!   copy
//!   under the locks of the cache and of the slot, or of the folio if it is in neither:
//!     the cache and the slot name the page?   its references are the migrator's, the caches' and the
//!     entries'? freeze.   dirty again? undo.
//!     transfer to the copy; name the copy
//! ```
//!
//! Nothing is copied while the page is frozen. A kernel access that holds a reference prevents the
//! freeze; one that has put it after a store has set the dirty flag.

use super::{MigrateStop, MovingPage};
use crate::mm::Mm;
use pagewright_arch::PteSlot;
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_table::restore_migrated;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioOwner, FrozenFolio, IsolatedFolio};
use pagewright_types::judge::Fact;
use pagewright_types::{DebtKey, Order, Pfn};

impl<P: Platform> Mm<P> {
    /// Moves a page whose entries are cleared, and flushed unless their translations linger.
    ///
    /// `key` is that of translations that linger.
    ///
    /// # Errors
    /// The page, if it stays; it has its entries again.
    pub(super) fn finish_page(
        &self,
        page: MovingPage<'_>,
        places: &[PteSlot],
        key: DebtKey,
    ) -> Result<(), IsolatedFolio> {
        let (from, to) = (page.isolated.pfn(), page.copy.pfn());
        let places = &places[page.places.clone()];
        let published = page.cleared.and_then(|()| self.publish_copy(from, to, places.len() as u32, key));
        let restore = |pfn: Pfn| places.iter().for_each(|place| restore_migrated(&self.tlb, *place, pfn));
        let Ok(frozen) = published else {
            restore(from);
            return Err(self.give_up(page));
        };
        self.move_last_use(self.frames().folio(from), self.frames().folio(to));
        restore(to);
        let MovingPage { isolated, lock, copy, copy_lock, .. } = page;
        // Before a reference can be taken: the last may be dropped elsewhere.
        plant!(MovedFrameNotParked; (), self.frames().folio(from).add_debt(key));
        frozen.retire();
        drop(lock);
        self.put_folio(isolated.into_folio());
        drop(copy_lock);
        let copied = self.frames().folio(to);
        self.frames().lru_add(copied);
        self.free_swap_cache(copied);
        self.put_folio(copy);
        Ok(())
    }

    /// Copies the page and gives the copy all that it was; `entries` are those that were cleared.
    fn publish_copy(&self, from: Pfn, to: Pfn, entries: u32, key: DebtKey) -> Result<FrozenFolio<'_>, MigrateStop> {
        let (source, copy) = (self.frames().folio(from), self.frames().folio(to));
        let found = plant!(MigrateIgnoresUnfound; source.mapcount(), entries);
        if found != source.mapcount() {
            return Err(MigrateStop);
        }
        // Those of entries and of the swap cache exist as numbers alone.
        let in_slot = u32::from(source.swap_entry().is_some());
        let in_file = u32::from(matches!(source.owner(), FolioOwner::File(_)));
        let raw = in_slot + found;
        let expected = plant!(MigrateIgnoresPin; source.refs(), 1 + in_file + raw);
        if source.refs() != expected {
            return Err(MigrateStop);
        }
        let dirty = source.clear_flags(FolioFlags::DIRTY) & FolioFlags::DIRTY;
        plant!(MigrateCopiesEarly; (), self.fx().copy(from, to, Order::ZERO));
        <P::Locks as Backend>::point();
        let frozen = self.exchange(source, copy, Known { refs: expected, raw, dirty, key });
        source.set_flags(dirty);
        frozen
    }

    /// Freezes the page and transfers it, under the locks by which it is found.
    fn exchange<'a>(&self, source: Folio<'a>, copy: Folio<'_>, known: Known) -> Result<FrozenFolio<'a>, MigrateStop> {
        match source.owner() {
            FolioOwner::Anon(_) => self.exchange_in_slot(source, copy, known),
            FolioOwner::File(id) => {
                let file = self.files.get(id).ok_or(MigrateStop)?;
                file.exchange_cached(self, source, copy, || self.exchange_in_slot(source, copy, known))
            }
            FolioOwner::None => Err(MigrateStop),
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Freezes the page and transfers it, under the lock of its slot, if it is in the swap cache.
    ///
    /// The folio's lock keeps it in the cache, or outside.
    fn exchange_in_slot<'a>(
        &self,
        source: Folio<'a>,
        copy: Folio<'_>,
        known: Known,
    ) -> Result<FrozenFolio<'a>, MigrateStop> {
        match source.swap_entry() {
            None => self.freeze_into(source, copy, known),
            Some(entry) => self.exchange_cached_slot(entry, copy.pfn(), || self.freeze_into(source, copy, known)),
        }
    }

    /// Freezes the page from exactly the references that are known, and transfers it to its copy.
    ///
    /// The copy is dirty before another CPU can find it.
    fn freeze_into<'a>(
        &self,
        source: Folio<'a>,
        copy: Folio<'_>,
        known: Known,
    ) -> Result<FrozenFolio<'a>, MigrateStop> {
        let Known { refs: expected, raw, dirty, key } = known;
        let frozen = source.freeze(expected).map_err(|_| MigrateStop)?;
        if plant!(MigrateStoreLost; false, source.flags().contains(FolioFlags::DIRTY)) {
            frozen.thaw(expected);
            return Err(MigrateStop);
        }
        // INV-LINGER-CONTENTS: what TLBs may read of the page at any frame that it left.
        plant!(CopyWithoutKey; (), copy.add_debt(key));
        copy.add_debt(source.debt());
        self.fx().declare(Fact::PageMoved { frame: source.pfn(), copy: copy.pfn() });
        frozen.transfer(copy, raw);
        copy.set_flags(dirty);
        Ok(frozen)
    }
}

/// What is known of a page before it is frozen.
#[derive(Clone, Copy)]
struct Known {
    /// All references.
    refs: u32,
    /// Those that exist as numbers alone.
    raw: u32,
    /// The dirty flag, if it was set before the copy.
    dirty: FolioFlags,
    /// That of the translations that linger.
    key: DebtKey,
}
