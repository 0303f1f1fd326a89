//! Reclaim because somebody asks, however much memory is free
//! (`/sys/devices/system/node/node<N>/reclaim`, `user_proactive_reclaim`).
//!
//! Pages that are in use go, too, once they were asked twice. After 16 attempts that freed nothing
//! it gives up (`MAX_RECLAIM_RETRIES`).
//!
//! Not guaranteed: as many pages as were asked for.

use super::background::MAX_RECLAIM_RETRIES;
use super::scan::{FIRST_PRIORITY, Reclaimer, Scan};
use crate::mm::Mm;
use core::iter;
use pagewright_sync::Platform;
use pagewright_types::NodeId;

impl<P: Platform> Mm<P> {
    /// Reclaims at least `pages` pages of a node, if so many can be had; returns how many were
    /// freed. The caller holds no lock, and may wait for other CPUs and for devices.
    ///
    /// # Panics
    /// When the machine has no such node.
    pub fn reclaim(&self, node: NodeId, pages: u32) -> u64 {
        let reclaim = || {
            let mut scan = Scan::new(Reclaimer::Proactive, pages);
            let (mut freed, mut fruitless) = (0, 0);
            while freed < pages && fruitless < MAX_RECLAIM_RETRIES {
                // As many are looked at as are wanted: fewer at a time would be more looks.
                let (wanted, found) = (pages - freed, scan.going.len());
                let part = (self.reclaimable(node) / u64::from(wanted)).checked_ilog2().unwrap_or(0);
                scan.want(wanted, part.min(FIRST_PRIORITY));
                self.attempt(iter::once(node), &mut scan);
                freed += scan.freed;
                fruitless += u32::from(scan.freed == 0 && scan.going.len() == found);
            }
            scan.freed = 0;
            self.send_out(&mut scan);
            freed += scan.freed;
            self.reclaim.node(node).snapshot_refaults();
            u64::from(freed)
        };
        self.call(|| self.reclaiming(reclaim).unwrap_or(0))
    }
}
