//! Allocation of frames (`mm/page_alloc.c`).
//!
//! Key types: [`FrameAllocator`], the right to allocate; [`FrameRequest`] and [`NoFrames`], an
//! allocation and its failure.
//!
//! ```text
//! alloc(FrameRequest) ─▶ permitted? ─▶ for each watermark (low, min[, none]):
//!                                        for each zone of a permitted node, nearest first, above the watermark:
//!                                          per-CPU list, then settled blocks ─▶ UnsettledBlock ─ settle ─▶ Block
//!                                          none left to take ─▶ unpark 64 blocks that the floor covers, again
//!                                          the floor covers none ─▶ a parked block, if the caller may wait
//!   nothing above low ─▶ the permitted nodes want background reclaim
//!   nothing found ─▶ drain the per-CPU lists, once more
//! ```
//!
//! **INV-FRAME-NODES** An allocation takes a block of a node that its request permits, the nearest
//! first, and fails if none has one above its watermark. Otherwise a program would get memory that
//! it has excluded.
//!
//! Neighbours: `zone` takes the block; `free` takes it back.
//!
//! **INV-FRAME-SEALED** Only the settling allocator of `tlb` can take frames that may owe a debt.
//! The right to allocate is a type: `tlb` owns its only value, and no reference to the frames leads
//! back to it. Types enforce it (`compile_fail` examples in `frame::allocate` and
//! `tlb::settling_alloc`).
//!
//! So no crate above can take a frame without settling its debt:
//!
//! ```compile_fail,E0599
//! # use pagewright_frame::{FrameRequest, Frames};
//! # use pagewright_types::DebtFloor;
//! fn take<P: pagewright_sync::Platform>(frames: &Frames<P>, request: FrameRequest) {
//!     let _ = frames.alloc(request, || DebtFloor::NONE);
//! }
//! ```
//!
//! Protocol: validate, reserve, commit. An allocation that fails changes nothing but counters and
//! which free blocks are on per-CPU lists.
//!
//! Not guaranteed: fairness between CPUs, or that a large block is available when enough small
//! blocks are free.

use crate::block::{Block, UnsettledBlock};
use crate::clear::Residency;
use crate::frames::{Frames, FramesError};
use crate::layout::MemoryLayout;
use crate::node_event::NodeEvent;
use crate::watermark::Urgency;
use crate::zone::{WatermarkLevel, Zone, ZoneBlock, ZoneRequest};
use core::cell::LazyCell;
use core::ops::Deref;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Counter, CpuId, DebtFloor, NodeId, NodeMask, Order};
use thiserror::Error;

/// A request for a block of frames (Linux's order and `gfp_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    /// Size of the block: 2^order frames.
    pub order: Order,
    /// Preferred node.
    pub node: NodeId,
    /// The nodes that may serve the request (the `nodemask` of `alloc_pages`).
    pub permitted: NodeMask,
    /// How far below the watermarks the request may go.
    pub urgency: Urgency,
    /// Whether only frames without a debt may serve the request.
    ///
    /// For a caller that may not wait for other CPUs.
    pub settled_only: bool,
}

impl FrameRequest {
    /// A request for 2^order frames near `node`, at normal urgency.
    ///
    /// Other nodes may serve it, and parked frames too.
    pub const fn new(order: Order, node: NodeId) -> Self {
        Self { order, node, permitted: NodeMask::ALL, urgency: Urgency::Normal, settled_only: false }
    }

    /// A request for 2^order frames of `node` alone (`__GFP_THISNODE`), at normal urgency.
    pub const fn of_node(order: Order, node: NodeId) -> Self {
        Self { permitted: NodeMask::of(node), ..Self::new(order, node) }
    }
}

/// The failure of a [`FrameRequest`].
///
/// Nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no block of order {} near node {}: {cause}", .request.order, .request.node)]
pub struct NoFrames {
    /// The request.
    pub request: FrameRequest,
    /// The reason.
    pub cause: NoFramesCause,
}

/// Why a [`FrameRequest`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoFramesCause {
    /// [`permit_allocation`](pagewright_arch::Effects::permit_allocation) refused the allocation.
    #[error("not permitted")]
    NotPermitted,
    /// No zone that may serve the request has a free block of that order above its watermark.
    #[error("memory is exhausted")]
    Exhausted,
}

/// The physical memory of a machine, with the right to allocate it.
///
/// It dereferences to [`Frames`], which everything but an allocation needs.
pub struct FrameAllocator<P: Platform>(Frames<P>);

impl<P: Platform> Deref for FrameAllocator<P> {
    type Target = Frames<P>;

    #[inline]
    fn deref(&self) -> &Frames<P> {
        &self.0
    }
}

impl<P: Platform> FrameAllocator<P> {
    /// Builds the memmap and the zones of a machine, with all frames free.
    ///
    /// The only call of this crate that allocates heap memory.
    ///
    /// # Errors
    /// [`FramesError`] when the layout is invalid, the machine does not permit the allocation, or
    /// the heap is exhausted.
    pub fn try_new(machine: P, layout: &MemoryLayout<'_>) -> Result<Self, FramesError> {
        Frames::try_new(machine, layout).map(Self)
    }

    /// Allocates a block of frames (`alloc_pages`).
    ///
    /// Before it takes a parked block, it makes parked blocks settled that `floor` covers. Before
    /// it fails, it drains the per-CPU lists once. Takes locks of ranks `PerCpuPagesRank` and
    /// `ZoneRank`, and calls `floor` without them, only if blocks are parked.
    ///
    /// # Errors
    /// [`NoFrames`], with the request and the reason.
    ///
    /// # Panics
    /// When the machine has no node `request.node`.
    pub fn alloc(&self, request: FrameRequest, floor: impl Fn() -> DebtFloor) -> Result<UnsettledBlock, NoFrames> {
        if !self.machine.permit_allocation() {
            return Err(NoFrames { request, cause: NoFramesCause::NotPermitted });
        }
        let cpu = self.machine.cpu();
        for mark in WatermarkLevel::of(request.urgency) {
            if let Some(unsettled) = self.take_above(*mark, cpu, request, &floor) {
                self.counters.add(cpu, Counter::PgAlloc, u64::from(request.order.frames()));
                return Ok(unsettled);
            }
            if *mark == WatermarkLevel::Low {
                self.want_reclaim_for(request);
            }
        }
        self.alloc_drained(cpu, request, &floor)
    }

    /// Drains the per-CPU lists and tries once more, as Linux's slow path.
    #[cold]
    fn alloc_drained(
        &self,
        cpu: CpuId,
        request: FrameRequest,
        floor: &dyn Fn() -> DebtFloor,
    ) -> Result<UnsettledBlock, NoFrames> {
        self.drain();
        let mark = WatermarkLevel::of(request.urgency).last();
        match mark.and_then(|mark| self.take_above(*mark, cpu, request, floor)) {
            Some(unsettled) => {
                self.counters.add(cpu, Counter::PgAlloc, u64::from(request.order.frames()));
                Ok(unsettled)
            }
            None => {
                self.counters.add(cpu, Counter::AllocStall, 1);
                Err(NoFrames { request, cause: NoFramesCause::Exhausted })
            }
        }
    }

    /// Unparks the blocks whose debts are settled, so that they coalesce with their buddies.
    ///
    /// Returns the number of their frames. Takes locks of rank `ZoneRank`, each for at most 64
    /// blocks at a time.
    #[cold]
    pub fn unpark(&self, floor: DebtFloor) -> u64 {
        let some_of = |zone: &Zone<P::Locks>| Some(zone.unpark(&self.memmap, floor)).filter(|frames| *frames > 0);
        self.zones.iter().flat_map(|zone| core::iter::from_fn(move || some_of(zone))).map(u64::from).sum()
    }

    /// Takes a block from the nearest zone that has one above the watermark.
    #[inline]
    fn take_above(
        &self,
        mark: WatermarkLevel,
        cpu: CpuId,
        request: FrameRequest,
        floor: &dyn Fn() -> DebtFloor,
    ) -> Option<UnsettledBlock> {
        let cold_after = self.clear_selector.cache_frames();
        let zone_request = ZoneRequest { order: request.order, settled_only: request.settled_only, cold_after };
        let permitted = plant!(BindFallsBack; NodeMask::ALL, request.permitted);
        // The node that would serve the request if it had enough memory (`preferred_zoneref`).
        let mut preferred = None;
        for id in &self.fallbacks[request.node.index()] {
            let zone = &self.zones[id.index()];
            if !permitted.contains(zone.node) {
                continue;
            }
            let preferred = *preferred.get_or_insert(zone.node);
            let settled = self.take_settled(zone, mark, cpu, zone_request);
            let found = settled.or_else(|| self.take_after_unparking(zone, mark, cpu, zone_request, floor));
            if let Some(ZoneBlock { pfn, key, residency }) = found {
                let local = self.node_of_cpu(cpu);
                self.count_numa(cpu, zone.node, preferred, local);
                // This CPU freed none of the frames of another node, or the block would be hot.
                let far = residency == Residency::Unknown && zone.node != local;
                let residency = if far { Residency::Cold } else { residency };
                return Some(UnsettledBlock::new(Block::new(pfn, request.order).with_residency(residency), key));
            }
        }
        None
    }

    /// Takes a settled block of a zone above the mark.
    #[inline(always)]
    fn take_settled(
        &self,
        zone: &Zone<P::Locks>,
        mark: WatermarkLevel,
        cpu: CpuId,
        request: ZoneRequest,
    ) -> Option<ZoneBlock> {
        let is_above = zone.above(mark, request.order, request.settled_only);
        if is_above { zone.take(&self.memmap, cpu, request) } else { None }
    }

    /// Unparks blocks whose debts are settled until one can be taken, else takes a parked one.
    ///
    /// For a request that found no settled block to spare.
    #[cold]
    fn take_after_unparking(
        &self,
        zone: &Zone<P::Locks>,
        mark: WatermarkLevel,
        cpu: CpuId,
        request: ZoneRequest,
        floor: &dyn Fn() -> DebtFloor,
    ) -> Option<ZoneBlock> {
        let floor = LazyCell::new(floor);
        while zone.parked() > 0 {
            if !self.unpark_for(zone, mark, request, &|| *floor) {
                return self.take_parked(zone, mark, request);
            }
            if let Some(block) = self.take_settled(zone, mark, cpu, request) {
                return Some(block);
            }
        }
        None
    }

    /// Makes some parked blocks settled, for a request that found no settled one to spare.
    ///
    /// Returns whether it did, so that the request may find one now.
    fn unpark_for(
        &self,
        zone: &Zone<P::Locks>,
        mark: WatermarkLevel,
        request: ZoneRequest,
        floor: &dyn Fn() -> DebtFloor,
    ) -> bool {
        // A zone that is not above the mark becomes so only for a caller that may not wait.
        let may_help = request.settled_only || zone.above(mark, request.order, false);
        may_help && zone.unpark(&self.memmap, floor()) > 0
    }

    /// Takes a parked block of a zone above the mark, for a caller that may wait.
    fn take_parked(&self, zone: &Zone<P::Locks>, mark: WatermarkLevel, request: ZoneRequest) -> Option<ZoneBlock> {
        if !request.settled_only && zone.above(mark, request.order, false) {
            zone.take_parked(&self.memmap, request)
        } else {
            None
        }
    }

    /// Counts where a block came from (`zone_statistics`).
    #[inline]
    fn count_numa(&self, cpu: CpuId, served: NodeId, preferred: NodeId, local: NodeId) {
        let count = |node: NodeId, event: NodeEvent| {
            self.node_events[node.index()].add(cpu, event as usize, 1);
        };
        if served == preferred {
            count(served, NodeEvent::Hit);
        } else {
            count(served, NodeEvent::Miss);
            count(preferred, NodeEvent::Foreign);
        }
        count(served, if served == local { NodeEvent::Local } else { NodeEvent::Other });
    }

    /// Records that no zone above its low watermark serves a request (`wake_all_kswapds`).
    ///
    /// Parked frames count, so a zone may be short for a request for settled frames alone.
    #[cold]
    fn want_reclaim_for(&self, request: FrameRequest) {
        let permitted = |node: &NodeId| request.permitted.contains(*node);
        let mut zones = self.zones.iter().filter(|zone| permitted(&zone.node));
        if request.settled_only && zones.any(|zone| zone.above(WatermarkLevel::Low, request.order, false)) {
            return;
        }
        let nodes = (0..self.nodes()).map(|node| NodeId::new(node as u8));
        nodes.filter(permitted).for_each(|node| self.want_reclaim(node));
    }
}
