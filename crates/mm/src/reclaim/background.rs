//! Background reclaim: when it starts and when it stops (`kswapd`, `balance_pgdat`).
//!
//! The embedder has a thread, an idle CPU or a tick that asks [`Mm::needs_balance`] and calls
//! [`Mm::balance`].
//!
//! **INV-RECLAIM-WANTED** Background reclaim of a node starts only while every node is below its
//! low watermark, after a request that only nodes below it may serve, or after a promotion that
//! found the node too full. Otherwise a small node would lose its pages while another has free
//! memory.
//!
//! Reclaim of a node starts when all its zones are below their low watermarks and no other node may
//! serve instead. That is so if every node of the machine is below its low watermarks, or if an
//! allocation that only some nodes may serve has found none of them above (`wake_all_kswapds` in
//! `__alloc_pages_slowpath`). So a full node beside one with free memory keeps its pages, as with
//! `vm.zone_reclaim_mode=0`. A promotion that finds its node short starts reclaim, too. Reclaim
//! stops when a zone of the node reaches its high watermark, or the promotion watermark if hint
//! faults promote pages. Meanwhile allocations may use the frames between the low and the min
//! watermark.
//!
//! Differences from Linux. An allocation there wakes reclaim of each permitted node that is below
//! its *high* watermarks (`pgdat_balanced`); here such a node waits until it is below its low ones,
//! too. For requests that every node may serve, the state of the nodes decides, so reclaim may run
//! before the allocation that would find them low.
//!
//! Not guaranteed: that the high watermark is reached. After [`MAX_RECLAIM_RETRIES`] runs in a row
//! that freed nothing, a node needs no balance until direct reclaim has freed something.

use super::scan::{Reclaimer, ScanControl};
use super::{LruType, SWAP_CLUSTER_MAX};
use crate::mm::Mm;
use core::iter;
use core::sync::atomic::Ordering;
use pagewright_sync::Platform;
use pagewright_tlb::frames::ZoneView;
use pagewright_types::{Counter, NodeId};

/// The number of fruitless runs in a row after which reclaim gives up.
const MAX_RECLAIM_RETRIES: u32 = 16;

/// Whether reclaim gives up after so many fruitless runs in a row.
pub(super) const fn gives_up(fruitless: u32) -> bool {
    fruitless >= MAX_RECLAIM_RETRIES
}

impl<P: Platform> Mm<P> {
    /// The zones of a node.
    pub(crate) fn zones_of(&self, node: NodeId) -> impl Iterator<Item = ZoneView<'_, P::Locks>> {
        self.frames().zones().filter(move |zone| zone.node() == node)
    }

    /// The free frames of a node, and the sum of its zones' high watermarks.
    pub(super) fn watermarks_of(&self, node: NodeId) -> (u64, u64) {
        let watermarks = |zone: ZoneView<'_, P::Locks>| (u64::from(zone.free()), u64::from(zone.watermarks().high));
        self.zones_of(node)
            .map(watermarks)
            .fold((0, 0), |(free, high), (zone_free, zone_high)| (free + zone_free, high + zone_high))
    }

    /// Whether background reclaim of a node should run.
    ///
    /// # Panics
    /// If the machine has no such node.
    pub fn needs_balance(&self, node: NodeId) -> bool {
        if gives_up(self.reclaim.node(node).failures.load(Ordering::Relaxed)) {
            return false;
        }
        if !self.zones_of(node).all(|zone| zone.below_low()) {
            // Where pages are promoted, what wanted the node to be reclaimed wants it balanced.
            return self.promotes() && self.frames().is_reclaim_wanted(node) && !self.is_balanced(node);
        }
        self.frames().is_reclaim_wanted(node) || self.frames().zones().all(|zone| zone.below_low())
    }

    fn is_balanced(&self, node: NodeId) -> bool {
        self.zones_of(node).any(|zone| zone.free() >= self.balanced_mark(zone.watermarks()))
    }

    /// Balances every node that needs it; an idle CPU calls this.
    ///
    /// If a zone has few free frames that owe no flush, it settles the debts of the others, so that
    /// no allocation has to.
    pub fn balance_all(&self) {
        for node in self.nodes().filter(|node| self.needs_balance(*node)) {
            self.balance(node);
        }
        let lacks_settled = |zone: ZoneView<'_, P::Locks>| {
            zone.parked() > 0 && zone.free().saturating_sub(zone.parked()) <= zone.watermarks().low
        };
        if self.frames().zones().any(lacks_settled) {
            self.tlb.settle_parked();
        }
    }

    /// Reclaims pages of a node until it is balanced, as far as possible.
    ///
    /// Returns the number of pages freed: 0 if another CPU is balancing the node. The caller holds
    /// no lock, and may wait for other CPUs and for devices.
    ///
    /// # Panics
    /// If the machine has no such node.
    pub fn balance(&self, node: NodeId) -> u64 {
        let balancing = &self.reclaim.node(node).balancing;
        if balancing.swap(true, Ordering::Acquire) {
            return 0;
        }
        let freed = self.declare_return_of(|| self.reclaiming(|| self.balance_node(node)).unwrap_or(0));
        balancing.store(false, Ordering::Release);
        freed
    }

    fn balance_node(&self, node: NodeId) -> u64 {
        self.tlb.count(Counter::PageOutRun, 1);
        let mut freed = 0;
        let mut scan = ScanControl::new(Reclaimer::Background, 0);
        while !self.is_balanced(node) {
            // Rounded up to whole batches: up to 31 pages more than are missing.
            let missing_of =
                |zone: ZoneView<'_, P::Locks>| self.balanced_mark(zone.watermarks()).saturating_sub(zone.free());
            let missing = self.zones_of(node).map(missing_of).sum::<u32>().max(1);
            scan.restart(missing.next_multiple_of(SWAP_CLUSTER_MAX as u32), scan.priority);
            let freed_enough = self.shrink_nodes(iter::once(node), &mut scan);
            if !freed_enough {
                self.page_out_pending(&mut scan);
            }
            freed += u64::from(scan.freed);
            if !freed_enough {
                break;
            }
        }
        self.frames().reclaim_done(node);
        self.reclaim.node(node).snapshot_refaults();
        self.note_progress(node, freed);
        freed
    }

    /// Records whether reclaim of a node freed anything (`kswapd_failures`).
    pub(super) fn note_progress(&self, node: NodeId, freed: u64) {
        let failures = &self.reclaim.node(node).failures;
        if freed > 0 {
            failures.store(0, Ordering::Relaxed);
        } else if !self.is_balanced(node) {
            failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of pages of a node that may be reclaimable (`zone_reclaimable_pages`).
    pub(super) fn reclaimable(&self, node: NodeId) -> u64 {
        let anon = if self.can_reclaim_anon(node) { self.lru_pages_of(node, LruType::Anon) } else { 0 };
        anon + self.lru_pages_of(node, LruType::File) + u64::from(self.frames().deferred_pages(node))
    }
}
