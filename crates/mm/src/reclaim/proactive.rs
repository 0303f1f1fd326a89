//! Proactive reclaim: on request, however much memory is free (`user_proactive_reclaim`).
//!
//! Linux's interface is `/sys/devices/system/node/node<N>/reclaim`. Pages in use are reclaimed too,
//! once their accessed bits were cleared and not set again. After 16 attempts that freed nothing it
//! gives up (`MAX_RECLAIM_RETRIES`).
//!
//! Not guaranteed: that as many pages are freed as requested.

use super::background::MAX_RECLAIM_RETRIES;
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
            while freed < pages && fruitless < MAX_RECLAIM_RETRIES {
                let (wanted, pending) = (pages - freed, scan.pending.len());
                scan.restart(wanted, first_priority(self.reclaimable(node), wanted));
                self.shrink_nodes(iter::once(node), &mut scan);
                freed += scan.freed;
                // A pass that only adds to the pending folios did something: a later one pages them
                // out. If they are fewer, they were paged out in vain.
                fruitless += u32::from(scan.freed == 0 && scan.pending.len() <= pending);
            }
            scan.freed = 0;
            self.page_out_pending(&mut scan);
            freed += scan.freed;
            self.reclaim.node(node).snapshot_refaults();
            u64::from(freed)
        };
        self.call(|| self.reclaiming(reclaim).unwrap_or(0))
    }
}

/// The priority at which one pass scans about as many pages as are wanted.
fn first_priority(reclaimable: u64, wanted: u32) -> u32 {
    (reclaimable / u64::from(wanted)).checked_ilog2().unwrap_or(0).min(DEF_PRIORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

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
