//! The header and the summary of a trace: its provenance, and its numbers of events.
//!
//! Both are JSON in the binary file, so a field can be added without a new version. A reader
//! ignores unknown fields.

use crate::ImageCounts;
use pagewright_types::IsaKind;
use serde::{Deserialize, Serialize};

/// The provenance of a trace, which precedes the events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The capturing tool with its version, such as `valgrind-3.19.0 lackey`.
    pub tool: String,
    /// The instruction set of the captured program.
    #[serde(with = "EncodedIsa")]
    pub isa: IsaKind,
    /// The page size in bytes: 4096.
    pub page_size: u64,
    /// The source of the mappings.
    pub mappings: MappingSource,
    /// The layout of the addresses in the events.
    pub layout: AddressLayout,
    /// Linux's counts for the same command without the tool; `None` if there was no such run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeCounts>,
}

/// The name of an instruction set in the JSON: `"x86_64"` or `"aarch64"`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IsaKind", rename_all = "snake_case")]
enum EncodedIsa {
    X86_64,
    Aarch64,
}

/// The source of the mappings of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingSource {
    /// The program's system calls, and the program headers of its executables.
    SystemCalls,
    /// The importer's inference, because the capture has accesses only.
    ///
    /// Memory is mapped from its first access on. A report on such a trace must say so.
    Premapped,
}

/// The layout of the address spaces in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressLayout {
    /// The layout of the capturing tool, which differs from Linux's.
    AsCaptured,
    /// Linux's layout of the program without the tool and without address randomisation.
    Linux,
}

/// Linux's counts for a run of the command without the tool and without address randomisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCounts {
    /// `uname -r`.
    pub kernel: String,
    /// The active word of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub thp: String,
    /// The counts of each program image, in order of creation.
    pub images: Vec<ImageCounts>,
}

impl NativeCounts {
    /// The memory that all images need at once on Linux: the sum of their peak RSS, in bytes.
    pub fn footprint(&self) -> u64 {
        ImageCounts::footprint(&self.images)
    }
}

/// The numbers of events in a trace, which follow the events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Number of events.
    pub events: u64,
    /// Number of runs with the origin [`User`](super::AccessOrigin::User).
    pub runs: u64,
    /// Number of fetches, loads and stores of the program.
    pub accesses: u64,
    /// Number of fetches among [`accesses`](Self::accesses).
    pub fetches: u64,
    /// Number of stores among [`accesses`](Self::accesses).
    pub stores: u64,
    /// Number of pages that system calls read or wrote.
    pub kernel_accesses: u64,
    /// Number of memory calls.
    pub calls: u64,
    /// Number of processes.
    pub processes: u32,
    /// Number of threads, including the first thread of each process.
    pub threads: u32,
    /// Number of accesses that the importer omitted, because they are outside the program's memory.
    #[serde(default)]
    pub left_out: u64,
}
