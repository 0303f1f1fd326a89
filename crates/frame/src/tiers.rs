//! Memory tiers: which nodes are fast, and where pages of each go when they are demoted.
//!
//! Linux's `mm/memory-tiers.c`.
//!
//! Nodes with CPUs are the top tier. Nodes without are below them, those that are farther from CPUs
//! further down. A page is demoted to the nearest node of the next lower tier.
//!
//! Not guaranteed: that a node is faster than one of a lower tier. Firmware says how far nodes are,
//! and no more.

use crate::frames::Frames;
use crate::layout::{MemoryLayout, NodeSpec};
use alloc::boxed::Box;
use pagewright_sync::{AllocError, Platform, try_boxed};
use pagewright_types::NodeId;

/// The distance of two nodes without a table of distances (`REMOTE_DISTANCE`).
const REMOTE: u8 = 20;

/// Where pages of a node go when they are demoted.
#[derive(Clone, Copy)]
pub(crate) struct NodeTier {
    /// 0 for the top tier, more for each lower one.
    tier: u8,
    demotes_to: Option<NodeId>,
}

/// The tier of each node, and the node to which it demotes.
pub(crate) fn tiers_of(layout: &MemoryLayout<'_>) -> Result<Box<[NodeTier]>, AllocError> {
    let nodes = || layout.nodes.iter().map(|node| node.id);
    let mut tiers =
        try_boxed(layout.nodes.len(), nodes().map(|node| NodeTier { tier: depth(layout, node), demotes_to: None }))?;
    for from in nodes() {
        let lower = |to: &NodeId| tiers[to.index()].tier > tiers[from.index()].tier;
        let next = |to: &NodeId| (tiers[to.index()].tier, distance(layout, from, *to), to.index());
        tiers[from.index()].demotes_to = nodes().filter(lower).min_by_key(next);
    }
    Ok(tiers)
}

/// The distance of a node without CPUs from the nearest one with CPUs; 0 for one with CPUs.
fn depth(layout: &MemoryLayout<'_>, node: NodeId) -> u8 {
    let has_cpus = |node: &&NodeSpec<'_>| node.cpus.iter().next().is_some();
    if layout.nodes.get(node.index()).is_some_and(|node| has_cpus(&node)) {
        return 0;
    }
    layout.nodes.iter().filter(has_cpus).map(|fast| distance(layout, fast.id, node)).min().unwrap_or(REMOTE)
}

fn distance(layout: &MemoryLayout<'_>, from: NodeId, to: NodeId) -> u8 {
    layout.distance(from.index(), to.index()).unwrap_or(REMOTE)
}

impl<P: Platform> Frames<P> {
    /// The node to which pages of `node` are demoted; `None` for the lowest tier.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn demotion_target(&self, node: NodeId) -> Option<NodeId> {
        self.tiers[node.index()].demotes_to
    }

    /// Whether the node is of the top tier (`node_is_toptier`).
    ///
    /// # Panics
    /// When there is no such node.
    pub fn is_top_tier(&self, node: NodeId) -> bool {
        self.tiers[node.index()].tier == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_types::{CpuId, CpuMask};

    fn targets(cpus: &[bool], distances: Option<&[u8]>) -> alloc::vec::Vec<Option<usize>> {
        let of = |(index, has): (usize, &bool)| NodeSpec {
            id: NodeId::new(index as u8),
            ranges: &[],
            cpus: if *has { CpuMask::of(CpuId::new(index as u16)) } else { CpuMask::EMPTY },
        };
        let nodes: alloc::vec::Vec<_> = cpus.iter().enumerate().map(of).collect();
        let layout = MemoryLayout { distances, ..MemoryLayout::new(&nodes) };
        let tiers = tiers_of(&layout).expect("memory");
        tiers.iter().map(|tier| tier.demotes_to.map(NodeId::index)).collect()
    }

    #[test]
    fn pages_are_demoted_to_the_nearest_node_of_the_next_tier() {
        assert_eq!(targets(&[true], None), [None]);
        assert_eq!(targets(&[true, true], None), [None, None], "two sockets are one tier");
        assert_eq!(targets(&[true, false], None), [Some(1), None]);
        assert_eq!(targets(&[false, true], None), [None, Some(0)]);
        // Two sockets, each with memory of its own that is slower.
        let near = [10, 21, 17, 28, 21, 10, 28, 17, 17, 28, 10, 28, 28, 17, 28, 10];
        assert_eq!(targets(&[true, true, false, false], Some(&near)), [Some(2), Some(3), None, None]);
        // A chain of three tiers.
        let chain = [10, 17, 28, 17, 10, 28, 28, 28, 10];
        assert_eq!(targets(&[true, false, false], Some(&chain)), [Some(1), Some(2), None]);
    }
}
