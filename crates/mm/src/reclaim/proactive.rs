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
                // The priority is such that one pass scans about as many pages as are wanted.
                let (wanted, pending) = (pages - freed, scan.pending.len());
                let priority = (self.reclaimable(node) / u64::from(wanted)).checked_ilog2().unwrap_or(0);
                scan.restart(wanted, priority.min(DEF_PRIORITY));
                self.shrink_nodes(iter::once(node), &mut scan);
                freed += scan.freed;
                fruitless += u32::from(scan.freed == 0 && scan.pending.len() == pending);
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
