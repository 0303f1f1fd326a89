//! Reclaim: taking pages from programs that will not miss them.
//!
//! | file | what it does |
//! | --- | --- |
//! | `watermark` | background reclaim: when it starts and when it stops |
//! | `direct` | an allocation that failed reclaims for itself, and tries again |
//! | `asked` | reclaim because somebody asks for it |
//! | `scan` | how much of each list of a node is looked at, and what becomes of it |
//! | `age` | whether a page is in use, by the bits that walkers set |
//! | `workingset` | what is remembered of pages that went, for when they come back |
//! | `pageout` | a list of pages: unmapped all, flushed once, written, freed |
//! | `unmap` | every mapping of one page, into a batch |
//! | `advice` | `MADV_PAGEOUT` and `MADV_COLD` |
//!
//! INV-RECLAIM-SETTLED: a page is written to its device, and freed, only after every CPU has forgotten the translations that were taken from it.
//!
//! Protocol: nobody waits. A space whose mappings somebody is changing, a page that is locked, pinned, or mapped where memory is locked: they
//! stay. So reclaim may run wherever an allocation may, also for who holds a space himself. The exception is background reclaim, which may wait
//! to write files back, since nobody waits for it.
//!
//! Neighbours: uses `rmap`, `swap`, `file`; `space::advise`, allocations and the embedder's background thread call it.
//!
//! Not guaranteed: that a page which was asked for goes.

mod advice;
mod age;
mod asked;
mod direct;
mod pageout;
mod scan;
mod unmap;
mod watermark;
mod workingset;

pub(crate) use workingset::Shadow;

use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::sync::atomic::AtomicBool;
use pagewright_sync::{OutOfMemory, PerCpu, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, Isolated, Looked};
use pagewright_types::{Counter, LruList, NodeId};
use workingset::NodeMemory;

/// Pages that go together: one wait pays for all (`SWAP_CLUSTER_MAX`).
pub(crate) const CLUSTER: usize = 32;

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
    /// Which CPUs reclaim: what they allocate meanwhile must not make them begin again (`PF_MEMALLOC`).
    busy: PerCpu<AtomicBool>,
}

impl Reclaim {
    pub(crate) fn try_new(nodes: usize, cpus: usize) -> Result<Self, OutOfMemory> {
        let mut all = Vec::new();
        all.try_reserve_exact(nodes).map_err(|_| OutOfMemory { bytes: nodes * size_of::<NodeMemory>() })?;
        all.extend((0..nodes).map(|_| NodeMemory::default()));
        Ok(Self { nodes: all.into_boxed_slice(), busy: PerCpu::try_new(cpus, |_| AtomicBool::new(false))? })
    }

    fn node(&self, node: NodeId) -> &NodeMemory {
        &self.nodes[node.index()]
    }
}

impl<P: Platform> Mm<P> {
    /// Takes folios off the end of a list, as many as fit, until `most` pages were looked at.
    fn isolate_some(&self, node: NodeId, list: LruList, most: u32, folios: &mut ArrayVec<Isolated, CLUSTER>) -> Looked {
        self.frames().isolate_tail(node, list, most, |isolated| {
            folios.push(isolated);
            !folios.is_full()
        })
    }

    /// Puts an isolated folio on the list that its flags name, unless it is given back just now.
    pub(crate) fn putback(&self, isolated: Isolated) {
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

    fn note_cost(&self, node: NodeId, sort: Sort, moved: u32, rotated: u32) {
        let pages: u64 = Sort::ALL.iter().map(|sort| self.pages_of(node, *sort)).sum();
        self.reclaim.node(node).note_cost(sort, moved, rotated, pages.min(u64::from(u32::MAX)) as u32);
    }

    /// A folio is active now that was not: who is inactive is that much older (`workingset_activation`).
    fn note_activation(&self, folio: Folio<'_>) {
        self.reclaim.node(self.node_of(folio)).age(folio.pages());
        self.tlb.count(Counter::PgActivate, u64::from(folio.pages()));
    }

    fn node_of(&self, folio: Folio<'_>) -> NodeId {
        self.frames().node_of(folio.pfn()).unwrap_or_default()
    }

    /// What a folio leaves behind that goes now.
    pub(crate) fn shadow_of(&self, folio: Folio<'_>) -> Shadow {
        let node = self.node_of(folio);
        let workingset = folio.flags().contains(FolioFlags::WORKINGSET);
        self.reclaim.node(node).evict(node, folio.pages(), workingset)
    }

    /// Says of a folio that is back and on no list yet what was left behind when it went (`workingset_refault`).
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

    /// Pages of a node with which one of a sort competes that comes back (`workingset_test_recent`).
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
