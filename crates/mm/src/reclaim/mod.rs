//! Reclaim: taking pages from programs that will not miss them.
//!
//! | file | what it does |
//! | --- | --- |
//! | `background` | background reclaim (kswapd): when it starts and when it stops |
//! | `direct` | an allocation that failed reclaims for itself, and tries again |
//! | `proactive` | reclaim because somebody asks for it |
//! | `scan` | how much of each list of a node is looked at, and what becomes of it |
//! | `age` | whether a page is in use, by the bits that walkers set |
//! | `workingset` | what is remembered of pages that went, for when they come back |
//! | `pageout` | a list of pages: unmapped all, flushed once, written, freed |
//! | `unmap` | every mapping of one page, into a batch |
//! | `advice` | `MADV_PAGEOUT` and `MADV_COLD` |
//!
//! INV-RECLAIM-SETTLED: a page is written to its device, and freed, only after every CPU has
//! forgotten the translations that were taken from it.
//!
//! Protocol: nobody waits. A space whose mappings somebody is changing, a page that is locked,
//! pinned, or mapped where memory is locked: they stay. So reclaim may run wherever an allocation
//! may, also for who holds a space himself. The exception is background reclaim, which may wait to
//! write files back, since nobody waits for it.
//!
//! Neighbours: uses `rmap`, `swap`, `file`; `space::advise`, allocations and the embedder's
//! background thread call it.
//!
//! Not guaranteed: that a page which was asked for goes.

mod advice;
mod age;
mod background;
mod direct;
mod pageout;
mod proactive;
mod scan;
mod unmap;
mod workingset;

pub(crate) use workingset::Shadow;

use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::sync::atomic::AtomicBool;
use pagewright_sync::{AllocError, PerCpu, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio, LruScan};
use pagewright_types::{LruList, NodeId};
use workingset::NodeMemory;

/// Pages that go together: one wait pays for all (`SWAP_CLUSTER_MAX`).
pub(crate) const SWAP_CLUSTER_MAX: usize = 32;

/// The two sorts of pages between which reclaim divides its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sort {
    /// Anonymous and shared memory: what must be written to swap.
    Anon,
    /// Pages of files, and anonymous ones whose contents may go.
    File,
}

impl Sort {
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

/// What reclaim keeps.
pub(crate) struct Reclaim {
    nodes: Box<[NodeMemory]>,
    /// Which CPUs reclaim: what they allocate meanwhile must not make them begin again
    /// (`PF_MEMALLOC`).
    busy: PerCpu<AtomicBool>,
}

impl Reclaim {
    pub(crate) fn try_new(nodes: usize, cpus: usize) -> Result<Self, AllocError> {
        let mut all = Vec::new();
        all.try_reserve_exact(nodes).map_err(|_| AllocError { bytes: nodes * size_of::<NodeMemory>() })?;
        all.extend((0..nodes).map(|_| NodeMemory::default()));
        Ok(Self { nodes: all.into_boxed_slice(), busy: PerCpu::try_new(cpus, |_| AtomicBool::new(false))? })
    }

    fn node(&self, node: NodeId) -> &NodeMemory {
        &self.nodes[node.index()]
    }
}

impl<P: Platform> Mm<P> {
    /// Takes folios off the end of a list, as many as fit, until `most` pages were looked at.
    fn isolate_some(
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

    /// Puts an isolated folio on the list that its flags name, unless it is given back just now.
    pub(crate) fn putback(&self, isolated: IsolatedFolio) {
        if let Some(block) = self.frames().putback(isolated) {
            self.tlb.free(block);
        }
    }

    /// Base pages on the lists of a sort.
    fn pages_of(&self, node: NodeId, sort: Sort) -> u64 {
        [sort.inactive(), sort.active()].iter().map(|list| u64::from(self.frames().lru_pages(node, *list))).sum()
    }

    /// Whether there is room in swap.
    fn can_swap(&self) -> bool {
        self.swap_slots().1 > 0
    }

    fn node_of(&self, folio: Folio<'_>) -> NodeId {
        self.frames().node_of(folio.pfn()).unwrap_or_default()
    }
}
