//! The front of the frame allocator, and the memory of a machine by frame number.
//!
//! Key types: [`Frames`], all physical memory of a machine; [`FrameRequest`] and [`NoFrames`], an
//! allocation and its failure.
//!
//! ```text
//! alloc(FrameRequest) ─▶ permitted? ─▶ for each watermark (low, min[, none]):
//!                                        for each zone, nearest first, above the watermark:
//!                                          per-CPU list, then buddy lists ─▶ UnsettledBlock ─ settle ─▶ Block
//! ```
//!
//! Neighbours: `zone` allocates and frees; `folio` and `table_page` turn blocks into folios and
//! tables. Only `tlb` calls [`Frames::alloc`], because only `tlb` can settle a debt.
//!
//! Protocol: validate, reserve, commit. An allocation that fails changes nothing but counters and
//! which free blocks are on per-CPU lists. Nothing here allocates heap memory after
//! [`Frames::try_new`].
//!
//! Not guaranteed: fairness between CPUs, or that a large block is available when enough small
//! blocks are free.

use crate::block::{Block, UnsettledBlock};
use crate::clear::{ClearCaps, ClearSelector, Residency};
use crate::layout::{MemoryLayout, MemoryLayoutError};
use crate::lru::Lru;
use crate::memmap::Memmap;
use crate::record::FrameState;
use crate::watermark::{self, Urgency, Watermarks};
use crate::zone::{WatermarkLevel, Zone, ZoneBlock, ZoneId, ZoneKind, ZoneRequest, ZoneView};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use pagewright_sync::{AllocError, Counters, Platform};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, CpuId, DebtKey, FrameRange, NodeId, Order, Pfn};

/// A request for a block of frames (Linux's order and `gfp_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    /// Size of the block: 2^order frames.
    pub order: Order,
    /// Preferred node.
    pub node: NodeId,
    /// Whether only the preferred node may serve the request (`__GFP_THISNODE`).
    pub strict: bool,
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
        Self { order, node, strict: false, urgency: Urgency::Normal, settled_only: false }
    }
}

/// The failure of a [`FrameRequest`].
///
/// Nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrames {
    /// The request.
    pub request: FrameRequest,
    /// The reason.
    pub cause: NoFramesCause,
}

/// Why a [`FrameRequest`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFramesCause {
    /// [`permit_allocation`](pagewright_arch::Effects::permit_allocation) refused the allocation.
    NotPermitted,
    /// No zone that may serve the request has a free block of that order above its watermark.
    Exhausted,
}

impl fmt::Display for NoFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FrameRequest { order, node, .. } = self.request;
        match self.cause {
            NoFramesCause::NotPermitted => write!(f, "no block of order {order} near node {node}: not permitted"),
            NoFramesCause::Exhausted => write!(f, "no block of order {order} near node {node}: memory is exhausted"),
        }
    }
}

/// Why [`Frames::try_new`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramesError {
    /// The layout is invalid.
    Layout(MemoryLayoutError),
    /// There is no heap memory for the records.
    OutOfMemory(AllocError),
}

impl From<MemoryLayoutError> for FramesError {
    fn from(error: MemoryLayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<AllocError> for FramesError {
    fn from(error: AllocError) -> Self {
        Self::OutOfMemory(error)
    }
}

impl fmt::Display for FramesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::OutOfMemory(error) => error.fmt(f),
        }
    }
}

/// The physical memory of one machine.
pub struct Frames<P: Platform> {
    machine: P,
    counters: Counters,
    clear_selector: ClearSelector,
    pub(crate) memmap: Memmap,
    pub(crate) zones: Box<[Zone<P::Locks>]>,
    pub(crate) lru: Lru<P::Locks>,
    /// Ranges of memory in ascending order, each with its zone.
    spans: Box<[(FrameRange, ZoneId)]>,
    /// For each node, its own zones and then those of other nodes, nearest first (`zonelist`).
    fallbacks: Box<[Box<[ZoneId]>]>,
    node_of_cpu: Box<[NodeId]>,
}

impl<P: Platform> Frames<P> {
    /// Builds the memmap and the zones of a machine, with all frames free.
    ///
    /// The only call of this crate that allocates heap memory.
    ///
    /// # Errors
    /// [`FramesError`] when the layout is invalid, the machine does not permit the allocation, or
    /// the heap is exhausted.
    pub fn try_new(machine: P, layout: &MemoryLayout<'_>) -> Result<Self, FramesError> {
        let span = layout.check()?;
        if !machine.permit_allocation() {
            let bytes = Memmap::bytes(span.frames);
            return Err(AllocError { bytes }.into());
        }
        let memmap = Memmap::try_new(span.frames)?;
        let zones = zones_of::<P>(layout, span.cpus)?;
        let spans = spans_of(layout, &zones)?;
        let frames = Self {
            counters: Counters::try_new(span.cpus)?,
            clear_selector: clear_selector_for(&machine),
            fallbacks: fallbacks_of(layout, &zones)?,
            node_of_cpu: nodes_of_cpus(layout, span.cpus)?,
            lru: Lru::try_new(layout.nodes.len())?,
            machine,
            memmap,
            zones,
            spans,
        };
        for (range, zone) in &frames.spans {
            frames.zones[zone.index()].add_range(&frames.memmap, *range);
        }
        Ok(frames)
    }

    /// Allocates a block of frames (`alloc_pages`).
    ///
    /// Drains the per-CPU lists once before it fails. Takes locks of ranks `PerCpuPagesRank` and
    /// `ZoneRank`.
    ///
    /// # Errors
    /// [`NoFrames`], with the request and the reason.
    ///
    /// # Panics
    /// When the machine has no node `request.node`.
    pub fn alloc(&self, request: FrameRequest) -> Result<UnsettledBlock, NoFrames> {
        if !self.machine.permit_allocation() {
            return Err(NoFrames { request, cause: NoFramesCause::NotPermitted });
        }
        let cpu = self.machine.cpu();
        let found = WatermarkLevel::of(request.urgency).iter().find_map(|mark| self.take_above(*mark, cpu, request));
        // Linux's slow path also drains the per-CPU lists once before it gives up.
        let found = found.or_else(|| {
            self.drain();
            WatermarkLevel::of(request.urgency).last().and_then(|mark| self.take_above(*mark, cpu, request))
        });
        match found {
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

    #[inline]
    fn take_above(&self, mark: WatermarkLevel, cpu: CpuId, request: FrameRequest) -> Option<UnsettledBlock> {
        let cold_after = self.clear_selector.cache_frames();
        let zone_request = ZoneRequest { order: request.order, settled_only: request.settled_only, cold_after };
        let here = self.node_of_cpu(cpu);
        let zones = self.fallbacks[request.node.index()].iter().map(|id| &self.zones[id.index()]);
        let zones = zones.take_while(|zone| !request.strict || zone.node == request.node);
        zones.filter(|zone| zone.above(mark, request.order)).find_map(|zone| {
            let ZoneBlock { pfn, key, residency } = zone.take(&self.memmap, cpu, zone_request)?;
            // This CPU freed none of the frames of another node, or the block would be hot.
            let far = zone.node != here && residency == Residency::Unknown;
            let residency = if far { Residency::Cold } else { residency };
            Some(UnsettledBlock::new(Block::new(pfn, request.order).with_residency(residency), key))
        })
    }

    /// Frees a block.
    ///
    /// Its frames owe only the debts that [`Folio::add_debt`](crate::Folio::add_debt) recorded.
    ///
    /// Takes locks of ranks `PerCpuPagesRank` and `ZoneRank`.
    #[inline]
    pub fn free(&self, block: Block) {
        self.free_with_debt(block, DebtKey::NONE);
    }

    /// Frees a block and parks its frames under a debt (`free_pages`).
    ///
    /// The allocator hands the frames out again only together with a key that covers `key` and the
    /// debts that [`Folio::add_debt`](crate::Folio::add_debt) recorded. Takes locks of ranks
    /// `PerCpuPagesRank` and `ZoneRank`.
    ///
    /// # Panics
    /// In debug builds when the frames are not an allocated block.
    #[inline]
    pub fn free_with_debt(&self, block: Block, key: DebtKey) {
        let cpu = self.machine.cpu();
        let pfn = block.into_raw();
        let record = self.memmap.at(pfn);
        let kind = record.kind();
        let key = record.debt().merge(key);
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is freed as {kind:?}");
        self.machine.declare(Fact::FrameFreed { pfn, order: kind.order() });
        self.zones[kind.zone().index()].put(&self.memmap, cpu, pfn, kind, key);
        self.counters.add(cpu, Counter::PgFree, u64::from(kind.order().frames()));
    }

    /// Frees many blocks that owe only the debts recorded in their records (`free_unref_folios`).
    pub(crate) fn free_many(&self, blocks: &[Pfn]) {
        let cpu = self.machine.cpu();
        let mut frames = 0;
        for pfn in blocks {
            let kind = self.memmap.at(*pfn).kind();
            debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is freed as {kind:?}");
            self.machine.declare(Fact::FrameFreed { pfn: *pfn, order: kind.order() });
            frames += u64::from(kind.order().frames());
        }
        let mut left = blocks;
        while let Some(first) = left.first() {
            let zone = &self.zones[self.memmap.at(*first).kind().zone().index()];
            left = &left[zone.put_many(&self.memmap, cpu, left)..];
        }
        self.counters.add(cpu, Counter::PgFree, frames);
    }

    /// Frees a block that was just allocated and whose debt cannot be settled now.
    pub fn free_unsettled(&self, unsettled: UnsettledBlock) {
        let (block, key) = unsettled.into_parts();
        self.free_with_debt(block, key);
    }

    /// Makes a block of the frame number that [`Block::into_raw`] returned.
    ///
    /// The residency of the block is unknown afterwards.
    ///
    /// # Panics
    /// In debug builds when no allocated block begins at `pfn`.
    pub fn block_from_raw(&self, pfn: Pfn) -> Block {
        let kind = self.memmap.at(pfn).kind();
        debug_assert_eq!(
            kind.state(),
            FrameState::Allocated,
            "INV-FRAME-STATE: frame {pfn} is {kind:?}, not allocated"
        );
        Block::new(pfn, kind.order())
    }

    /// Moves all blocks from per-CPU lists to the buddy lists (`drain_all_pages`).
    ///
    /// The blocks coalesce there.
    ///
    /// Takes locks of ranks `PerCpuPagesRank` and `ZoneRank`.
    pub fn drain(&self) {
        for zone in &self.zones {
            zone.drain(&self.memmap);
        }
    }

    /// The machine.
    #[inline]
    pub fn machine(&self) -> &P {
        &self.machine
    }

    /// The selector of the stores that clear frames.
    #[inline]
    pub fn clear_selector(&self) -> &ClearSelector {
        &self.clear_selector
    }

    /// The counters of the machine, which all layers share.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Adds `n` to a counter of the running CPU.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        self.counters.add(self.machine.cpu(), counter, n);
    }

    /// The zones, by node and then by address.
    pub fn zones(&self) -> impl Iterator<Item = ZoneView<'_, P::Locks>> {
        self.zones.iter().map(ZoneView)
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.fallbacks.len()
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.node_of_cpu.len()
    }

    /// The node of a CPU.
    ///
    /// # Panics
    /// When there is no such CPU.
    #[inline]
    pub fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.node_of_cpu[cpu.index()]
    }

    /// The node of a frame; `None` if the frame is not memory.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let after = self.spans.partition_point(|(range, _)| range.start() <= pfn);
        let (range, zone) = self.spans.get(after.checked_sub(1)?)?;
        range.contains(pfn).then(|| self.zones[zone.index()].node)
    }

    /// The ranges of memory, in ascending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.spans.iter().map(|(range, _)| *range)
    }

    /// The state in the record of a frame, for checks and reports.
    ///
    /// A frame that is not memory is `Interior`.
    pub fn state(&self, pfn: Pfn) -> FrameState {
        self.memmap.get(pfn).map_or(FrameState::Interior, |record| record.kind().state())
    }

    /// The number of frames of the machine.
    pub fn managed(&self) -> u64 {
        self.zones.iter().map(|zone| u64::from(zone.managed)).sum()
    }

    /// The number of free frames, those on per-CPU lists included.
    ///
    /// Takes the `PerCpuPagesRank` lock of each CPU in turn.
    pub fn available(&self) -> u64 {
        self.zones().map(|zone| u64::from(zone.free()) + u64::from(zone.on_pcp())).sum()
    }
}

/// The first `len` of `values`, in memory that is reserved fallibly.
fn boxed<T>(len: usize, values: impl Iterator<Item = T>) -> Result<Box<[T]>, AllocError> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| AllocError { bytes: len * size_of::<T>() })?;
    all.extend(values.take(len));
    Ok(all.into_boxed_slice())
}

/// The ranges of a node that lie in its zone of this kind.
fn zone_ranges<'a>(layout: &'a MemoryLayout<'_>, node: usize, kind: ZoneKind) -> impl Iterator<Item = FrameRange> + 'a {
    layout.nodes[node].ranges.iter().filter_map(move |range| kind.part_of(*range))
}

/// The selector for a machine.
///
/// A machine without a linear map clears its frames itself and uses no stores of this CPU. It skips
/// detection, because each CPUID exits a guest to its hypervisor.
fn clear_selector_for<P: Platform>(machine: &P) -> ClearSelector {
    let map = machine.memory();
    let caps = if map.is_some() { ClearCaps::detect() } else { ClearCaps::ORDINARY_ONLY };
    ClearSelector::new(map, caps)
}

fn zones_of<P: Platform>(layout: &MemoryLayout<'_>, cpus: usize) -> Result<Box<[Zone<P::Locks>]>, AllocError> {
    let machine = layout.frames();
    let min_free = layout.min_free_kbytes.unwrap_or_else(|| watermark::min_free_kbytes(machine));
    let mut zones = Vec::new();
    let most = layout.nodes.len() * ZoneKind::ALL.len();
    zones.try_reserve_exact(most).map_err(|_| AllocError { bytes: most * size_of::<Zone<P::Locks>>() })?;
    for (index, node) in layout.nodes.iter().enumerate() {
        for kind in ZoneKind::ALL {
            let managed = zone_ranges(layout, index, kind).map(FrameRange::frames).sum();
            if managed > 0 {
                let marks = Watermarks::of_zone(managed, machine, min_free, layout.watermark_scale_factor);
                zones.push(Zone::try_new(ZoneId::new(zones.len() as u8), node.id, kind, managed, marks, cpus)?);
            }
        }
    }
    Ok(zones.into_boxed_slice())
}

fn spans_of<L>(layout: &MemoryLayout<'_>, zones: &[Zone<L>]) -> Result<Box<[(FrameRange, ZoneId)]>, AllocError> {
    let all = || {
        zones.iter().enumerate().flat_map(|(id, zone)| {
            zone_ranges(layout, zone.node.index(), zone.kind).map(move |range| (range, ZoneId::new(id as u8)))
        })
    };
    let mut spans = boxed(all().count(), all())?;
    spans.sort_unstable_by_key(|(range, _)| range.start());
    Ok(spans)
}

/// For each node, all zones: nearest node first, then by node number.
///
/// Within a node, zones go from high addresses to low, so that memory below 4 GiB is used last
/// (Linux's `build_zonelists`).
fn fallbacks_of<L>(layout: &MemoryLayout<'_>, zones: &[Zone<L>]) -> Result<Box<[Box<[ZoneId]>]>, AllocError> {
    let mut lists = Vec::new();
    let nodes = layout.nodes.len();
    lists.try_reserve_exact(nodes).map_err(|_| AllocError { bytes: nodes * size_of::<Box<[ZoneId]>>() })?;
    for from in 0..nodes {
        let mut list = boxed(zones.len(), (0..zones.len()).map(|id| ZoneId::new(id as u8)))?;
        list.sort_unstable_by_key(|id| {
            let zone = &zones[id.index()];
            let to = zone.node.index();
            (to != from, layout.distance(from, to), to, core::cmp::Reverse(zone.kind))
        });
        lists.push(list);
    }
    Ok(lists.into_boxed_slice())
}

fn nodes_of_cpus(layout: &MemoryLayout<'_>, cpus: usize) -> Result<Box<[NodeId]>, AllocError> {
    let mut nodes = boxed(cpus, core::iter::repeat_n(NodeId::new(0), cpus))?;
    for node in layout.nodes {
        for cpu in node.cpus.iter() {
            nodes[cpu.index()] = node.id;
        }
    }
    Ok(nodes)
}
