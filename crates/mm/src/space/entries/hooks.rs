//! What the entry layer asks of the memory manager ([`EntryHooks`]).

use crate::mm::Mm;
use crate::swap::SwapPte;
use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::EntryHooks;
use pagewright_tlb::frames::Folio;

impl<P: Platform> Mm<P> {
    /// Gives up the swap slot of a swap entry that was cleared.
    pub(in crate::space) fn release_soft_entry(&self, soft: SoftEntry) {
        plant!(SwapSlotKept => return);
        if let Some(swapped) = SwapPte::decode(soft) {
            self.swap_release(swapped.entry);
        }
    }
}

/// The memory manager, as the entry layer calls it.
pub(crate) struct MmHooks<'m, P: Platform>(pub(crate) &'m Mm<P>);

impl<P: Platform> EntryHooks for MmHooks<'_, P> {
    /// Returns what the copy of a soft entry is, and counts its slot (`copy_nonpresent_pte`).
    ///
    /// A guard belongs to the mapping, which the copy has, too. A swap entry is shared from now on.
    fn copy_soft(&mut self, soft: SoftEntry) -> Option<SoftEntry> {
        match soft.kind {
            SoftKind::Marker => Some(soft),
            SoftKind::Swap => {
                if let Some(swapped) = SwapPte::decode(soft) {
                    self.0.swap_duplicate(swapped.entry);
                }
                Some(SoftEntry { exclusive: false, ..soft })
            }
            SoftKind::Migration => plant!(BreakCopiesMigration; Some(soft), {
                plant!(MigrationNotAwaited => return None);
                unreachable!("INV-MIGRATE-WAIT: a migration entry is copied")
            }),
            SoftKind::InTransition => unreachable!("INV-SPLIT-HIDDEN: an entry in transition is copied"),
        }
    }

    fn release_soft(&mut self, soft: SoftEntry) {
        self.0.release_soft_entry(soft);
    }

    #[inline]
    fn unmapped(&mut self, folio: Folio<'_>) {
        self.0.free_swap_cache(folio);
    }
}
