//! The events of allocation that are counted for each node (`enum numa_stat_item`).
//!
//! Key type: [`NumaEvent`]. Neighbours: `allocate` counts them; `/proc/vmstat` has their sums, and
//! a node's `numastat` its own.
//!
//! Not guaranteed: the meaning of the names for a request of more than one frame. As in Linux, a
//! block counts once, whatever its order.

use pagewright_types::Counter;

/// An event of allocation that belongs to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NumaEvent {
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
}

impl NumaEvent {
    /// All events, in the order of `/proc/vmstat`.
    pub const ALL: [Self; 6] = [Self::Hit, Self::Miss, Self::Foreign, Self::Interleave, Self::Local, Self::Other];

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
        }
    }

    /// The name in a node's `numastat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "numa_hit",
            Self::Miss => "numa_miss",
            Self::Foreign => "numa_foreign",
            Self::Interleave => "interleave_hit",
            Self::Local => "local_node",
            Self::Other => "other_node",
        }
    }
}
