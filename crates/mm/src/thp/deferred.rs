//! Splitting the folios of which some pages are no longer mapped (`deferred_split_scan`).
//!
//! The unmapped pages of a large folio are freed when it is split. That costs a flush, so it is
//! done when memory is short: reclaim of a node splits folios of its queue before it looks for
//! pages to evict, because unmapped pages are free without being written anywhere.
//!
//! **INV-DEFERRED-SPLIT** The pages of a large folio that no entry maps are freed when memory is
//! short, also if nothing can be swapped: reclaim of the node splits the folio.
//!
//! Neighbours: `table` queues a folio when an unmap leaves it partly mapped; `frame` has the queue.
//!
//! Not guaranteed: that a folio of the queue is split. One that something else refers to is queued
//! again.

use crate::mm::Mm;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::IsolatedFolio;
use pagewright_types::NodeId;

impl<P: Platform> Mm<P> {
    /// Splits folios of the queue of a node until `wanted` pages are freed, and tries `most`.
    ///
    /// Returns the number of pages that were freed.
    pub(crate) fn split_deferred(&self, node: NodeId, most: u32, wanted: u32) -> u32 {
        let mut freed = 0;
        for _ in 0..most {
            if freed >= wanted {
                break;
            }
            let Some(reference) = self.frames().take_deferred(node) else { break };
            let folio = self.frames().folio_of(&reference);
            let isolated = self.frames().isolate(folio);
            match isolated {
                Some(isolated) => {
                    self.put_folio(reference);
                    freed += self.split_partly_mapped(isolated);
                }
                // On no list, because another CPU splits or moves it.
                None => {
                    self.frames().defer_split(folio);
                    self.put_folio(reference);
                }
            }
        }
        freed
    }

    /// Splits a folio that was taken off its queue; returns the number of pages that are freed.
    fn split_partly_mapped(&self, isolated: IsolatedFolio) -> u32 {
        let folio = self.frames().folio(isolated.pfn());
        let unmapped = folio.pages() - folio.nr_pages_mapped();
        match self.split_folio(isolated) {
            Ok(()) => unmapped,
            Err(isolated) => {
                // What is unmapped whole is freed with its last reference.
                if plant!(DeferredDropped; false, folio.is_partially_mapped()) {
                    self.frames().defer_split(folio);
                }
                self.putback(isolated);
                0
            }
        }
    }
}
