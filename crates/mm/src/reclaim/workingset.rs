//! Refault detection and the cost of reclaim, for each node (`mm/workingset.c`, `lru_note_cost`).
//!
//! An evicted page leaves a [`Shadow`] entry with the node's nonresident age, a clock that advances
//! by each page evicted or activated. When the page refaults, the difference to the age now is its
//! refault distance. If that is at most the size of the workingset, the page would have stayed in
//! memory with fewer active pages. So it is activated at once, to compete with them.
//!
//! Not guaranteed: an exact distance. The age in a shadow entry has 24 bits.

use super::{LruType, SWAP_CLUSTER_MAX};
use crate::mm::Mm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Counter, LruList, NodeId};

/// A shadow entry: the node and nonresident age at an eviction, and whether the page was active.
///
/// 0 is no shadow entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow(u32);

impl Shadow {
    /// No shadow entry.
    pub(crate) const NONE: Self = Self(0);
    const AGE: u32 = (1 << 24) - 1;
    const NODE_SHIFT: u32 = 24;
    const WORKINGSET: u32 = 1 << 30;
    const KNOWN: u32 = 1 << 31;

    fn new(node: NodeId, age: u32, workingset: bool) -> Self {
        let active = if workingset { Self::WORKINGSET } else { 0 };
        Self(Self::KNOWN | active | u32::from(node.raw()) << Self::NODE_SHIFT | age & Self::AGE)
    }

    /// The shadow entry with the word `raw`.
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The shadow entry as a word.
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// The node of the eviction, or `None` for no shadow entry.
    pub(super) fn node(self) -> Option<NodeId> {
        let node = (self.0 >> Self::NODE_SHIFT & 0x3f) as u8;
        (self.0 & Self::KNOWN != 0).then(|| NodeId::new(node))
    }

    /// Whether the page had been on the active list (`PG_workingset`).
    pub(super) fn workingset(self) -> bool {
        self.0 & Self::WORKINGSET != 0
    }
}

/// What reclaim of some pages has cost, as a number of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReclaimCost {
    /// They were written, or have refaulted (`nr_io`).
    Io(u32),
    /// They were scanned and stay (`nr_rotated`).
    Rotated(u32),
}

impl ReclaimCost {
    /// As a number of rotated pages, of which a page written or refaulted counts as 32.
    fn in_rotations(self) -> u32 {
        match self {
            Self::Io(pages) => pages.saturating_mul(SWAP_CLUSTER_MAX as u32),
            Self::Rotated(pages) => pages,
        }
    }
}

/// The state of reclaim of one node (`struct lruvec`).
#[derive(Default)]
pub(super) struct NodeReclaim {
    nonresident_age: AtomicU32,
    /// The recent cost of reclaiming pages of each type, in pages.
    cost: [AtomicU32; LruType::ALL.len()],
    /// Refaulted pages that were activated at once.
    activations: [AtomicU32; LruType::ALL.len()],
    /// The value of `activations` when the node was last reclaimed.
    activations_seen: [AtomicU32; LruType::ALL.len()],
    /// Runs of background reclaim in a row that freed nothing (`kswapd_failures`).
    pub(super) failures: AtomicU32,
    /// Whether a CPU is running background reclaim of this node.
    pub(super) balancing: AtomicBool,
}

impl NodeReclaim {
    /// Advances the nonresident age by pages evicted or activated (`workingset_age_nonresident`).
    pub(super) fn age(&self, pages: u32) {
        self.nonresident_age.fetch_add(pages, Ordering::Relaxed);
    }

    /// The shadow entry of a page that is evicted now.
    pub(super) fn evict(&self, node: NodeId, pages: u32, workingset: bool) -> Shadow {
        Shadow::new(node, self.nonresident_age.fetch_add(pages, Ordering::Relaxed), workingset)
    }

    /// The number of pages evicted or activated since the eviction of `shadow`.
    pub(super) fn refault_distance(&self, shadow: Shadow) -> u32 {
        self.nonresident_age.load(Ordering::Relaxed).wrapping_sub(shadow.0) & Shadow::AGE
    }

    /// Adds to the cost of a type (`lru_note_cost`).
    pub(super) fn note_cost(&self, lru: LruType, cost: ReclaimCost, node_pages: u64) {
        let cost = cost.in_rotations();
        if cost == 0 {
            return;
        }
        self.cost[lru as usize].fetch_add(cost, Ordering::Relaxed);
        // Old costs decay.
        if self.costs().iter().sum::<u64>() > node_pages / 4 {
            for cost in &self.cost {
                cost.store(cost.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// The recent cost of each type.
    pub(super) fn costs(&self) -> [u64; LruType::ALL.len()] {
        LruType::ALL.map(|lru| u64::from(self.cost[lru as usize].load(Ordering::Relaxed)))
    }

    /// Counts a refaulted page that was activated at once.
    pub(super) fn note_refault_activation(&self, lru: LruType) {
        self.activations[lru as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether refaulted pages of a type were activated since the node was last reclaimed.
    pub(super) fn is_thrashing(&self, lru: LruType) -> bool {
        self.activations[lru as usize].load(Ordering::Relaxed)
            != self.activations_seen[lru as usize].load(Ordering::Relaxed)
    }

    /// Records the activations so far as seen by a reclaim of the node (`snapshot_refaults`).
    pub(super) fn snapshot_refaults(&self) {
        for lru in LruType::ALL {
            self.activations_seen[lru as usize]
                .store(self.activations[lru as usize].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Adds to the cost of a type on a node; see [`NodeReclaim::note_cost`].
    pub(super) fn note_cost(&self, node: NodeId, lru: LruType, cost: ReclaimCost) {
        let pages: u64 = LruType::ALL.iter().map(|lru| self.lru_pages_of(node, *lru)).sum();
        self.reclaim.node(node).note_cost(lru, cost, pages);
    }

    /// Counts an activation, which ages the node's inactive pages (`workingset_activation`).
    pub(super) fn note_activation(&self, folio: Folio<'_>) {
        self.reclaim.node(self.node_of(folio)).age(folio.pages());
        self.tlb.count(Counter::PgActivate, u64::from(folio.pages()));
    }

    /// The shadow entry of a folio that is evicted now (`workingset_eviction`).
    pub(crate) fn shadow_of(&self, folio: Folio<'_>) -> Shadow {
        let node = self.node_of(folio);
        let workingset = folio.flags().contains(FolioFlags::WORKINGSET);
        self.reclaim.node(node).evict(node, folio.pages(), workingset)
    }

    /// Handles the refault of a folio that is on no list yet (`workingset_refault`).
    ///
    /// `shadow` is the entry that its eviction left. The folio becomes active if its refault
    /// distance is within the workingset of the node of the eviction. The node of the folio counts
    /// the activation.
    pub(crate) fn note_refault(&self, folio: Folio<'_>, shadow: Shadow) {
        let Some(evicted_from) = shadow.node() else { return };
        let lru = LruType::of(folio);
        let counter = |anon, file| if lru == LruType::Anon { anon } else { file };
        let pages = folio.pages();
        self.tlb.count(counter(Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile), u64::from(pages));
        let distance = self.reclaim.node(evicted_from).refault_distance(shadow);
        if u64::from(distance) > self.workingset_pages(evicted_from, lru) {
            return;
        }
        folio.set_flags(FolioFlags::ACTIVE);
        let node = plant!(RefaultOnOldNode; evicted_from, self.node_of(folio));
        let state = self.reclaim.node(node);
        state.age(pages);
        state.note_refault_activation(lru);
        self.tlb.count(counter(Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile), u64::from(pages));
        if shadow.workingset() {
            folio.set_flags(FolioFlags::WORKINGSET);
            self.note_cost(self.node_of(folio), lru, ReclaimCost::Io(pages));
            self.tlb.count(counter(Counter::WorkingsetRestoreAnon, Counter::WorkingsetRestoreFile), u64::from(pages));
        }
    }

    /// The size of the workingset with which a refaulted page competes (`workingset_test_recent`).
    fn workingset_pages(&self, node: NodeId, lru: LruType) -> u64 {
        let pages = |list| u64::from(self.frames().lru_pages(node, list));
        let inactive_file = if lru == LruType::Anon { pages(LruList::InactiveFile) } else { 0 };
        let anon = match (self.can_swap(), lru) {
            (false, _) => 0,
            (true, LruType::Anon) => pages(LruList::ActiveAnon),
            (true, LruType::File) => pages(LruList::ActiveAnon) + pages(LruList::InactiveAnon),
        };
        pages(LruList::ActiveFile) + inactive_file + anon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_entry_gives_node_and_refault_distance() {
        let state = NodeReclaim::default();
        let (near, far) = (NodeId::new(0), NodeId::new(63));
        state.age(Shadow::AGE - 1);
        let shadow = state.evict(far, 1, true);
        assert_eq!((shadow.node(), shadow.workingset(), state.refault_distance(shadow)), (Some(far), true, 1));
        assert_eq!(Shadow::from_raw(shadow.raw()), shadow);
        let shadow = state.evict(near, 4, false);
        assert_eq!((shadow.node(), shadow.workingset(), state.refault_distance(shadow)), (Some(near), false, 4));
        state.age(10);
        assert_eq!(state.refault_distance(shadow), 14, "the age wraps");
        assert_eq!((Shadow::NONE.node(), Shadow::NONE.workingset()), (None, false));
    }

    #[test]
    fn costs_decay() {
        use ReclaimCost::{Io, Rotated};
        let state = NodeReclaim::default();
        state.note_cost(LruType::Anon, Io(1), 1000);
        state.note_cost(LruType::File, Rotated(5), 1000);
        assert_eq!(state.costs(), [32, 5]);
        state.note_cost(LruType::Anon, Io(6), 1000);
        state.note_cost(LruType::Anon, Rotated(21), 1000);
        assert_eq!(state.costs(), [245, 5], "a quarter of the node");
        state.note_cost(LruType::File, Rotated(1), 1000);
        assert_eq!(state.costs(), [122, 3], "halved once their sum exceeds it");
        for nothing in [Io(0), Rotated(0)] {
            state.note_cost(LruType::File, nothing, 4);
            assert_eq!(state.costs(), [122, 3], "without a cost nothing decays");
        }
        state.note_cost(LruType::File, Rotated(1), 4);
        assert_eq!(state.costs(), [61, 2], "they are halved once, however large they are");
        state.note_cost(LruType::File, Rotated(1), u64::MAX);
        assert_eq!(state.costs(), [61, 3], "a node may have any size");
        assert_eq!(Io(u32::MAX).in_rotations(), u32::MAX, "as much as can be");
    }

    #[test]
    fn refaults_count_as_thrashing_until_the_next_reclaim() {
        let state = NodeReclaim::default();
        state.note_refault_activation(LruType::File);
        assert!(state.is_thrashing(LruType::File) && !state.is_thrashing(LruType::Anon));
        state.snapshot_refaults();
        assert!(!state.is_thrashing(LruType::File));
    }
}
