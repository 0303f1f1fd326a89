//! Idle pages: which pages have not been used for a while (`mm/page_idle.c`).
//!
//! Linux's interface is `/sys/kernel/mm/page_idle/bitmap`, a bit for each frame. A program marks
//! pages as idle, waits, and reads which of them still are. Only a folio on an LRU list can be
//! idle, and its first page stands for all.
//!
//! **INV-IDLE-YOUNG** A use whose accessed bit idle tracking clears still counts for the next scan
//! of reclaim.
//!
//! Protocol: marking and reading clear the accessed bits of all mappings, so a later use sets one
//! again (`page_idle_clear_pte_refs`). Reclaim would then miss the earlier use. So a folio that had
//! one becomes `YOUNG`, which counts as one accessed mapping when reclaim looks next
//! (INV-IDLE-YOUNG). A folio that is seen in use loses `IDLE`: by reclaim, by a read, and by
//! [`Mm::mark_accessed`].
//!
//! Not guaranteed: that a use sets the bit at once. A CPU with a cached translation does not, as
//! the module `age` says, so a page that is in use may look idle until its TLB entry is evicted.

use super::age::FolioReferences;
use crate::mm::Mm;
use crate::rmap::{FolioVisit, SpaceLock};
use core::ops::ControlFlow;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::Pfn;

impl<P: Platform> Mm<P> {
    /// Whether the page in a frame was marked as idle and has not been used since.
    ///
    /// The caller holds no lock (`page_idle_bitmap_read`).
    pub fn page_is_idle(&self, pfn: Pfn) -> bool {
        self.of_page(pfn, |folio| {
            let is_marked = |folio: Folio<'_>| folio.flags().contains(FolioFlags::IDLE);
            if !can_be_idle(folio, pfn) || !is_marked(folio) {
                return false;
            }
            self.look_for_uses(folio);
            is_marked(folio)
        })
        .unwrap_or(false)
    }

    /// Marks the page in a frame as idle, if it can be.
    ///
    /// The caller holds no lock (`page_idle_bitmap_write`).
    pub fn mark_page_idle(&self, pfn: Pfn) {
        self.of_page(pfn, |folio| {
            if can_be_idle(folio, pfn) {
                self.look_for_uses(folio);
                folio.set_flags(FolioFlags::IDLE);
            }
        });
    }

    /// Clears the accessed bits of all mappings of a folio, and notes for reclaim that one was set.
    fn look_for_uses(&self, folio: Folio<'_>) {
        let mut used = false;
        self.visit_folio(folio, SpaceLock::Wait, |visit| {
            if let FolioVisit::Mapped(mapped) = visit {
                used |= mapped.leaf.has(LeafFlags::ACCESSED);
                self.leaf_referenced(&mapped);
            }
            ControlFlow::Continue(())
        });
        if used {
            folio.clear_flags(FolioFlags::IDLE);
            plant!(IdleHidesUse => return);
            folio.set_flags(FolioFlags::YOUNG);
        }
    }

    /// Adds the use that idle tracking noted, and ends the idleness of a folio that is in use.
    pub(super) fn note_idle_tracking(&self, folio: Folio<'_>, found: &mut FolioReferences) {
        let flags = folio.flags();
        if found.accessed > 0 && flags.contains(FolioFlags::IDLE) {
            folio.clear_flags(FolioFlags::IDLE);
        }
        if flags.contains(FolioFlags::YOUNG) {
            folio.clear_flags(FolioFlags::YOUNG);
            found.accessed += 1;
        }
    }
}

/// Whether idleness of the folio is tracked, and by this frame (`page_idle_get_folio`).
fn can_be_idle(folio: Folio<'_>, pfn: Pfn) -> bool {
    folio.pfn() == pfn && folio.flags().contains(FolioFlags::LRU)
}
