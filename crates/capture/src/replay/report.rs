//! The results of a replay, each number under one name.

use crate::trace::NativeImage;
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

/// The counts of a program image, as Linux counts them.
///
/// A program image is a process from its fork or `execve` to its next `execve` or its exit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ImageReport {
    /// The process, as a path of child indices: the root is `[]`, its second child `[1]`.
    pub process: Vec<u32>,
    /// Number of `execve`s of the process so far.
    pub image: u32,
    /// The file name of the program.
    pub command: String,
    /// Faults that did not wait for a device.
    pub minor_faults: u64,
    /// Faults that waited for a device.
    pub major_faults: u64,
    /// `VmHWM` in bytes; `None` for a `vfork` child in its parent's memory.
    pub peak_rss_bytes: Option<u64>,
    /// `VmPTE` at the end, in bytes; `None` for a `vfork` child in its parent's memory.
    pub page_table_bytes: Option<u64>,
}

/// A call that the replay skips, because the memory manager does not implement it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SkippedCall {
    /// The name of the call.
    pub call: String,
    /// Number of such calls.
    pub times: u64,
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
    /// All program images, by process and then by `execve`.
    pub images: Vec<ImageReport>,
    /// The calls that the replay skipped.
    pub not_replayed: Vec<SkippedCall>,
    /// The calls whose result differs from Linux's, one line each.
    ///
    /// Only the first [`ReplayReport::DIVERGED`] are kept.
    pub diverged: Vec<String>,
    /// Linux's counts for the same program.
    #[serde(skip)]
    pub native: Vec<NativeImage>,
    /// Measured times.
    pub measured: MeasuredTimes,
}

impl ReplayReport {
    /// Maximum number of lines in [`diverged`](Self::diverged).
    pub const DIVERGED: usize = 20;
}
