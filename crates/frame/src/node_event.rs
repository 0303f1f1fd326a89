//! The events that are counted for each node (`enum numa_stat_item`, and some of `node_stat_item`).
//!
//! Key type: [`NodeEvent`]. Neighbours: `allocate` counts those of allocation, `mm` those of tiers.
//! `/proc/vmstat` has their sums; a node has its own in `vmstat`, and some in `numastat`.
//!
//! Not guaranteed: the meaning of the names for a request of more than one frame. As in Linux, a
//! block counts once, whatever its order.

use crate::frames::Frames;
use pagewright_sync::Platform;
use pagewright_types::{Counter, NodeId};

/// An event that belongs to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeEvent {
    /// A block came from the first node that the request permits.
    Hit,
    /// A block came from this node because the first permitted one had no memory.
    Miss,
    /// A block came from another node because this one, the first permitted, had no memory.
    Foreign,
    /// A block was interleaved; no policy here does that.
    Interleave,
    /// A block came from the node of the CPU that allocated it.
    Local,
    /// A block came from another node than that of the CPU that allocated it.
    Other,
    /// A page was promoted to the node.
    PromoteSuccess,
    /// A page was found hot enough to be promoted to the node.
    PromoteCandidate,
    /// Background reclaim demoted a page of the node.
    DemoteKswapd,
    /// Direct reclaim demoted a page of the node.
    DemoteDirect,
    /// Proactive reclaim demoted a page of the node.
    DemoteProactive,
}

impl NodeEvent {
    /// All events, in the order of `/proc/vmstat`.
    pub const ALL: [Self; 11] = [
        Self::Hit,
        Self::Miss,
        Self::Foreign,
        Self::Interleave,
        Self::Local,
        Self::Other,
        Self::PromoteSuccess,
        Self::PromoteCandidate,
        Self::DemoteKswapd,
        Self::DemoteDirect,
        Self::DemoteProactive,
    ];

    /// The event that a counter counts over all nodes, if it counts one.
    pub(crate) fn of(counter: Counter) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.counter() == counter)
    }

    /// The counter of the event over all nodes.
    #[inline]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Hit => Counter::NumaHit,
            Self::Miss => Counter::NumaMiss,
            Self::Foreign => Counter::NumaForeign,
            Self::Interleave => Counter::NumaInterleave,
            Self::Local => Counter::NumaLocal,
            Self::Other => Counter::NumaOther,
            Self::PromoteSuccess => Counter::PgPromoteSuccess,
            Self::PromoteCandidate => Counter::PgPromoteCandidate,
            Self::DemoteKswapd => Counter::PgDemoteKswapd,
            Self::DemoteDirect => Counter::PgDemoteDirect,
            Self::DemoteProactive => Counter::PgDemoteProactive,
        }
    }

    /// The name in a node's `numastat`, which has the events of allocation alone.
    pub const fn numastat_name(self) -> Option<&'static str> {
        match self {
            Self::Hit => Some("numa_hit"),
            Self::Miss => Some("numa_miss"),
            Self::Foreign => Some("numa_foreign"),
            Self::Interleave => Some("interleave_hit"),
            Self::Local => Some("local_node"),
            Self::Other => Some("other_node"),
            Self::PromoteSuccess
            | Self::PromoteCandidate
            | Self::DemoteKswapd
            | Self::DemoteDirect
            | Self::DemoteProactive => None,
        }
    }
}

impl<P: Platform> Frames<P> {
    /// How often an event has happened on a node since boot.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node_events(&self, node: NodeId, event: NodeEvent) -> u64 {
        self.node_events[node.index()].sum(event as usize)
    }

    /// Counts `times` events of a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn count_node_event(&self, node: NodeId, event: NodeEvent, times: u64) {
        self.node_events[node.index()].add(self.machine.cpu(), event as usize, times);
    }
}
