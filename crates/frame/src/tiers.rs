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
use pagewright_types::{NodeId, NodeMask};

/// The nodes of the top tier (`node_is_toptier`).
pub(crate) fn top_tier_of(layout: &MemoryLayout<'_>) -> NodeMask {
    let nodes = layout.nodes.iter().map(|node| node.id);
    let word = nodes.filter(|node| !tier(layout, *node).0).map(|node| NodeMask::of(node).word());
    NodeMask::from_word(word.fold(0, |mask, word| mask | word))
}

/// For each node, the one to which its pages are demoted.
pub(crate) fn demotion_targets_of(layout: &MemoryLayout<'_>) -> Result<Box<[Option<NodeId>]>, AllocError> {
    let nodes = || layout.nodes.iter().map(|node| node.id);
    let target_of = |from: NodeId| {
        let lower = nodes().filter(|to| tier(layout, *to) > tier(layout, from));
        lower.min_by_key(|to| (tier(layout, *to), layout.distance(from.index(), to.index()), to.index()))
    };
    try_boxed(layout.nodes.len(), nodes().map(target_of))
}

/// The tier of a node: whether it has no CPUs, and then how far it is from the nearest that has.
fn tier(layout: &MemoryLayout<'_>, node: NodeId) -> (bool, Option<u8>) {
    let has_cpus = |node: &&NodeSpec<'_>| node.cpus.iter().next().is_some();
    if layout.nodes.get(node.index()).is_some_and(|node| has_cpus(&node)) {
        return (false, None);
    }
    let fast = layout.nodes.iter().filter(has_cpus);
    (true, fast.filter_map(|fast| layout.distance(fast.id.index(), node.index())).min())
}

impl<P: Platform> Frames<P> {
    /// The node to which pages of `node` are demoted; `None` for the lowest tier.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn demotion_target(&self, node: NodeId) -> Option<NodeId> {
        self.demotion_targets[node.index()]
    }

    /// Whether a node is of the top tier, so that no pages are promoted from it.
    #[inline]
    pub fn is_top_tier(&self, node: NodeId) -> bool {
        self.top_tier.contains(node)
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
        demotion_targets_of(&layout).expect("memory").iter().map(|target| target.map(NodeId::index)).collect()
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
