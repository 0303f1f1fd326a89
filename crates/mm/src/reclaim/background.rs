//! Background reclaim: when it starts and when it stops (`kswapd`, `balance_pgdat`).
//!
//! The embedder has a thread, an idle CPU or a tick that asks [`Mm::needs_balance`] and calls
//! [`Mm::balance`]. It starts when a node has nothing left above its low marks, and goes on until a
//! zone of it is above its high mark; what lies in between is for allocations that can't wait.
//!
//! Not guaranteed: that it gets there. After 16 rounds that freed nothing it is not asked any more
//! until an allocation has freed something for itself ([`MAX_RECLAIM_RETRIES`]).

use super::scan::{Reclaimer, Scan};
use super::{SWAP_CLUSTER_MAX, Sort};
use crate::mm::Mm;
use core::iter;
use core::sync::atomic::Ordering;
use pagewright_sync::Platform;
use pagewright_tlb::frames::ZoneView;
use pagewright_types::{Counter, NodeId};

/// Rounds in a row that free nothing, after which it is no use.
pub(super) const MAX_RECLAIM_RETRIES: u32 = 16;

impl<P: Platform> Mm<P> {
    fn zones_of(&self, node: NodeId) -> impl Iterator<Item = ZoneView<'_, P::Locks>> {
        self.frames().zones().filter(move |zone| zone.node() == node)
    }

    /// Free frames of a node, and the sum of its high marks.
    pub(super) fn marks_of(&self, node: NodeId) -> (u64, u64) {
        let marks = |zone: ZoneView<'_, P::Locks>| (u64::from(zone.free()), u64::from(zone.watermarks().high));
        self.zones_of(node).map(marks).fold((0, 0), |(free, high), (more, mark)| (free + more, high + mark))
    }

    /// Whether background reclaim of a node should run.
    ///
    /// # Panics
    /// When the machine has no such node.
    pub fn needs_balance(&self, node: NodeId) -> bool {
        self.reclaim.node(node).failures.load(Ordering::Relaxed) < MAX_RECLAIM_RETRIES
            && self.zones_of(node).all(|zone| zone.below_low())
    }

    fn is_balanced(&self, node: NodeId) -> bool {
        self.zones_of(node).any(|zone| zone.free() >= zone.watermarks().high)
    }

    /// Balances every node that needs it: what an idle CPU has to do.
    pub fn balance_all(&self) {
        for node in self.nodes().filter(|node| self.needs_balance(*node)) {
            self.balance(node);
        }
    }

    /// Reclaims pages of a node until it has free frames up to its high mark, or no more can be
    /// had; returns how many were freed, and none if another CPU is at it. The caller holds no
    /// lock, and may wait for other CPUs and for devices.
    ///
    /// # Panics
    /// When the machine has no such node.
    pub fn balance(&self, node: NodeId) -> u64 {
        let balancing = &self.reclaim.node(node).balancing;
        if balancing.swap(true, Ordering::Acquire) {
            return 0;
        }
        let freed = self.call(|| self.reclaiming(|| self.balance_node(node)).unwrap_or(0));
        balancing.store(false, Ordering::Release);
        freed
    }

    fn balance_node(&self, node: NodeId) -> u64 {
        self.tlb.count(Counter::PageOutRun, 1);
        let mut all = 0;
        let mut scan = Scan::new(Reclaimer::Background, 0);
        while !self.is_balanced(node) {
            // Whole batches: up to 31 pages more than are missing.
            let (free, high) = self.marks_of(node);
            let missing = (high.saturating_sub(free) as u32).max(1);
            scan.want(missing.next_multiple_of(SWAP_CLUSTER_MAX as u32), scan.priority);
            let enough = self.attempt(iter::once(node), &mut scan);
            if !enough {
                self.send_out(&mut scan);
            }
            all += u64::from(scan.freed);
            if !enough {
                break;
            }
        }
        self.reclaim.node(node).snapshot_refaults();
        self.note_outcome(node, all);
        all
    }

    /// Remembers whether reclaim of a node is any use.
    pub(super) fn note_outcome(&self, node: NodeId, freed: u64) {
        let failures = &self.reclaim.node(node).failures;
        if freed > 0 {
            failures.store(0, Ordering::Relaxed);
        } else if !self.is_balanced(node) {
            failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pages of a node that could perhaps be reclaimed (`zone_reclaimable_pages`).
    pub(super) fn reclaimable(&self, node: NodeId) -> u64 {
        let anon = if self.can_swap() { self.pages_of(node, Sort::Anon) } else { 0 };
        anon + self.pages_of(node, Sort::File)
    }
}
