//! The memory layout of a machine: its nodes, with their frames, CPUs and distances.
//!
//! Key types: [`MemoryLayout`] and [`NodeSpec`], which the embedder fills from its firmware tables
//! or options; [`MemoryLayoutError`], which names what is invalid about them.
//!
//! Neighbours: `frames` builds the zones and the memmap from a checked layout.
//!
//! Not guaranteed: that the frames exist. The embedder must leave out the frames that firmware and
//! its own image occupy.

use pagewright_types::{CpuId, CpuMask, FrameRange, NodeId, NodeMask, Pfn};
use thiserror::Error;

/// The largest number of nodes of a machine.
///
/// It makes the number of a zone fit a byte of the frame record.
pub const MAX_NODES: usize = NodeMask::MAX;

/// The memory and the CPUs of one node.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpec<'a> {
    /// The node's number, which is its index in [`MemoryLayout::nodes`].
    pub id: NodeId,
    /// The node's memory, in ascending order.
    ///
    /// Holes and ranges of other nodes may lie between its ranges.
    pub ranges: &'a [FrameRange],
    /// The node's CPUs.
    ///
    /// A node without CPUs is a slower memory tier.
    pub cpus: CpuMask,
}

impl<'a> NodeSpec<'a> {
    /// The only node of a machine with the CPUs 0 to `cpus` − 1.
    pub fn only(ranges: &'a [FrameRange], cpus: usize) -> Self {
        Self { id: NodeId::new(0), ranges, cpus: CpuMask::first(cpus) }
    }
}

/// The physical memory of a machine.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLayout<'a> {
    /// All nodes, in the order of their numbers.
    pub nodes: &'a [NodeSpec<'a>],
    /// The distance from each node to each node, row by row.
    ///
    /// Distances are those of the firmware's SLIT (10 = local).
    ///
    /// `None`: all other nodes are equally far.
    pub distances: Option<&'a [u8]>,
    /// Linux's `vm.min_free_kbytes`, in KiB; `None` for Linux's default.
    pub min_free_kbytes: Option<u64>,
    /// Linux's `vm.watermark_scale_factor`, in units of 1/10,000 of a zone.
    pub watermark_scale_factor: u16,
}

impl<'a> MemoryLayout<'a> {
    /// A layout of these nodes, with Linux's defaults for everything else.
    pub const fn new(nodes: &'a [NodeSpec<'a>]) -> Self {
        Self { nodes, distances: None, min_free_kbytes: None, watermark_scale_factor: 10 }
    }

    /// Checks the layout, and returns its lowest and highest frame and its number of CPUs.
    pub(crate) fn check(&self) -> Result<MemorySpan, MemoryLayoutError> {
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return Err(MemoryLayoutError::NodeCount(self.nodes.len()));
        }
        if let Some(distances) = self.distances
            && distances.len() != self.nodes.len() * self.nodes.len()
        {
            return Err(MemoryLayoutError::Distances { nodes: self.nodes.len(), given: distances.len() });
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.id.index() != index {
                return Err(MemoryLayoutError::NodeOutOfOrder(node.id));
            }
        }
        Ok(MemorySpan { frames: self.check_ranges()?, cpus: self.check_cpus()? })
    }

    fn check_ranges(&self) -> Result<FrameRange, MemoryLayoutError> {
        let mut span: Option<FrameRange> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            if node.ranges.is_empty() {
                return Err(MemoryLayoutError::NodeWithoutMemory(node.id));
            }
            for (at, range) in node.ranges.iter().enumerate() {
                // The last frame number is the end mark of the lists in the memmap.
                if range.frames() == 0 || range.end() == Pfn::new(u32::MAX) {
                    return Err(MemoryLayoutError::BadRange { node: node.id, range: *range });
                }
                let earlier = &node.ranges[..at];
                if earlier.last().is_some_and(|last| last.end() > range.start()) {
                    return Err(MemoryLayoutError::BadRange { node: node.id, range: *range });
                }
                let others = self.nodes[..index].iter().flat_map(|other| other.ranges);
                if let Some(other) = others.into_iter().find(|other| other.overlaps(*range)) {
                    return Err(MemoryLayoutError::Overlap { node: node.id, range: *range, other: *other });
                }
                span = Some(span.map_or(*range, |span| {
                    FrameRange::new(span.start().min(range.start()), span.end().max(range.end()))
                }));
            }
        }
        span.ok_or(MemoryLayoutError::NodeCount(0))
    }

    fn check_cpus(&self) -> Result<usize, MemoryLayoutError> {
        let mut seen = CpuMask::EMPTY;
        for node in self.nodes {
            for cpu in node.cpus.iter() {
                if seen.contains(cpu) {
                    return Err(MemoryLayoutError::CpuOnTwoNodes(cpu));
                }
                seen.insert(cpu);
            }
        }
        let cpus = seen.iter().last().ok_or(MemoryLayoutError::NoCpu)?.index() + 1;
        match (0..cpus as u16).map(CpuId::new).find(|cpu| !seen.contains(*cpu)) {
            Some(missing) => Err(MemoryLayoutError::CpuOnNoNode(missing)),
            None => Ok(cpus),
        }
    }

    /// The distance from one node to another one; `None` without a table: all are equally far.
    pub(crate) fn distance(&self, from: usize, to: usize) -> Option<u8> {
        self.distances.map(|distances| distances[from * self.nodes.len() + to])
    }

    /// The number of frames of all nodes.
    pub(crate) fn frames(&self) -> u64 {
        self.nodes.iter().flat_map(|node| node.ranges).map(|range| u64::from(range.frames())).sum()
    }
}

/// The frames and CPUs that a valid layout spans.
pub(crate) struct MemorySpan {
    pub(crate) frames: FrameRange,
    pub(crate) cpus: usize,
}

/// What is invalid about a [`MemoryLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryLayoutError {
    /// There are no nodes, or more than [`MAX_NODES`].
    #[error("a machine has 1 to {MAX_NODES} nodes, not {0}")]
    NodeCount(usize),
    /// The number of a node is not its index.
    #[error("node {0} is not at its own index")]
    NodeOutOfOrder(NodeId),
    /// A node has no range of frames.
    #[error("node {0} has no memory")]
    NodeWithoutMemory(NodeId),
    /// A range is empty, out of order within its node, or reaches the last frame number.
    #[error("node {node} has frames {range}, which are empty, out of order or beyond 16 TiB")]
    BadRange {
        /// The node.
        node: NodeId,
        /// The range.
        range: FrameRange,
    },
    /// Two nodes share a frame.
    #[error("node {node} has frames {range}, which overlap {other} of another node")]
    Overlap {
        /// The node with the higher number.
        node: NodeId,
        /// Its range.
        range: FrameRange,
        /// A range of an earlier node.
        other: FrameRange,
    },
    /// No node has a CPU.
    #[error("no node has a CPU")]
    NoCpu,
    /// A CPU is listed on two nodes.
    #[error("CPU {0} is on two nodes")]
    CpuOnTwoNodes(CpuId),
    /// A CPU below the highest is on no node.
    #[error("CPU {0} is on no node")]
    CpuOnNoNode(CpuId),
    /// The distance matrix does not have one entry for each pair of nodes.
    #[error("{nodes} nodes have {given} distances")]
    Distances {
        /// The number of nodes.
        nodes: usize,
        /// The number of entries.
        given: usize,
    },
}
