//! The results of a replay, each number under one name.

use super::forks::ForkReport;
use super::settles::SettleReport;
use super::turnover::TierReport;
use crate::ImageCounts;
use pagewright_types::NodeId;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Named numbers in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCounts(pub Vec<(&'static str, u64)>);

impl NamedCounts {
    /// The number with this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl Serialize for NamedCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A call that the replay skips, because the memory manager does not implement it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SkippedCall {
    /// The name of the call.
    pub call: String,
    /// Number of such calls.
    pub times: u64,
}

/// The faults in the mappings of one name, over all processes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MappingFaults {
    /// The path of the file, or `[heap]`, `[stack]`, `[shared]`, `[anonymous]`.
    pub mapping: String,
    /// Faults that did not wait for a device.
    pub minor_faults: u64,
    /// Faults that waited for a device.
    pub major_faults: u64,
}

/// The faults over modelled time.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FaultTimeline {
    /// The width of a slot, in nanoseconds.
    pub slot_ns: u64,
    /// The number of faults in each slot, up to the last slot with a fault.
    pub faults: Vec<u64>,
}

/// What each CPU did over modelled time.
///
/// The first index is the CPU, the second the slot; a row ends with its last event.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CpuTimeline {
    /// The width of a slot, in nanoseconds.
    pub slot_ns: u64,
    /// Faults, minor and major.
    pub faults: Vec<Vec<u64>>,
    /// Shootdowns that the CPU sent; on arm64, DSBs that complete broadcast invalidations.
    pub shootdowns: Vec<Vec<u64>>,
    /// Shootdown IPIs that the CPU handled.
    pub ipis: Vec<Vec<u64>>,
    /// Pages that the CPU moved to another frame.
    pub migrated: Vec<Vec<u64>>,
}

/// The figures of a NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NodeReport {
    /// The node.
    #[serde(serialize_with = "node_number")]
    pub node: NodeId,
    /// The memory that the allocator manages, in bytes.
    pub memory_bytes: u64,
    /// The most memory in use at a fault, in bytes; frames on per-CPU lists count as used.
    pub peak_used_bytes: u64,
    /// The memory in use at the end, the page cache included, in bytes.
    pub used_bytes: u64,
    /// Minor faults that CPUs of the node took.
    pub minor_faults: u64,
    /// Major faults that CPUs of the node took.
    pub major_faults: u64,
    /// The distance of each node from this one.
    pub distance: Vec<u8>,
    /// Loads of the node's memory by the program; no cache is modelled, so each reaches it.
    pub loads: u64,
    /// Stores to the node's memory by the program; no cache is modelled, so each reaches it.
    pub stores: u64,
    /// Those of the loads that CPUs of other nodes made.
    pub remote_loads: u64,
    /// Those of the stores that CPUs of other nodes made.
    pub remote_stores: u64,
    /// Shootdowns, or DSBs that complete broadcast invalidations, by CPUs of the node.
    pub remote_flushes: u64,
    /// The node's counts at the end, with the names of its `vmstat`.
    pub counters: NamedCounts,
}

fn node_number<S: Serializer>(node: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(node.raw())
}

/// What the oracle judged, and found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OracleReport {
    /// How often each rule judged something.
    pub judged: NamedCounts,
    /// The findings, a line each.
    pub findings: Vec<String>,
}

/// Times by the machine's cost model.
///
/// They are for comparisons between replays, and no claim about a real clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ModelledTimes {
    /// Time until the last CPU finished, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time in page walks, the sum over all CPUs, in nanoseconds.
    pub walk_ns: u64,
    /// Time in waits for the flushes of other CPUs, the sum over all CPUs, in nanoseconds.
    pub flush_wait_ns: u64,
    /// Latency of the nodes' memory in loads and stores, the sum over all CPUs, in nanoseconds.
    ///
    /// No cache is modelled: each of them reaches memory. 0 on a machine with one node.
    pub memory_ns: u64,
    /// The same with the latencies at the ends of their bands.
    pub memory_ns_band: [u64; 2],
}

/// Times by a real clock, which differ from run to run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct MeasuredTimes {
    /// Duration of the replay, in seconds.
    pub seconds: f64,
    /// Events replayed per second.
    pub events_per_second: f64,
    /// Accesses replayed per second.
    pub accesses_per_second: f64,
}

/// The results of a replay.
///
/// For the same trace, machine and seed they are the same bit for bit, except `measured`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ReplayReport {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The instruction set of the machine.
    pub isa: &'static str,
    /// The machine and all settings.
    pub config: NamedCounts,
    /// The profile of the machine.
    pub profile: String,
    /// Whether the importer inferred the mappings, because the capture has accesses only.
    pub mappings_inferred: bool,
    /// All counters.
    ///
    /// The machine's events come first and have `perf` names. The memory manager's counters follow
    /// and have `/proc/vmstat` names.
    pub counters: NamedCounts,
    /// Modelled times.
    pub modelled: ModelledTimes,
    /// The forks, and the page tables.
    pub forks: ForkReport,
    /// All program images, by process and then by `execve`.
    pub images: Vec<ImageCounts>,
    /// The faults of accesses by mapping, the most first; those inside memory calls are not in it.
    pub faults_by_mapping: Vec<MappingFaults>,
    /// The same faults over modelled time.
    pub faults_over_time: FaultTimeline,
    /// Faults, shootdowns, IPIs and migrations of each CPU over modelled time.
    pub cpus_over_time: CpuTimeline,
    /// All nodes, with the same faults as by mapping.
    pub nodes: Vec<NodeReport>,
    /// The calls that the replay skipped.
    pub not_replayed: Vec<SkippedCall>,
    /// The calls whose result differs from Linux's, one line each.
    ///
    /// Only the first [`ReplayReport::DIVERGED`] are kept.
    pub diverged: Vec<String>,
    /// What the oracle judged; `None` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle: Option<OracleReport>,
    /// What is counted of memory tiers.
    #[serde(skip)]
    pub tiers: TierReport,
    /// The waits of operations in which an allocation settled parked frames.
    #[serde(skip)]
    pub settles: SettleReport,
    /// Linux's counts for the same program.
    #[serde(skip)]
    pub native: Vec<ImageCounts>,
    /// Measured times.
    pub measured: MeasuredTimes,
}

impl ReplayReport {
    /// Maximum number of lines in [`diverged`](Self::diverged).
    pub const DIVERGED: usize = 20;
}
