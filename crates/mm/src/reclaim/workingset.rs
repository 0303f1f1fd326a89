//! What reclaim remembers of a node: a clock of pages that left or were activated, and what it has
//! cost to take the wrong ones (`mm/workingset.c`, `lru_note_cost`).
//!
//! A page that goes leaves a [`Shadow`] where it was found: the clock's reading. When it comes
//! back, the clock has moved by as many pages as were taken or activated meanwhile; if that is no
//! more than the pages in use, it would have stayed had they been fewer, and it competes with them:
//! it is active at once.
//!
//! Not guaranteed: an exact distance. The clock in a shadow has 24 bits.

use super::{SWAP_CLUSTER_MAX, Sort};
use crate::mm::Mm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Counter, LruList, NodeId};

/// When a page left, of which node's memory it was, and whether it had been in use before.
///
/// 0 says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow(u32);

impl Shadow {
    /// Nothing is known.
    pub(crate) const NONE: Self = Self(0);
    const CLOCK: u32 = (1 << 24) - 1;
    const NODE_SHIFT: u32 = 24;
    const WORKINGSET: u32 = 1 << 30;
    const KNOWN: u32 = 1 << 31;

    fn new(node: NodeId, clock: u32, workingset: bool) -> Self {
        let used = if workingset { Self::WORKINGSET } else { 0 };
        Self(Self::KNOWN | used | u32::from(node.raw()) << Self::NODE_SHIFT | clock & Self::CLOCK)
    }

    /// The shadow whose word is `raw`.
    pub(crate) const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The shadow as a word.
    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    /// The node whose clock it is, if anything is known.
    pub(super) fn node(self) -> Option<NodeId> {
        let node = (self.0 >> Self::NODE_SHIFT & 0x3f) as u8;
        (self.0 & Self::KNOWN != 0).then(|| NodeId::new(node))
    }

    /// Whether the page had been on the active list.
    pub(super) fn workingset(self) -> bool {
        self.0 & Self::WORKINGSET != 0
    }
}

/// What is remembered of one node.
#[derive(Default)]
pub(super) struct NodeMemory {
    clock: AtomicU32,
    /// What it cost lately to reclaim pages of each sort, in pages.
    cost: [AtomicU32; Sort::ALL.len()],
    /// Refaults that were activated, and how many when the node was last reclaimed.
    activated: [AtomicU32; Sort::ALL.len()],
    seen: [AtomicU32; Sort::ALL.len()],
    /// Rounds of background reclaim in a row that freed nothing.
    pub(super) failures: AtomicU32,
    /// Whether some CPU is at background reclaim.
    pub(super) balancing: AtomicBool,
}

impl NodeMemory {
    /// Pages left, or were activated (`workingset_age_nonresident`).
    pub(super) fn age(&self, pages: u32) {
        self.clock.fetch_add(pages, Ordering::Relaxed);
    }

    /// What a page leaves behind that goes now.
    pub(super) fn evict(&self, node: NodeId, pages: u32, workingset: bool) -> Shadow {
        Shadow::new(node, self.clock.fetch_add(pages, Ordering::Relaxed), workingset)
    }

    /// Pages that left or were activated since a page did.
    pub(super) fn distance(&self, shadow: Shadow) -> u32 {
        self.clock.load(Ordering::Relaxed).wrapping_sub(shadow.0) & Shadow::CLOCK
    }

    /// Notes what reclaim of a sort cost: pages written or read again count as much as 32 that were
    /// looked at in vain (`lru_note_cost`).
    pub(super) fn note_cost(&self, sort: Sort, moved: u32, rotated: u32, pages_of_node: u32) {
        let cost = moved.saturating_mul(SWAP_CLUSTER_MAX as u32).saturating_add(rotated);
        if cost == 0 {
            return;
        }
        self.cost[sort as usize].fetch_add(cost, Ordering::Relaxed);
        // What was long ago counts less and less.
        if self.costs().iter().sum::<u64>() > u64::from(pages_of_node / 4) {
            for cost in &self.cost {
                cost.store(cost.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// What it cost lately to reclaim each sort.
    pub(super) fn costs(&self) -> [u64; Sort::ALL.len()] {
        Sort::ALL.map(|sort| u64::from(self.cost[sort as usize].load(Ordering::Relaxed)))
    }

    /// A page came back too early.
    pub(super) fn note_activated(&self, sort: Sort) {
        self.activated[sort as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether pages of a sort came back too early since the node was last reclaimed.
    pub(super) fn is_thrashing(&self, sort: Sort) -> bool {
        self.activated[sort as usize].load(Ordering::Relaxed) != self.seen[sort as usize].load(Ordering::Relaxed)
    }

    /// The node is being reclaimed: what came back until now has been heard (`snapshot_refaults`).
    pub(super) fn snapshot_refaults(&self) {
        for sort in Sort::ALL {
            self.seen[sort as usize].store(self.activated[sort as usize].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl<P: Platform> Mm<P> {
    /// What reclaim of a sort of a node's pages cost; see [`NodeMemory::note_cost`].
    pub(super) fn note_cost(&self, node: NodeId, sort: Sort, moved: u32, rotated: u32) {
        let pages: u64 = Sort::ALL.iter().map(|sort| self.pages_of(node, *sort)).sum();
        self.reclaim.node(node).note_cost(sort, moved, rotated, pages.min(u64::from(u32::MAX)) as u32);
    }

    /// A folio is active now that was not: who is inactive is that much older
    /// (`workingset_activation`).
    pub(super) fn note_activation(&self, folio: Folio<'_>) {
        self.reclaim.node(self.node_of(folio)).age(folio.pages());
        self.tlb.count(Counter::PgActivate, u64::from(folio.pages()));
    }

    /// What a folio leaves behind that goes now (`workingset_eviction`).
    pub(crate) fn shadow_of(&self, folio: Folio<'_>) -> Shadow {
        let node = self.node_of(folio);
        let workingset = folio.flags().contains(FolioFlags::WORKINGSET);
        self.reclaim.node(node).evict(node, folio.pages(), workingset)
    }

    /// Says of a folio that is back and on no list yet what was left behind when it went
    /// (`workingset_refault`).
    pub(crate) fn note_refault(&self, folio: Folio<'_>, shadow: Shadow) {
        let Some(node) = shadow.node() else { return };
        let sort = Sort::of(folio);
        let counter = |anon, file| if sort == Sort::Anon { anon } else { file };
        let pages = folio.pages();
        self.tlb.count(counter(Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile), u64::from(pages));
        let memory = self.reclaim.node(node);
        if u64::from(memory.distance(shadow)) > self.workingset(node, sort) {
            return;
        }
        folio.set_flags(FolioFlags::ACTIVE);
        memory.age(pages);
        memory.note_activated(sort);
        self.tlb.count(counter(Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile), u64::from(pages));
        if shadow.workingset() {
            folio.set_flags(FolioFlags::WORKINGSET);
            self.note_cost(self.node_of(folio), sort, pages, 0);
            self.tlb.count(counter(Counter::WorkingsetRestoreAnon, Counter::WorkingsetRestoreFile), u64::from(pages));
        }
    }

    /// Pages of a node with which one of a sort competes that comes back
    /// (`workingset_test_recent`).
    fn workingset(&self, node: NodeId, sort: Sort) -> u64 {
        let pages = |list| u64::from(self.frames().lru_pages(node, list));
        let own = if sort == Sort::Anon { pages(LruList::InactiveFile) } else { 0 };
        let anon = match (self.can_swap(), sort) {
            (false, _) => 0,
            (true, Sort::Anon) => pages(LruList::ActiveAnon),
            (true, Sort::File) => pages(LruList::ActiveAnon) + pages(LruList::InactiveAnon),
        };
        pages(LruList::ActiveFile) + own + anon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_remembers_when_and_where() {
        let memory = NodeMemory::default();
        let (near, far) = (NodeId::new(0), NodeId::new(63));
        memory.age(Shadow::CLOCK - 1);
        let shadow = memory.evict(far, 1, true);
        assert_eq!((shadow.node(), shadow.workingset(), memory.distance(shadow)), (Some(far), true, 1));
        assert_eq!(Shadow::from_raw(shadow.raw()), shadow);
        let shadow = memory.evict(near, 4, false);
        assert_eq!((shadow.node(), shadow.workingset(), memory.distance(shadow)), (Some(near), false, 4));
        memory.age(10);
        assert_eq!(memory.distance(shadow), 14, "the clock wraps");
        assert_eq!((Shadow::NONE.node(), Shadow::NONE.workingset()), (None, false));
    }

    #[test]
    fn costs_fade() {
        let memory = NodeMemory::default();
        memory.note_cost(Sort::Anon, 1, 0, 1000);
        memory.note_cost(Sort::File, 0, 5, 1000);
        assert_eq!(memory.costs(), [32, 5]);
        memory.note_cost(Sort::Anon, 8, 0, 1000);
        assert_eq!(memory.costs(), [144, 2], "half of what it was, once it is a quarter of the node");
    }

    #[test]
    fn what_came_back_is_heard_once() {
        let memory = NodeMemory::default();
        memory.note_activated(Sort::File);
        assert!(memory.is_thrashing(Sort::File) && !memory.is_thrashing(Sort::Anon));
        memory.snapshot_refaults();
        assert!(!memory.is_thrashing(Sort::File));
    }
}
