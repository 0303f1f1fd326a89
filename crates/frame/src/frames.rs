//! All physical memory of a machine: the allocator's front, and the way from a frame number to what
//! it is.
//!
//! Key types: [`Frames`]; [`FrameRequest`] and [`NoFrames`], a demand and its refusal.
//!
//! ```text
//! take(FrameRequest) ─▶ permitted? ─▶ for each mark (low, min[, none]), for each zone by distance: ─▶ UnsettledBlock ─ settle ─▶ Block
//!                                  above the mark? per-CPU list → buddy lists
//! ```
//!
//! Neighbours: `zone` does the work; `folio` and `table_page` are what blocks become. `tlb` is the
//! only crate that calls `take`, because it alone can settle.
//!
//! Protocol: validate, reserve, commit – a `take` that fails has changed nothing but counters and
//! the division between per-CPU and buddy lists. Nothing here allocates after [`Frames::try_new`].
//!
//! Not guaranteed: fairness between CPUs, nor that a large block can be had when enough small ones
//! are free.

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
use pagewright_sync::{Counters, OutOfMemory, Platform};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, CpuId, DebtKey, FrameRange, NodeId, Order, Pfn};

/// A demand for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    /// How many: 2^order.
    pub order: Order,
    /// Where, if there is room.
    pub node: NodeId,
    /// Whether other nodes will not do (Linux's `__GFP_THISNODE`).
    pub strict: bool,
    /// How far below the watermarks.
    pub urgency: Urgency,
    /// Whether frames that owe a debt will not do, because the caller may not wait for other CPUs
    /// to settle it.
    pub settled_only: bool,
}

impl FrameRequest {
    /// 2^order frames near `node`, at normal urgency, parked frames welcome.
    pub const fn new(order: Order, node: NodeId) -> Self {
        Self { order, node, strict: false, urgency: Urgency::Normal, settled_only: false }
    }
}

/// A [`FrameRequest`] that was not met.
///
/// Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrames {
    /// What was asked for.
    pub request: FrameRequest,
    /// Why it was refused.
    pub cause: NoFramesCause,
}

/// Why a [`FrameRequest`] was not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFramesCause {
    /// [`permit_allocation`](pagewright_arch::Effects::permit_allocation) said no.
    NotPermitted,
    /// No zone that will do has such a block above its watermark.
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

/// Why a machine's memory could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramesError {
    /// The layout is impossible.
    Layout(MemoryLayoutError),
    /// There is no memory for the records themselves.
    OutOfMemory(OutOfMemory),
}

impl From<MemoryLayoutError> for FramesError {
    fn from(error: MemoryLayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<OutOfMemory> for FramesError {
    fn from(error: OutOfMemory) -> Self {
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
    clearing: ClearSelector,
    pub(crate) memmap: Memmap,
    pub(crate) zones: Box<[Zone<P::Locks>]>,
    pub(crate) lru: Lru<P::Locks>,
    /// Memory in ascending order, and whose it is.
    spans: Box<[(FrameRange, ZoneId)]>,
    /// For each node, its zones and then those of other nodes, nearest first (Linux's zonelists).
    fallbacks: Box<[Box<[ZoneId]>]>,
    node_of_cpu: Box<[NodeId]>,
}

impl<P: Platform> Frames<P> {
    /// Sets up the memory of a machine, all of it free.
    ///
    /// # Errors
    /// [`FramesError`]; nothing is kept.
    pub fn try_new(machine: P, layout: &MemoryLayout<'_>) -> Result<Self, FramesError> {
        let span = layout.check()?;
        if !machine.permit_allocation() {
            let bytes = Memmap::bytes(span.frames);
            return Err(OutOfMemory { bytes }.into());
        }
        let memmap = Memmap::try_new(span.frames)?;
        let zones = zones_of::<P>(layout, span.cpus)?;
        let spans = spans_of(layout, &zones)?;
        let frames = Self {
            counters: Counters::try_new(span.cpus)?,
            clearing: clearing_of(&machine),
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

    /// Takes a block of frames.
    ///
    /// # Errors
    /// [`NoFrames`], with the request.
    ///
    /// # Panics
    /// When the machine has no such node.
    pub fn alloc(&self, request: FrameRequest) -> Result<UnsettledBlock, NoFrames> {
        if !self.machine.permit_allocation() {
            return Err(NoFrames { request, cause: NoFramesCause::NotPermitted });
        }
        let cpu = self.machine.cpu();
        let found = WatermarkLevel::of(request.urgency).iter().find_map(|mark| self.take_above(*mark, cpu, request));
        // As Linux's slow path, which drains the per-CPU lists once before it gives up.
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
        let cold_after = self.clearing.cache_frames();
        let want = ZoneRequest { order: request.order, settled_only: request.settled_only, cold_after };
        let here = self.node_of_cpu(cpu);
        let zones = self.fallbacks[request.node.index()].iter().map(|id| &self.zones[id.index()]);
        let zones = zones.take_while(|zone| !request.strict || zone.node == request.node);
        zones.filter(|zone| zone.above(mark, request.order)).find_map(|zone| {
            let ZoneBlock { pfn, key, residency } = zone.take(&self.memmap, cpu, want)?;
            // Nothing of another node's was freed here, or it would be hot.
            let far = zone.node != here && residency == Residency::Unknown;
            let residency = if far { Residency::Cold } else { residency };
            Some(UnsettledBlock::new(Block::new(pfn, request.order).with_residency(residency), key))
        })
    }

    /// Gives back frames that owe nothing but what they [owed](crate::Folio::add_debt) already.
    #[inline]
    pub fn free(&self, block: Block) {
        self.free_with_debt(block, DebtKey::NONE);
    }

    /// Gives back frames that nobody may use before the debt under `key` is settled, nor before
    /// what they [owed](crate::Folio::add_debt) already: parks them.
    #[inline]
    pub fn free_with_debt(&self, block: Block, key: DebtKey) {
        let cpu = self.machine.cpu();
        let pfn = block.into_raw();
        let record = self.memmap.at(pfn);
        let kind = record.kind();
        let key = record.debt().merge(key);
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is freed and is {kind:?}");
        self.machine.declare(Fact::FrameFreed { pfn, order: kind.order() });
        self.zones[kind.zone().index()].put(&self.memmap, cpu, pfn, kind, key);
        self.counters.add(cpu, Counter::PgFree, u64::from(kind.order().frames()));
    }

    /// Gives back blocks that owe nothing but what they [owed](crate::Folio::add_debt) already, many at
    /// a time.
    pub(crate) fn free_many(&self, blocks: &[Pfn]) {
        let cpu = self.machine.cpu();
        let mut frames = 0;
        for pfn in blocks {
            let kind = self.memmap.at(*pfn).kind();
            debug_assert_eq!(
                kind.state(),
                FrameState::Allocated,
                "INV-FRAME-STATE: frame {pfn} is freed and is {kind:?}"
            );
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

    /// Gives back what was just taken and can't be settled now.
    pub fn free_unsettled(&self, unsettled: UnsettledBlock) {
        let (block, key) = unsettled.into_parts();
        self.free_with_debt(block, key);
    }

    /// Makes a block of the frame number that [`Block::into_raw`] gave.
    ///
    /// # Panics
    /// In debug builds when no block is taken there.
    pub fn block_from_raw(&self, pfn: Pfn) -> Block {
        let kind = self.memmap.at(pfn).kind();
        debug_assert_eq!(kind.state(), FrameState::Allocated, "INV-FRAME-STATE: frame {pfn} is {kind:?}");
        Block::new(pfn, kind.order())
    }

    /// Moves all blocks on per-CPU lists to the buddy lists, where they coalesce.
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

    /// The choice of stores by which frames are cleared.
    #[inline]
    pub fn clear_selector(&self) -> &ClearSelector {
        &self.clearing
    }

    /// What the machine counts; every layer counts here.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Adds `n` to what the running CPU has counted.
    #[inline]
    pub fn count(&self, counter: Counter, n: u64) {
        self.counters.add(self.machine.cpu(), counter, n);
    }

    /// The zones, by node and address.
    pub fn zones(&self) -> impl Iterator<Item = ZoneView<'_, P::Locks>> {
        self.zones.iter().map(ZoneView)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.fallbacks.len()
    }

    /// Number of CPUs.
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

    /// The node of a frame, or `None` where there is no memory.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let after = self.spans.partition_point(|(range, _)| range.start() <= pfn);
        let (range, zone) = self.spans.get(after.checked_sub(1)?)?;
        range.contains(pfn).then(|| self.zones[zone.index()].node)
    }

    /// Where there is memory, in ascending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.spans.iter().map(|(range, _)| *range)
    }

    /// What the record of a frame says, for checks and reports.
    ///
    /// `Interior` also where there is no memory.
    pub fn state(&self, pfn: Pfn) -> FrameState {
        self.memmap.get(pfn).map_or(FrameState::Interior, |record| record.kind().state())
    }

    /// Frames of the machine.
    pub fn managed(&self) -> u64 {
        self.zones.iter().map(|zone| u64::from(zone.managed)).sum()
    }

    /// Free frames, per-CPU lists included.
    pub fn available(&self) -> u64 {
        self.zones().map(|zone| u64::from(zone.free()) + u64::from(zone.on_pcp())).sum()
    }
}

/// A vector of which `fill` makes the contents, without a chance to abort on want of memory.
fn boxed<T>(len: usize, values: impl Iterator<Item = T>) -> Result<Box<[T]>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes: len * size_of::<T>() })?;
    all.extend(values.take(len));
    Ok(all.into_boxed_slice())
}

fn parts<'a>(layout: &'a MemoryLayout<'_>, node: usize, kind: ZoneKind) -> impl Iterator<Item = FrameRange> + 'a {
    layout.nodes[node].ranges.iter().filter_map(move |range| kind.part_of(*range))
}

/// A machine that clears by itself uses none of this CPU's stores, and asking for them is dear
/// where each CPUID leaves a guest.
fn clearing_of<P: Platform>(machine: &P) -> ClearSelector {
    let map = machine.memory();
    let caps = if map.is_some() { ClearCaps::detect() } else { ClearCaps::LEAST };
    ClearSelector::new(map, caps)
}

fn zones_of<P: Platform>(layout: &MemoryLayout<'_>, cpus: usize) -> Result<Box<[Zone<P::Locks>]>, OutOfMemory> {
    let machine = layout.frames();
    let min_free = layout.min_free_kbytes.unwrap_or_else(|| watermark::min_free_kbytes(machine));
    let mut zones = Vec::new();
    let most = layout.nodes.len() * ZoneKind::ALL.len();
    zones.try_reserve_exact(most).map_err(|_| OutOfMemory { bytes: most * size_of::<Zone<P::Locks>>() })?;
    for (index, node) in layout.nodes.iter().enumerate() {
        for kind in ZoneKind::ALL {
            let managed = parts(layout, index, kind).map(FrameRange::frames).sum();
            if managed > 0 {
                let marks = Watermarks::of_zone(managed, machine, min_free, layout.watermark_scale_factor);
                zones.push(Zone::try_new(ZoneId::new(zones.len() as u8), node.id, kind, managed, marks, cpus)?);
            }
        }
    }
    Ok(zones.into_boxed_slice())
}

fn spans_of<L>(layout: &MemoryLayout<'_>, zones: &[Zone<L>]) -> Result<Box<[(FrameRange, ZoneId)]>, OutOfMemory> {
    let all = || {
        zones.iter().enumerate().flat_map(|(id, zone)| {
            parts(layout, zone.node.index(), zone.kind).map(move |range| (range, ZoneId::new(id as u8)))
        })
    };
    let mut spans = boxed(all().count(), all())?;
    spans.sort_unstable_by_key(|(range, _)| range.start());
    Ok(spans)
}

/// For each node: nearest node first, then by number; within a node from high addresses to low, so
/// that memory below 4 GiB goes last (Linux's `build_zonelists`).
fn fallbacks_of<L>(layout: &MemoryLayout<'_>, zones: &[Zone<L>]) -> Result<Box<[Box<[ZoneId]>]>, OutOfMemory> {
    let mut lists = Vec::new();
    let nodes = layout.nodes.len();
    lists.try_reserve_exact(nodes).map_err(|_| OutOfMemory { bytes: nodes * size_of::<Box<[ZoneId]>>() })?;
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

fn nodes_of_cpus(layout: &MemoryLayout<'_>, cpus: usize) -> Result<Box<[NodeId]>, OutOfMemory> {
    let mut nodes = boxed(cpus, core::iter::repeat_n(NodeId::new(0), cpus))?;
    for node in layout.nodes {
        for cpu in node.cpus.iter() {
            nodes[cpu.index()] = node.id;
        }
    }
    Ok(nodes)
}
