//! What a replay found, with every figure under one name.

use crate::trace::NativeImage;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Named figures in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCounts(pub Vec<(&'static str, u64)>);

impl NamedCounts {
    /// The figure with this name.
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

/// What one program image cost: a process from its birth or `execve` to its next `execve` or its
/// end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ImageReport {
    /// Which process: the root is `[]`, its second child `[1]`.
    pub process: Vec<u32>,
    /// How many `execve` it had done.
    pub image: u32,
    /// The program.
    pub command: String,
    /// Faults served without waiting.
    pub minor_faults: u64,
    /// Faults that waited for a device.
    pub major_faults: u64,
    /// `VmHWM`; none while the process had its parent's memory.
    pub peak_rss_bytes: Option<u64>,
    /// `VmPTE` at the end, likewise.
    pub page_table_bytes: Option<u64>,
}

/// Calls that the memory manager does not know yet.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SkippedCall {
    /// The call.
    pub call: String,
    /// How often it was made.
    pub times: u64,
}

/// Times that the machine's cost model adds up; good for comparing two replays, not a claim about a
/// real clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ModelledTimes {
    /// Nanoseconds until the last CPU was done.
    pub elapsed_ns: u64,
    /// Nanoseconds that CPUs spent in page walks, over all CPUs.
    pub walk_ns: u64,
}

/// Times that a clock on the wall measured.
///
/// They differ from run to run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct MeasuredTimes {
    /// Seconds of replay.
    pub seconds: f64,
    /// Events replayed per second.
    pub events_per_second: f64,
    /// Raw accesses replayed per second.
    pub accesses_per_second: f64,
}

/// What a replay found.
///
/// Everything but `measured` is the same, bit for bit, for the same trace, machine and seed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ReplayReport {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The instruction set of the machine.
    pub isa: &'static str,
    /// Machine and settings.
    pub config: NamedCounts,
    /// The profile of the machine.
    pub profile: String,
    /// Whether the mappings were guessed by the importer, because the capture had none.
    pub mappings_inferred: bool,
    /// Everything that is counted: the machine's events under their `perf` names, then the memory
    /// manager's counters under their `/proc/vmstat` names.
    pub counters: NamedCounts,
    /// Modelled times.
    pub modelled: ModelledTimes,
    /// Every program image, in order of birth.
    pub images: Vec<ImageReport>,
    /// Calls that were left out.
    pub not_replayed: Vec<SkippedCall>,
    /// Where the memory manager answered a call otherwise than Linux did, one line each, at most
    /// [`ReplayReport::DIVERGED`].
    pub diverged: Vec<String>,
    /// What Linux counted for the same program.
    #[serde(skip)]
    pub native: Vec<NativeImage>,
    /// Measured times.
    pub measured: MeasuredTimes,
}

impl ReplayReport {
    /// Divergences that are kept.
    pub const DIVERGED: usize = 20;
}
