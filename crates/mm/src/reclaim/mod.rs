//! Reclaim: freeing pages that programs are least likely to use.
//!
//! | file | what it does |
//! | --- | --- |
//! | `background` | background reclaim (kswapd): when it starts and when it stops |
//! | `direct` | direct reclaim: an allocation that failed reclaims and tries again |
//! | `proactive` | reclaim on request, however much memory is free |
//! | `scan` | how much of each LRU list is scanned, and what happens to the folios found |
//! | `age` | whether a page is in use, by the accessed bits of its mappings |
//! | `workingset` | shadow entries and refaults; the cost of reclaim |
//! | `pageout` | one list of pages: unmap all, flush once, write, free |
//! | `try_to_unmap` | replaces every entry that maps one page by a swap entry, or clears it, and defers the flush |
//! | `advice` | `MADV_PAGEOUT` and `MADV_COLD` |
//!
//! **INV-RECLAIM-SETTLED** A page is written to its device, and freed, only after every CPU has
//! flushed the translations that reclaim removed. Otherwise a store would be lost, or go to a page
//! with a new owner.
//!
//! Protocol: reclaim does not wait for locks. A page stays if its own lock or the lock of a space
//! that may map it is contended, or if it is pinned or mlocked. So reclaim may run wherever memory
//! is allocated, including while the caller holds an address-space lock. Background reclaim may
//! wait to write files back, because no allocation waits for it.
//!
//! Neighbours: uses `rmap`, `swap` and `file`; called by `madvise`, by allocations, and by the
//! embedder's background thread.
//!
//! Not guaranteed: that a given page is reclaimed.

mod advice;
mod age;
mod background;
mod direct;
mod idle;
mod pageout;
mod proactive;
mod scan;
mod try_to_unmap;
mod workingset;

pub(crate) use pageout::PageOutFlush;
pub(crate) use workingset::Shadow;

use crate::mm::Mm;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::sync::atomic::AtomicBool;
use pagewright_sync::{AllocError, PerCpu, Platform, try_boxed};
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio, LruScan};
use pagewright_types::{LruList, NodeId};
use workingset::NodeReclaim;

/// The number of pages that are reclaimed together, with one wait (`SWAP_CLUSTER_MAX`).
pub(crate) const SWAP_CLUSTER_MAX: usize = 32;

/// The two types of LRU pages, between which each scan is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LruType {
    /// Anonymous and shared memory, which is written to swap.
    Anon,
    /// File pages, and lazily freed anonymous pages.
    File,
}

impl LruType {
    const ALL: [Self; 2] = [Self::Anon, Self::File];

    fn of(folio: Folio<'_>) -> Self {
        if folio.flags().contains(FolioFlags::SWAPBACKED) { Self::Anon } else { Self::File }
    }

    fn inactive(self) -> LruList {
        match self {
            Self::Anon => LruList::InactiveAnon,
            Self::File => LruList::InactiveFile,
        }
    }

    fn active(self) -> LruList {
        match self {
            Self::Anon => LruList::ActiveAnon,
            Self::File => LruList::ActiveFile,
        }
    }
}

/// The state of reclaim.
pub(crate) struct Reclaim {
    nodes: Box<[NodeReclaim]>,
    /// Whether each CPU is reclaiming, so that its own allocations do not reclaim (`PF_MEMALLOC`).
    busy: PerCpu<AtomicBool>,
}

impl Reclaim {
    pub(crate) fn try_new(nodes: usize, cpus: usize) -> Result<Self, AllocError> {
        let nodes = try_boxed(nodes, core::iter::repeat_with(NodeReclaim::default))?;
        Ok(Self { nodes, busy: PerCpu::try_new(cpus, |_| AtomicBool::new(false))? })
    }

    fn node(&self, node: NodeId) -> &NodeReclaim {
        &self.nodes[node.index()]
    }
}

impl<P: Platform> Mm<P> {
    /// Isolates folios from the tail of a list until `folios` is full or `most` pages were scanned.
    fn isolate_lru_folios(
        &self,
        node: NodeId,
        list: LruList,
        most: u32,
        folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
    ) -> LruScan {
        self.frames().isolate_tail(node, list, most, |isolated| {
            folios.push(isolated);
            !folios.is_full()
        })
    }

    /// Returns an isolated folio to the list that its flags name, or frees it if unreferenced.
    pub(crate) fn putback(&self, isolated: IsolatedFolio) {
        if let Some(block) = self.frames().putback(isolated) {
            self.tlb.free(block);
        }
    }

    /// The number of base pages on the lists of a type.
    fn lru_pages_of(&self, node: NodeId, lru: LruType) -> u64 {
        [lru.inactive(), lru.active()].iter().map(|list| u64::from(self.frames().lru_pages(node, *list))).sum()
    }

    /// Whether a swap slot is free.
    fn can_swap(&self) -> bool {
        self.swap_slots().1 > 0
    }

    /// Whether anonymous pages of a node can leave it (`can_reclaim_anon_pages`).
    fn can_reclaim_anon(&self, node: NodeId) -> bool {
        self.can_swap() || self.demotion_target(node).is_some()
    }

    /// The node of a folio.
    pub(crate) fn node_of(&self, folio: Folio<'_>) -> NodeId {
        self.frames().node_of(folio.pfn()).unwrap_or_default()
    }
}
