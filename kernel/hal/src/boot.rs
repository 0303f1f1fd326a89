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
    /// Distances between nodes, row by row, if firmware reports them.
    pub distances: Option<Vec<u8>>,
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
    let place = free.iter().filter(|region| region.len() >= wanted + HEAP_ALIGN).max_by_key(|region| region.end);
    let Some(place) = place else { panic!("no {wanted} contiguous bytes of memory for the kernel's heap: {free:?}") };
    let heap = Region { start: (place.end - wanted) & !(HEAP_ALIGN - 1), end: place.end };
    let mut reserved = firmware.reserved.clone();
    reserved.push(heap);
    heap::grow(slice(heap));
    let free = subtract(&firmware.memory, &reserved);
    kernel::start(info(&firmware, &free))
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
        let owned: ArrayVec<Region, REGIONS> =
            firmware.node_memory.iter().filter(|(node, _)| *node == id).map(|(_, region)| *region).collect();
        let mut ranges: Vec<FrameRange> = Vec::new();
        for region in free {
            if firmware.node_memory.is_empty() {
                ranges.extend(frames(*region));
            }
            for part in &owned {
                let (start, end) = (region.start.max(part.start), region.end.min(part.end));
                if start < end {
                    ranges.extend(frames(Region { start, end }));
                }
            }
        }
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

fn distances(firmware: &Firmware, nodes: usize) -> Option<Vec<u8>> {
    if firmware.distances.is_empty() {
        return None;
    }
    let mut matrix: Vec<u8> =
        (0..nodes * nodes).map(|cell| if cell / nodes == cell % nodes { 10 } else { 20 }).collect();
    for (from, to, distance) in &firmware.distances {
        if let Some(cell) = matrix.get_mut(from.index() * nodes + to.index()) {
            *cell = *distance;
        }
    }
    Some(matrix)
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
