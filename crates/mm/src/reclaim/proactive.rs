//! Proactive reclaim: on request, however much memory is free (`user_proactive_reclaim`).
//!
//! Linux's interface is `/sys/devices/system/node/node<N>/reclaim`. Pages in use are reclaimed too,
//! once their accessed bits were cleared and not set again. After 16 attempts that freed nothing it
//! gives up (`MAX_RECLAIM_RETRIES`).
//!
//! **INV-RECLAIM-ENDS** Reclaim on request ends if no device takes the pages. It gives up after 16
//! passes of which each freed no page and left no more folios pending than it found.
//!
//! Not guaranteed: that as many pages are freed as requested.

use super::background::gives_up;
use super::scan::{DEF_PRIORITY, Reclaimer, ScanControl};
use crate::mm::Mm;
use core::iter;
use pagewright_sync::Platform;
use pagewright_types::NodeId;

impl<P: Platform> Mm<P> {
    /// Reclaims at least `pages` pages of a node if it can, and returns the number freed.
    ///
    /// The caller holds no lock, and may wait for other CPUs and for devices.
    ///
    /// # Panics
    /// If the machine has no such node.
    pub fn reclaim(&self, node: NodeId, pages: u32) -> u64 {
        let reclaim = || {
            let mut scan = ScanControl::new(Reclaimer::Proactive, pages);
            let (mut freed, mut fruitless) = (0, 0);
            while freed < pages && !gives_up(fruitless) {
                let (wanted, pending) = (pages - freed, scan.pending.len());
                scan.restart(wanted, first_priority(self.reclaimable(node), wanted));
                self.shrink_nodes(iter::once(node), &mut scan);
                freed += scan.freed;
                fruitless += u32::from(was_in_vain(scan.freed, pending, scan.pending.len()));
            }
            scan.freed = 0;
            self.page_out_pending(&mut scan);
            freed += scan.freed;
            self.reclaim.node(node).snapshot_refaults();
            u64::from(freed)
        };
        self.declare_return_of(|| self.reclaiming(reclaim).unwrap_or(0))
    }
}

/// The priority at which one pass scans about as many pages as are wanted.
fn first_priority(reclaimable: u64, wanted: u32) -> u32 {
    (reclaimable / u64::from(wanted)).checked_ilog2().unwrap_or(0).min(DEF_PRIORITY)
}

/// Whether a pass did nothing that brings reclaim nearer to its end (INV-RECLAIM-ENDS).
///
/// A pass that frees no page may leave more folios pending than it found, which a later one pages
/// out. If it leaves fewer, it has paged them out in vain. A batch has few folios, so not many
/// passes in a row leave more.
fn was_in_vain(freed: u32, found: usize, left: usize) -> bool {
    freed == 0 && left <= found
}

#[cfg(test)]
mod tests {
    use super::super::SWAP_CLUSTER_MAX;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// INV-RECLAIM-ENDS, whatever number of folios each pass leaves pending.
        #[test]
        fn passes_that_free_nothing_end(left in prop::collection::vec(0..=SWAP_CLUSTER_MAX, SWAP_CLUSTER_MAX + 2)) {
            prop_assert!(left.windows(2).any(|pass| was_in_vain(0, pass[0], pass[1])));
            prop_assert!(!left.windows(2).any(|pass| was_in_vain(1, pass[0], pass[1])));
            let mut grows = left.windows(2).filter(|pass| pass[0] < pass[1]);
            prop_assert!(!grows.any(|pass| was_in_vain(0, pass[0], pass[1])));
        }
    }

    #[test]
    fn passes_that_alternate_end() {
        for (one, other) in [(0, 1), (3, 2), (0, SWAP_CLUSTER_MAX)] {
            assert!(was_in_vain(0, one, other) || was_in_vain(0, other, one), "{one} and {other}");
        }
    }

    #[test]
    fn the_first_pass_scans_at_least_what_is_wanted_and_less_than_twice_as_much() {
        for (reclaimable, wanted, priority) in [
            (0, 1, 0),
            (1, 1, 0),
            (2, 1, 1),
            (3, 1, 1),
            (4, 1, 2),
            (63, 32, 0),
            (64, 32, 1),
            (4095, 1, 11),
            (4096, 1, 12),
            (8191, 1, 12),
        ] {
            assert_eq!(first_priority(reclaimable, wanted), priority, "{wanted} of {reclaimable}");
        }
        for reclaimable in [8192, 1 << 20, 1 << 32, u64::MAX] {
            assert_eq!(first_priority(reclaimable, 1), DEF_PRIORITY, "no pass scans less than 1/4096");
        }
    }
}
