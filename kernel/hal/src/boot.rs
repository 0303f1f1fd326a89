//! Firmware's description of the machine, in one form for both instruction sets.
//!
//! `arch` fills a [`Firmware`]. [`start`] reserves memory for the heap and makes the [`BootInfo`]
//! for the kernel: the free frames by node, the initramfs, and the command line.
//!
//! Not guaranteed: that memory which firmware declares usable is usable. Memory below 1 MiB is not
//! used.

use crate::heap;
use crate::kernel;
use crate::machine::linear;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use pagewright_types::{CpuMask, FrameRange, NodeId, PAGE_SIZE, Pfn, PhysAddr};

/// Physical memory from `start` to `end`, exclusive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Region {
    pub(crate) const fn new(start: u64, len: u64) -> Self {
        Self { start, end: start + len }
    }

    const fn len(self) -> u64 {
        self.end - self.start
    }
}

/// The most regions that firmware can report.
pub(crate) const REGIONS: usize = 64;
/// The most CPUs that are started.
pub(crate) const CPUS: usize = 64;

/// Firmware's description of the machine.
#[derive(Debug)]
pub(crate) struct Firmware {
    /// Usable memory.
    pub(crate) memory: ArrayVec<Region, REGIONS>,
    /// The parts of it in use: the image, the initramfs, firmware's tables.
    pub(crate) reserved: ArrayVec<Region, REGIONS>,
    /// Memory by node; if empty, all memory belongs to node 0.
    pub(crate) node_memory: ArrayVec<(NodeId, Region), REGIONS>,
    /// Hardware ids and nodes of the CPUs, the boot CPU first.
    pub(crate) cpus: ArrayVec<(u64, NodeId), CPUS>,
    /// Distances between nodes.
    pub(crate) distances: ArrayVec<(NodeId, NodeId, u8), 256>,
    pub(crate) initrd: Option<Region>,
    pub(crate) command_line: &'static str,
}

/// A NUMA node of the machine.
#[derive(Debug)]
pub struct NodeInfo {
    /// Its number, which is its index among the nodes.
    pub id: NodeId,
    /// Its free memory.
    pub ranges: Vec<FrameRange>,
    /// Its CPUs.
    pub cpus: CpuMask,
}

/// The machine as the kernel sees it.
#[derive(Debug)]
pub struct BootInfo {
    /// Its nodes.
    pub nodes: Vec<NodeInfo>,
    /// Distances between nodes, row by row: firmware's, or Linux's defaults.
    pub distances: Vec<u8>,
    /// The initramfs: a cpio archive.
    pub initrd: &'static [u8],
    /// The kernel's command line.
    pub command_line: &'static str,
    /// Hardware ids of the CPUs.
    pub(crate) cpus: Vec<u64>,
}

/// Upper bound of the memory manager's record of a frame (`frame::record`), in bytes.
const BYTES_PER_FRAME: u64 = 64;
/// Initial size of the heap without the records of frames.
const HEAP_MIN: u64 = 4 << 20;
const HEAP_ALIGN: u64 = 2 << 20;
/// The distance of a node to itself, and the default of two nodes (`include/linux/topology.h`).
const LOCAL_DISTANCE: u8 = 10;
const REMOTE_DISTANCE: u8 = 20;
/// Memory below this address is not used.
const LOWEST_ADDRESS: u64 = 1 << 20;

/// Makes the heap and starts the kernel; runs on CPU 0.
///
/// # Panics
/// If no region is large enough for the heap.
pub(crate) fn start(firmware: Firmware) -> ! {
    let free = subtract(&firmware.memory, &firmware.reserved);
    let lowest = free.iter().map(|region| region.start).min().unwrap_or(0);
    let highest = free.iter().map(|region| region.end).max().unwrap_or(0);
    let wanted = HEAP_MIN + (highest - lowest) / PAGE_SIZE * BYTES_PER_FRAME;
    let wanted = wanted.next_multiple_of(HEAP_ALIGN);
    let Some(place) = heap_place(&firmware, &free, wanted) else {
        panic!("no {wanted} contiguous bytes of memory for the kernel's heap: {free:?}")
    };
    let heap = Region { start: (place.end - wanted) & !(HEAP_ALIGN - 1), end: place.end };
    let mut reserved = firmware.reserved.clone();
    reserved.push(heap);
    heap::grow(slice(heap));
    let free = subtract(&firmware.memory, &reserved);
    kernel::start(info(&firmware, &free))
}

/// The highest free region with room for the heap; of the boot CPU's node, if that has one.
///
/// All CPUs use the heap, so it belongs neither on a slow tier nor where it takes all of a node.
fn heap_place(firmware: &Firmware, free: &[Region], bytes: u64) -> Option<Region> {
    let highest = |regions: &mut dyn Iterator<Item = Region>| {
        regions.filter(|region| region.len() >= bytes + HEAP_ALIGN).max_by_key(|region| region.end)
    };
    let near = firmware.cpus.first().map_or(NodeId::new(0), |(_, node)| *node);
    highest(&mut parts_of_node(firmware, free, near)).or_else(|| highest(&mut free.iter().copied()))
}

/// The parts of free regions that belong to a node.
fn parts_of_node<'a>(firmware: &'a Firmware, free: &'a [Region], id: NodeId) -> impl Iterator<Item = Region> + 'a {
    let owned = move |region: Region| {
        let parts = firmware.node_memory.iter().filter(move |(node, _)| *node == id).map(|(_, part)| *part);
        // Without a description of nodes, all memory belongs to node 0.
        let whole = (firmware.node_memory.is_empty() && id == NodeId::new(0)).then_some(region);
        let both = move |part: Region| Region { start: region.start.max(part.start), end: region.end.min(part.end) };
        parts.chain(whole).map(both).filter(|part| part.start < part.end)
    };
    free.iter().copied().flat_map(owned)
}

/// A reserved region as memory.
fn slice(region: Region) -> &'static mut [u8] {
    // SAFETY: the region is reserved, so nothing else uses it.
    unsafe { core::slice::from_raw_parts_mut(linear(PhysAddr::new(region.start)), region.len() as usize) }
}

fn info(firmware: &Firmware, free: &[Region]) -> BootInfo {
    let nodes = 1 + firmware.node_memory.iter().map(|(node, _)| node.index()).max().unwrap_or(0);
    let node = |index: usize| {
        let id = NodeId::new(index as u8);
        let mut ranges: Vec<FrameRange> = parts_of_node(firmware, free, id).filter_map(frames).collect();
        ranges.sort_unstable_by_key(|range| range.start());
        let cpus = firmware.cpus.iter().enumerate().filter(|(_, (_, node))| *node == id);
        NodeInfo { id, ranges, cpus: cpus.map(|(cpu, _)| pagewright_types::CpuId::new(cpu as u16)).collect() }
    };
    let initrd = firmware.initrd.map_or(&[][..], |region| &*slice(region));
    BootInfo {
        nodes: (0..nodes).map(node).collect(),
        distances: distances(firmware, nodes),
        initrd,
        command_line: firmware.command_line,
        cpus: firmware.cpus.iter().map(|(id, _)| *id).collect(),
    }
}

/// The distances between nodes, row by row.
///
/// A pair that firmware leaves out has the distance of the other direction
/// (`of_numa_parse_distance_map_v1`) or Linux's default. If firmware reports an impossible
/// distance, none is used (`slit_valid`).
fn distances(firmware: &Firmware, nodes: usize) -> Vec<u8> {
    let default = |cell: usize| if cell / nodes == cell % nodes { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
    let mut matrix: Vec<u8> = (0..nodes * nodes).map(default).collect();
    let is_possible = |(from, to, distance): &(NodeId, NodeId, u8)| {
        if from == to { *distance == LOCAL_DISTANCE } else { *distance > LOCAL_DISTANCE }
    };
    let known = firmware.distances.iter().filter(|(from, to, _)| from.index() < nodes && to.index() < nodes);
    if firmware.distances.iter().all(is_possible) {
        for (from, to, distance) in known {
            matrix[from.index() * nodes + to.index()] = *distance;
            if to > from {
                matrix[to.index() * nodes + from.index()] = *distance;
            }
        }
    }
    matrix
}

/// The whole frames of a region.
fn frames(region: Region) -> Option<FrameRange> {
    let start = region.start.next_multiple_of(PAGE_SIZE);
    let end = region.end & !(PAGE_SIZE - 1);
    (start < end).then(|| FrameRange::new(Pfn::containing(PhysAddr::new(start)), Pfn::containing(PhysAddr::new(end))))
}

/// The parts of `memory` above [`LOWEST_ADDRESS`] and outside `taken`, in ascending order.
///
/// Adjacent parts are one, whatever nodes they belong to.
fn subtract(memory: &[Region], taken: &[Region]) -> ArrayVec<Region, REGIONS> {
    let mut free: ArrayVec<Region, REGIONS> = ArrayVec::new();
    for region in memory {
        let mut at = region.start.max(LOWEST_ADDRESS);
        while at < region.end {
            let next = taken.iter().filter(|taken| taken.end > at && taken.start < region.end && taken.len() > 0);
            let Some(taken) = next.min_by_key(|taken| taken.start) else {
                free.push(Region { start: at, end: region.end });
                break;
            };
            if taken.start > at {
                free.push(Region { start: at, end: taken.start });
            }
            at = taken.end;
        }
    }
    free.sort_unstable_by_key(|region| region.start);
    joined(&free)
}

/// Joins adjacent regions of a sorted list: firmware of arm64 reports one for each node.
fn joined(regions: &[Region]) -> ArrayVec<Region, REGIONS> {
    let mut all: ArrayVec<Region, REGIONS> = ArrayVec::new();
    for region in regions {
        match all.last_mut().filter(|last| last.end == region.start) {
            Some(last) => last.end = region.end,
            None => all.push(*region),
        }
    }
    all
}
