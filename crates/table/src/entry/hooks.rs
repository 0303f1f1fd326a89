//! What the entry layer asks of the memory manager.

use pagewright_arch::SoftEntry;
use pagewright_tlb::frames::Folio;

/// What an edit does outside this crate: soft entries hold what only the memory manager knows.
pub trait EntryHooks {
    /// Returns what a soft entry and its copy are from now on, and counts the copy.
    ///
    /// `None` leaves it out of the copy.
    fn copy_soft(&mut self, soft: SoftEntry) -> Option<SoftEntry>;

    /// Gives up what a soft entry held that was cleared, or a copy that is discarded.
    fn release_soft(&mut self, soft: SoftEntry);

    /// Notes that an entry of a folio was cleared, and that others refer to the folio.
    fn unmapped(&mut self, folio: Folio<'_>);
}
