//! What a load or a store of a node's memory costs, and how often each node is accessed.
//!
//! Key types: [`NodeMemory`], which a machine with several nodes has; [`NodeAccesses`], its counts.
//!
//! **INV-SIM-NODES** On a machine with several nodes, each load and store of a program costs the
//! latency of the memory's node as seen from the CPU's node, and is counted for that pair. A
//! machine with one node charges and counts none, so its figures do not depend on the latencies.
//!
//! No cache is modelled, so each load and each store reaches memory and takes its latency. A
//! machine with one node has no [`NodeMemory`], and its accesses cost [`Cost::Access`] alone, as if
//! all of them hit a cache. So times are comparable between machines with the same nodes, and not
//! between these two kinds of machine.
//!
//! ```text
//!  latency(CPU, memory) = base × distance(node of the CPU, node of the memory) / least distance
//!     base            dram_latency if the node of the memory has CPUs, else slow_tier_latency
//!     least distance  from a node with CPUs to the node of the memory; 10 if it has CPUs itself
//! ```
//!
//! So a SLIT's distances mean what ACPI says (§5.2.17): latencies relative to local memory. A slow
//! tier has its measured latency from its nearest node, and more from others.
//!
//! Not guaranteed: a latency for fetches, page walks, and the kernel's own work such as clearing
//! and copying; all of these cost the same on every node.

use crate::cost::{Cost, Costs};
use crate::machine::MachineNode;
use crate::time::Picos;
use pagewright_types::{CpuId, NodeId, Pfn};
use std::cell::Cell;

/// The loads and stores that the CPUs of one node made to the memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAccesses {
    /// The node of the CPUs.
    pub from: NodeId,
    /// The node of the memory.
    pub to: NodeId,
    /// The number of loads.
    pub loads: u64,
    /// The number of stores.
    pub stores: u64,
    /// The modelled time of each.
    pub latency: Picos,
    /// The ends of the band of that time.
    pub band: [Picos; 2],
}

/// The latencies and counts of one pair of nodes.
struct NodePair {
    latency: Picos,
    band: [Picos; 2],
    loads: Cell<u64>,
    stores: Cell<u64>,
}

/// The memory of a machine with several nodes.
pub(crate) struct NodeMemory {
    /// The first frame of each node, in ascending order.
    starts: Box<[Pfn]>,
    node_of_cpu: Box<[NodeId]>,
    /// For each node of a CPU, each node of memory.
    pairs: Box<[NodePair]>,
}

impl NodeMemory {
    /// The memory of these nodes, or `None` for a single node.
    ///
    /// `distances` is row by row. `bands` are the ends of the band of a cost.
    pub(crate) fn new(
        nodes: &[MachineNode],
        cpus: u16,
        distances: &[u8],
        costs: &Costs,
        bands: impl Fn(Cost) -> [Picos; 2],
    ) -> Option<Self> {
        if nodes.len() < 2 {
            return None;
        }
        let distance =
            |from: &MachineNode, to: &MachineNode| u64::from(distances[from.id.index() * nodes.len() + to.id.index()]);
        let pair = |from: &MachineNode, to: &MachineNode| {
            let near = nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| distance(node, to)).min();
            let cost = if to.cpus.is_empty() { Cost::SlowTierLatency } else { Cost::DramLatency };
            let scaled = |base: Picos| Picos::new(base.raw() * distance(from, to) / near.unwrap_or(1));
            NodePair {
                latency: scaled(costs.of(cost)),
                band: bands(cost).map(scaled),
                loads: Cell::new(0),
                stores: Cell::new(0),
            }
        };
        let node_of = |cpu| nodes.iter().find(|node| node.cpus.contains(CpuId::new(cpu))).map(|node| node.id);
        Some(Self {
            starts: nodes.iter().map(|node| node.frames.start()).collect(),
            node_of_cpu: (0..cpus).map(|cpu| node_of(cpu).unwrap_or_default()).collect(),
            pairs: nodes.iter().flat_map(|from| nodes.iter().map(move |to| pair(from, to))).collect(),
        })
    }

    /// Counts `times` loads or stores of a frame, and returns the time that they take.
    ///
    /// The flag says whether the frame is on the node of `cpu`.
    pub(crate) fn access(&self, cpu: CpuId, pfn: Pfn, stores: bool, times: u64) -> (Picos, bool) {
        let from = self.node_of_cpu[cpu.index()].index();
        // The first node starts at frame 0.
        let to = self.starts.partition_point(|start| *start <= pfn) - 1;
        let pair = &self.pairs[from * self.starts.len() + to];
        let count = if stores { &pair.stores } else { &pair.loads };
        count.set(count.get() + times);
        (pair.latency * times, from == to)
    }

    /// The counts of each pair of nodes.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = NodeAccesses> {
        let nodes = self.starts.len();
        let node = |index: usize| NodeId::new(index as u8);
        self.pairs.iter().enumerate().map(move |(index, pair)| NodeAccesses {
            from: node(index / nodes),
            to: node(index % nodes),
            loads: pair.loads.get(),
            stores: pair.stores.get(),
            latency: pair.latency,
            band: pair.band,
        })
    }
}
