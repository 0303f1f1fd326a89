//! Transferring what a folio is to another folio (`folio_migrate_mapping`, `folio_migrate_flags`).
//!
//! ```text
//!   source, frozen from exactly the references that the caller accounts for
//!     ─ transfer ─▶  target: owner, index, flags, age, slot, locks, mapcount, references
//!     ─ retire ───▶  source: no mapping, no owner, one reference, to be freed
//! ```
//!
//! Between the two calls both folios have the mapcount. Entries that stand for the source while it
//! is moved name its frame until they are put back, so an observer reads there what holds for both.
//!
//! **INV-MIGRATE-TRANSFER** The copy of a page has its owner, index, flags, age, locks, slot,
//! mapcount and references.
//!
//! Only the caller changes either folio meanwhile: the source is frozen, the target is locked, and
//! no other CPU has found it.
//!
//! Not guaranteed: that the contents are equal. The caller has copied them.

use crate::folio::{Folio, FolioOwner};
use crate::folio_flags::FolioFlags;
use crate::freeze::FrozenFolio;
use core::sync::atomic::Ordering;
use pagewright_plant::plant;

impl<'a> FrozenFolio<'a> {
    /// Gives `target` what the folio is, and `refs` references beside that of the caller.
    ///
    /// They exist as frame numbers only: the caller stores them in entries, and the swap cache has
    /// one. Both folios are locked, small and on no LRU list; `target` is new.
    ///
    /// # Panics
    /// In debug builds when a folio is large or on a list, or the target has other references.
    pub fn transfer(&self, target: Folio<'_>, refs: u32) {
        let (from, to) = (self.folio().record(), target.record());
        debug_assert!(!self.folio().is_large() && !target.is_large(), "INV-MIGRATE-TRANSFER: {target:?} is large");
        let flags = self.folio().flags();
        debug_assert!(!flags.contains(FolioFlags::LRU), "INV-LRU-PLACE: {:?} is moved while on a list", self.folio());
        debug_assert_eq!(target.refs(), 1, "INV-MIGRATE-TRANSFER: {target:?} was found by others");
        // Instruction fetches see the frame of the source, not the copy.
        let word = from.flags.load(Ordering::Relaxed) & !FolioFlags::CODE_VISIBLE.bits();
        to.flags.store(plant!(MigratedFlagsLost; FolioFlags::LOCKED.bits(), word), Ordering::Relaxed);
        let words = [&from.first_page_or_mlocks, &from.pincount_or_swap];
        for (from, to) in words.into_iter().zip([&to.first_page_or_mlocks, &to.pincount_or_swap]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        target.set_owner(self.folio().owner(), self.folio().index());
        let held = plant!(MigratedRefLost; refs.saturating_sub(1), refs);
        to.counts.set(1 + held, from.counts.mappings());
    }

    /// Makes the folio one that nothing names, with one reference, that of the caller.
    ///
    /// The caller has put back every entry that named it, and frees it.
    pub fn retire(self) {
        let folio = self.folio();
        let record = folio.record();
        record.counts.set_mappings(0);
        folio.set_owner(FolioOwner::None, 0);
        folio.clear_flags(FolioFlags::all() - FolioFlags::LOCKED);
        for word in [&record.first_page_or_mlocks, &record.pincount_or_swap] {
            word.store(0, Ordering::Relaxed);
        }
        self.thaw(1);
    }
}
