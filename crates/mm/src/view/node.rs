//! The memory files of a node, below `/sys/devices/system/node`.
//!
//! [`Mm::node_counts`] is the one table: `vmstat` of a node, and reports, follow from it.
//!
//! Not guaranteed: what is counted for the machine alone, such as mapped and file pages. Linux's
//! files have lines for these.

use super::meminfo::lru_lines;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_tlb::frames::NodeEvent;
use pagewright_types::{LruList, NodeId, PAGE_SIZE};

impl<P: Platform> Mm<P> {
    /// What is counted for each node, by the names of its `vmstat`, in Linux's order.
    pub fn node_counts(&self, node: NodeId) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let lists = LruList::ALL.iter().map(move |&list| (list.name(), u64::from(self.frames().lru_pages(node, list))));
        let events = NodeEvent::ALL.into_iter();
        let events = events.map(move |event| (event.counter().name(), self.frames().node_events(node, event)));
        [("nr_free_pages", self.free_pages_of(node))].into_iter().chain(lists).chain(events)
    }

    /// Writes a node's `vmstat` (`node_read_vmstat`).
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_node_vmstat(&self, node: NodeId, out: &mut dyn Write) -> fmt::Result {
        self.node_counts(node).try_for_each(|(name, count)| writeln!(out, "{name} {count}"))
    }

    /// Writes a node's `numastat`: where allocations came from (`node_read_numastat`).
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_numastat(&self, node: NodeId, out: &mut dyn Write) -> fmt::Result {
        let named = NodeEvent::ALL.into_iter().filter_map(|event| Some((event.numastat_name()?, event)));
        for (name, event) in named {
            writeln!(out, "{name} {}", self.frames().node_events(node, event))?;
        }
        Ok(())
    }

    /// Writes the lines of a node's `meminfo` that are counted by node (`node_read_meminfo`).
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_node_meminfo(&self, node: NodeId, out: &mut dyn Write) -> fmt::Result {
        let (total, free) = (self.managed_pages_of(node), self.free_pages_of(node));
        let lines = [("MemTotal:", total), ("MemFree:", free), ("MemUsed:", total.saturating_sub(free))];
        let lists = lru_lines(|list| u64::from(self.frames().lru_pages(node, list)));
        lines
            .iter()
            .chain(&lists)
            .try_for_each(|(name, pages)| writeln!(out, "Node {node} {name:<15} {:>8} kB", pages * PAGE_SIZE / 1024))
    }

    /// The pages of a node that the allocator manages.
    pub(crate) fn managed_pages_of(&self, node: NodeId) -> u64 {
        self.zones_of(node).map(|zone| u64::from(zone.managed())).sum()
    }

    /// The free pages of a node, those on per-CPU lists included, as for the whole machine.
    fn free_pages_of(&self, node: NodeId) -> u64 {
        self.zones_of(node).map(|zone| u64::from(zone.free()) + u64::from(zone.on_pcp())).sum()
    }
}
