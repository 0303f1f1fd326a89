//! The physical memory of one machine, by frame number.
//!
//! Key type: [`Frames`].
//!
//! Neighbours: `allocate` hands blocks out and `free` takes them back; `zone` has their lists;
//! `folio` and `table_page` turn blocks into folios and tables.
//!
//! Protocol: nothing here allocates heap memory after [`Frames::try_new`].
//!
//! Not guaranteed: that a machine has memory at every frame number of the memmap.

use crate::block::Block;
use crate::clear::{ClearCaps, ClearSelector};
use crate::deferred::DeferredSplits;
use crate::folio::Folio;
use crate::layout::{MemoryLayout, MemoryLayoutError};
use crate::lru::Lru;
use crate::memmap::Memmap;
use crate::node_event::NodeEvent;
use crate::record::FrameState;
use crate::tiers::{demotion_targets_of, top_tier_of};
use crate::watermark::{self, Watermarks};
use crate::zone::{Zone, ZoneId, ZoneKind, ZoneView};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_sync::{AllocError, Backend, Counters, Gauges, PerCpuSums, Platform, try_boxed, try_boxed_each};
use pagewright_types::{Counter, CpuId, FrameRange, Gauge, NodeId, NodeMask, Pfn};
use thiserror::Error;

/// Why [`FrameAllocator::try_new`](crate::FrameAllocator::try_new) failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramesError {
    /// The layout is invalid.
    #[error(transparent)]
    Layout(#[from] MemoryLayoutError),
    /// There is no heap memory for the records.
    #[error(transparent)]
    OutOfMemory(#[from] AllocError),
}

/// The physical memory of one machine.
///
/// [`FrameAllocator`](crate::FrameAllocator) allocates it.
pub struct Frames<P: Platform> {
    pub(crate) machine: P,
    pub(crate) counters: Counters,
    gauges: Gauges,
    pub(crate) clear_selector: ClearSelector,
    pub(crate) memmap: Memmap,
    pub(crate) zones: Box<[Zone<P::Locks>]>,
    pub(crate) lru: Lru<P::Locks>,
    /// For each node, its folios that wait to be split.
    pub(crate) deferred: Box<[DeferredSplits<P::Locks>]>,
    /// Ranges of memory in ascending order, each with its zone.
    spans: Box<[(FrameRange, ZoneId)]>,
    /// For each node, its own zones and then those of other nodes, nearest first (`zonelist`).
    pub(crate) fallbacks: Box<[Box<[ZoneId]>]>,
    pub(crate) node_of_cpu: Box<[NodeId]>,
    /// For each node, the one to which its pages are demoted.
    pub(crate) demotion_targets: Box<[Option<NodeId>]>,
    pub(crate) top_tier: NodeMask,
    /// For each node, its [`NodeEvent`]s.
    pub(crate) node_events: Box<[PerCpuSums<{ NodeEvent::ALL.len() }>]>,
    /// For each node, whether it was found short of free frames, and reclaim is wanted.
    pub(crate) reclaim_wanted: Box<[AtomicBool]>,
}

impl<P: Platform> Frames<P> {
    /// As [`FrameAllocator::try_new`](crate::FrameAllocator::try_new).
    pub(crate) fn try_new(machine: P, layout: &MemoryLayout<'_>) -> Result<Self, FramesError> {
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
            gauges: Gauges::try_new(span.cpus)?,
            clear_selector: clear_selector_for(&machine),
            fallbacks: fallbacks_of(layout, &zones)?,
            node_of_cpu: nodes_of_cpus(layout, span.cpus)?,
            demotion_targets: demotion_targets_of(layout)?,
            top_tier: top_tier_of(layout),
            node_events: try_boxed_each(
                layout.nodes.len(),
                layout.nodes.iter().map(|_| PerCpuSums::try_new(span.cpus)),
            )?,
            reclaim_wanted: try_boxed(layout.nodes.len(), layout.nodes.iter().map(|_| AtomicBool::new(false)))?,
            lru: Lru::try_new(layout.nodes.len(), span.cpus)?,
            deferred: DeferredSplits::try_new(layout.nodes.len())?,
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

    /// Makes a block of the frame number that [`Block::into_raw`] returned.
    ///
    /// The residency of the block is unknown afterwards. A [`BlockList`](crate::BlockList) stores
    /// blocks without unsafe code.
    ///
    /// # Panics
    /// In debug builds when no allocated block begins at `pfn`.
    ///
    /// # Safety
    /// INV-FRAME-LINEAR: `pfn` is the value of a [`Block::into_raw`], and no other call has made a
    /// block of it since.
    #[allow(unsafe_code)]
    pub unsafe fn block_from_raw(&self, pfn: Pfn) -> Block {
        let kind = self.memmap.at(pfn).kind();
        debug_assert_eq!(
            kind.state(),
            FrameState::Allocated,
            "INV-FRAME-STATE: frame {pfn} is {kind:?}, not allocated"
        );
        Block::new(pfn, kind.order())
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

    /// The gauges of the machine that are stored.
    #[inline]
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Changes a gauge by `pages`, on the running CPU.
    #[inline]
    pub fn adjust(&self, gauge: Gauge, pages: i64) {
        self.gauges.adjust(self.machine.cpu(), gauge, pages);
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

    /// The value of a counter over all CPUs and nodes.
    ///
    /// Those of [`NodeEvent`]s are kept by node alone, so an allocation counts each once.
    pub fn counter(&self, counter: Counter) -> u64 {
        match NodeEvent::of(counter) {
            Some(event) => self.node_events.iter().map(|node| node.sum(event as usize)).sum(),
            None => self.counters.sum(counter),
        }
    }

    /// Whether an operation found the node short of free frames.
    ///
    /// [`Self::reclaim_done`] forgets it.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn is_reclaim_wanted(&self, node: NodeId) -> bool {
        self.reclaim_wanted[node.index()].load(Ordering::Relaxed)
    }

    /// Asks for background reclaim of a node (`wakeup_kswapd`).
    ///
    /// # Panics
    /// When there is no such node.
    pub fn want_reclaim(&self, node: NodeId) {
        self.reclaim_wanted[node.index()].store(true, Ordering::Relaxed);
    }

    /// Forgets that a node wants reclaim; background reclaim of it has ended.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn reclaim_done(&self, node: NodeId) {
        self.reclaim_wanted[node.index()].store(false, Ordering::Relaxed);
    }

    /// The node of a frame; `None` if the frame is not memory.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let after = self.spans.partition_point(|(range, _)| range.start() <= pfn);
        let (range, zone) = self.spans.get(after.checked_sub(1)?)?;
        range.contains(pfn).then(|| self.zones[zone.index()].node)
    }

    /// The node of a folio, by its record.
    #[inline]
    pub(crate) fn node_of_folio(&self, folio: Folio<'_>) -> NodeId {
        self.zones[folio.record().kind().zone().index()].node
    }

    /// The ranges of memory, in ascending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.spans.iter().map(|(range, _)| *range)
    }

    /// The number behind the last frame of memory (`max_pfn`).
    pub fn max_pfn(&self) -> Pfn {
        self.ranges().last().map_or(Pfn::new(0), |range| range.end())
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

    /// The number of free frames that owe a debt.
    pub fn parked(&self) -> u64 {
        self.zones.iter().map(|zone| u64::from(zone.parked())).sum()
    }

    /// The number of free frames, those on per-CPU lists included.
    ///
    /// Takes the `PerCpuPagesRank` lock of each CPU in turn.
    pub fn available(&self) -> u64 {
        self.zones().map(|zone| u64::from(zone.free()) + u64::from(zone.on_pcp())).sum()
    }
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
    let parts = || {
        let kinds = |index| ZoneKind::ALL.into_iter().map(move |kind| (index, kind));
        let frames = |(index, kind)| (index, kind, zone_ranges(layout, index, kind).map(FrameRange::frames).sum());
        (0..layout.nodes.len()).flat_map(kinds).map(frames).filter(|(_, _, managed): &(_, _, u32)| *managed > 0)
    };
    let zone = |(id, (index, kind, managed)): (usize, (usize, _, _))| {
        let marks = Watermarks::of_zone(managed, machine, min_free, layout.watermark_scale_factor);
        Zone::try_new(ZoneId::new(id as u8), layout.nodes[index].id, kind, managed, marks, cpus)
    };
    try_boxed_each(parts().count(), parts().enumerate().map(zone))
}

fn spans_of<L: Backend>(
    layout: &MemoryLayout<'_>,
    zones: &[Zone<L>],
) -> Result<Box<[(FrameRange, ZoneId)]>, AllocError> {
    let all = || {
        zones.iter().enumerate().flat_map(|(id, zone)| {
            zone_ranges(layout, zone.node.index(), zone.kind).map(move |range| (range, ZoneId::new(id as u8)))
        })
    };
    let mut spans = try_boxed(all().count(), all())?;
    spans.sort_unstable_by_key(|(range, _)| range.start());
    Ok(spans)
}

/// For each node, all zones: nearest node first, then by node number.
///
/// Within a node, zones go from high addresses to low, so that memory below 4 GiB is used last
/// (Linux's `build_zonelists`).
fn fallbacks_of<L: Backend>(layout: &MemoryLayout<'_>, zones: &[Zone<L>]) -> Result<Box<[Box<[ZoneId]>]>, AllocError> {
    let list_of = |from| {
        let mut list = try_boxed(zones.len(), (0..zones.len()).map(|id| ZoneId::new(id as u8)))?;
        list.sort_unstable_by_key(|id| {
            let zone = &zones[id.index()];
            let to = zone.node.index();
            (to != from, layout.distance(from, to), to, core::cmp::Reverse(zone.kind))
        });
        Ok(list)
    };
    try_boxed_each(layout.nodes.len(), (0..layout.nodes.len()).map(list_of))
}

fn nodes_of_cpus(layout: &MemoryLayout<'_>, cpus: usize) -> Result<Box<[NodeId]>, AllocError> {
    let mut nodes = try_boxed(cpus, core::iter::repeat_n(NodeId::new(0), cpus))?;
    for node in layout.nodes {
        for cpu in node.cpus.iter() {
            nodes[cpu.index()] = node.id;
        }
    }
    Ok(nodes)
}
