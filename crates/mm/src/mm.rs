//! The memory of one machine.
//!
//! **INV-MM-RESCHED** A call that populates or pins many pages offers the CPU to other work before
//! each page (`cond_resched`), and holds no lock then. Otherwise one call would occupy the CPU for
//! as long as a VM's memory takes.

use crate::counters::Gauge;
use crate::file::Files;
use crate::policy::TaskPolicies;
use crate::reclaim::Reclaim;
use crate::rmap::ForkTree;
use crate::settings::{MmSetting, MmSettings};
use crate::space::{CommittedPages, Space};
use crate::swap::SwapState;
use crate::tier::PromotionState;
use alloc::boxed::Box;
use pagewright_plant::plant;
use pagewright_sync::atomic::{AtomicU32, AtomicU64};
use pagewright_sync::{Arc, Backend, Platform, RankSet, try_boxed};
use pagewright_table::LeafView;
use pagewright_tlb::Tlb;
use pagewright_tlb::frames::{
    ClearExtent, Folio, FolioCell, FolioFlags, FrameAllocator, Frames, FramesError, MemoryLayout, NoFrames,
};
use pagewright_types::{Counter, LruList, NodeId, NodeMask, Order, PAGE_SIZE, Pfn};
use thiserror::Error;

/// The memory manager of one machine.
pub struct Mm<P: Platform> {
    pub(crate) tlb: Tlb<P>,
    pub(crate) fork_tree: ForkTree<P>,
    pub(crate) files: Files<P>,
    pub(crate) swap: SwapState<P>,
    pub(crate) reclaim: Reclaim,
    pub(crate) settings: MmSettings,
    pub(crate) committed: CommittedPages,
    /// Migrators that may have entries in page tables.
    pub(crate) migrators: AtomicU32,
    pub(crate) task_policies: TaskPolicies,
    /// What promotion to each node remembers.
    pub(crate) promotions: Box<[PromotionState]>,
    /// The embedder's time in ms, as its last tick said (`jiffies`).
    pub(crate) clock_ms: AtomicU64,
    /// The zero page (`ZERO_PAGE`).
    ///
    /// Special leaves map it for reads of untouched anonymous memory.
    pub(crate) zero_page: Pfn,
    /// The huge page of zeroes, once a load has mapped it.
    pub(crate) huge_zero: FolioCell,
}

/// Why the memory manager of a machine could not be set up.
#[derive(Debug, Error)]
pub enum MmSetupError {
    /// The layout is invalid, or there is no memory for the memmap.
    #[error(transparent)]
    Frames(FramesError),
    /// The TLB engine could not be set up.
    #[error(transparent)]
    Tlb(pagewright_tlb::TlbSetupError),
    /// There is no frame for the zero page.
    #[error("no frame for the zero page: {0}")]
    ZeroPage(NoFrames),
}

impl<P: Platform> Mm<P> {
    /// Sets up the memory manager of the machine `fx`, whose memory is `layout`.
    ///
    /// # Errors
    /// [`MmSetupError`]; everything allocated is freed.
    pub fn try_new(fx: P, layout: &MemoryLayout<'_>, settings: MmSettings) -> Result<Self, MmSetupError> {
        let frames =
            FrameAllocator::try_new(fx.clone(), &with_watermarks(layout, &settings)).map_err(MmSetupError::Frames)?;
        let reclaim = Reclaim::try_new(frames.nodes(), frames.cpus());
        let reclaim = reclaim.map_err(|error| MmSetupError::Frames(FramesError::OutOfMemory(error)))?;
        let task_policies = TaskPolicies::try_new(frames.cpus());
        let task_policies = task_policies.map_err(|error| MmSetupError::Frames(FramesError::OutOfMemory(error)))?;
        let promotions = try_boxed(frames.nodes(), core::iter::repeat_with(PromotionState::default));
        let promotions = promotions.map_err(|error| MmSetupError::Frames(FramesError::OutOfMemory(error)))?;
        frames.clear_selector().set_policy(settings.clear_policy());
        frames.set_lru_batch(settings.get(MmSetting::LruBatch) as u32);
        let tlb = Tlb::try_new(fx, frames, settings.tlb_config()).map_err(MmSetupError::Tlb)?;
        let cleared = tlb.alloc_zeroed(tlb.request(Order::ZERO), ClearExtent::PAGE).map_err(MmSetupError::ZeroPage)?;
        let zero = tlb.frames().new_folio(cleared.into_block());
        tlb.frames().folio(zero.pfn()).set_flags(FolioFlags::RESERVED | FolioFlags::UPTODATE);
        let zero_page = zero.into_raw();
        Ok(Self {
            tlb,
            fork_tree: ForkTree::new(),
            files: Files::new(),
            swap: SwapState::new(),
            reclaim,
            settings,
            committed: CommittedPages::default(),
            migrators: AtomicU32::new(0),
            task_policies,
            promotions,
            clock_ms: AtomicU64::new(0),
            zero_page,
            huge_zero: FolioCell::new(),
        })
    }

    /// Returns the TLB engine, for switches between spaces and for shootdown IPIs.
    pub fn tlb(&self) -> &Tlb<P> {
        &self.tlb
    }

    /// Returns the settings.
    pub fn settings(&self) -> &MmSettings {
        &self.settings
    }

    /// Returns the value of a gauge, in pages.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        match gauge {
            Gauge::SwapCached => self.swap_cached(),
            Gauge::FreePages => self.frames().available(),
            Gauge::InactiveAnon => self.listed(LruList::InactiveAnon),
            Gauge::ActiveAnon => self.listed(LruList::ActiveAnon),
            Gauge::InactiveFile => self.listed(LruList::InactiveFile),
            Gauge::ActiveFile => self.listed(LruList::ActiveFile),
            Gauge::Unevictable => self.listed(LruList::Unevictable),
            Gauge::AnonPages
            | Gauge::Mapped
            | Gauge::FilePages
            | Gauge::Shmem
            | Gauge::PageTablePages
            | Gauge::AnonThps => {
                // The CPUs are read one after the other: pages may move behind the reader.
                self.frames().gauges().sum(gauge).max(0) as u64
            }
        }
    }

    /// Returns the number of pages on the LRU lists of a kind, over all nodes.
    pub(crate) fn listed(&self, list: LruList) -> u64 {
        self.nodes().map(|node| u64::from(self.frames().lru_pages(node, list))).sum()
    }

    /// Returns the value of a counter since boot.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.frames().counter(counter)
    }

    /// Calls `visit` for every address space, oldest first, without locks.
    ///
    /// A space that begins or ends concurrently may be visited or not.
    pub fn for_each_space(&self, visit: impl FnMut(&Arc<Space<P>>)) {
        self.fork_tree.for_each_space(visit);
    }

    pub(crate) fn frames(&self) -> &Frames<P> {
        self.tlb.frames()
    }

    pub(crate) fn fx(&self) -> &P {
        self.tlb.fx()
    }

    /// Returns the folio that a leaf maps; `None` for a special leaf (`vm_normal_folio`).
    #[inline]
    pub(crate) fn vm_normal_folio(&self, leaf: LeafView) -> Option<Folio<'_>> {
        (!leaf.is_special()).then(|| self.frames().folio(leaf.pfn()))
    }

    /// Returns the nodes of the machine.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + Clone + use<P> {
        (0..self.frames().nodes()).map(|node| NodeId::new(node as u8))
    }

    /// Returns the nodes of the machine as a mask.
    pub fn node_mask(&self) -> NodeMask {
        NodeMask::first(self.frames().nodes())
    }

    /// Returns whether the machine has a node of this number.
    pub fn has_node(&self, node: i32) -> bool {
        usize::try_from(node).is_ok_and(|node| node < self.frames().nodes())
    }

    /// Returns a function that reads bytes at an offset in `page`, for a device to store them.
    pub(crate) fn reader_of(&self, page: Pfn) -> impl FnMut(u64, &mut [u8]) {
        move |offset, bytes| {
            debug_assert!(offset + bytes.len() as u64 <= PAGE_SIZE, "a read past the end of the page");
            self.fx().read(page.base().add(offset), bytes);
        }
    }

    /// Returns a function that stores bytes of a device at an offset in `page`.
    pub(crate) fn writer_of(&self, page: Pfn) -> impl FnMut(u64, &[u8]) {
        move |offset, bytes| {
            debug_assert!(offset + bytes.len() as u64 <= PAGE_SIZE, "a store past the end of the page");
            self.fx().write(page.base().add(offset), bytes);
        }
    }

    /// Offers this CPU to other work, between two pages of a long operation (INV-MM-RESCHED).
    ///
    /// # Locks
    /// The caller holds none.
    pub(crate) fn cond_resched(&self) {
        debug_assert!(P::Locks::held() == RankSet::EMPTY, "INV-MM-RESCHED: locks are held");
        plant!(PopulateNoResched => return);
        self.fx().cond_resched();
    }

    /// Returns whether kernel memory may be allocated now; fault injection refuses here.
    pub(crate) fn permit(&self) -> bool {
        self.fx().permit_allocation()
    }
}

/// Returns `layout` with the watermarks of the settings that are not at their defaults.
fn with_watermarks<'a>(layout: &MemoryLayout<'a>, settings: &MmSettings) -> MemoryLayout<'a> {
    let (min_free, scale) = (settings.get(MmSetting::MinFreeKbytes), settings.get(MmSetting::WatermarkScaleFactor));
    let scale_is_set = scale != MmSetting::WatermarkScaleFactor.default();
    MemoryLayout {
        min_free_kbytes: if min_free > 0 { Some(min_free) } else { layout.min_free_kbytes },
        watermark_scale_factor: if scale_is_set { scale as u16 } else { layout.watermark_scale_factor },
        ..*layout
    }
}
