//! What stands before and after the events: where a trace comes from, and what is in it.
//!
//! Both are JSON inside the binary frame, so that a field can be added without a new version;
//! unknown fields are ignored.

use pagewright_types::IsaKind;
use serde::{Deserialize, Serialize};

/// What a reader must know before the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What captured it, with its version (`valgrind-3.19.0 lackey`).
    pub tool: String,
    /// The instruction set of the captured program.
    #[serde(with = "EncodedIsa")]
    pub isa: IsaKind,
    /// Bytes in a page: 4096.
    pub page_size: u64,
    /// Where the mappings come from.
    pub mappings: MappingSource,
    /// Whose addresses the events carry.
    pub layout: AddressLayout,
    /// What Linux counted for the same command without the tool; absent when nobody measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeCounts>,
}

/// How an instruction set stands in a trace: `"x86_64"` or `"aarch64"`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IsaKind", rename_all = "snake_case")]
enum EncodedIsa {
    X86_64,
    Aarch64,
}

/// Where the mappings of a trace come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingSource {
    /// From the program's system calls and its executables' program headers.
    SystemCalls,
    /// Guessed by the importer, because the user asked for it: what was touched is mapped, readable
    /// and writable, from then on. A report made from such a trace must say so.
    Premapped,
}

/// Whose addresses the events carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressLayout {
    /// The capturing tool's, which places a program where it would not be on Linux.
    AsCaptured,
    /// Those that Linux gives the program when it runs without the tool and without address
    /// randomisation.
    Linux,
}

/// What Linux counted for one run of the command without the tool, address randomisation off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCounts {
    /// `uname -r`.
    pub kernel: String,
    /// `/sys/kernel/mm/transparent_hugepage/enabled`, the chosen word.
    pub thp: String,
    /// One per program image that ran, in order of birth.
    pub images: Vec<NativeImage>,
}

impl NativeCounts {
    /// The memory that the program needs on Linux, in bytes, if all its processes lived at once:
    /// the sum of their peaks.
    pub fn footprint(&self) -> u64 {
        NativeImage::footprint(&self.images)
    }
}

/// What Linux counted for one program image: a process from its `fork` or `execve` to its next
/// `execve` or its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeImage {
    /// Which process, independent of pids: the root is `[]`, its second child `[1]`, that one's
    /// first child `[1, 0]`.
    pub process: Vec<u32>,
    /// How many `execve` the process had done: 0 for what it was forked with.
    ///
    /// The root starts at 1.
    pub image: u32,
    /// `comm`.
    pub command: String,
    /// Minor faults of all threads since the image began.
    ///
    /// Those inside `execve` count for the image that called it.
    pub minor_faults: u64,
    /// Major faults, likewise.
    pub major_faults: u64,
    /// `VmHWM` in bytes at the end; `None` when `execve` replaced the image, which takes the
    /// figures with it.
    pub peak_rss_bytes: Option<u64>,
    /// `VmPTE` in bytes at the end: tables of all levels below the root.
    ///
    /// `None` as above.
    pub page_table_bytes: Option<u64>,
}

impl NativeImage {
    /// The sum of their peaks.
    pub fn footprint(images: &[Self]) -> u64 {
        images.iter().filter_map(|image| image.peak_rss_bytes).sum()
    }
}

/// What a trace turned out to hold; it stands behind the events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Events.
    pub events: u64,
    /// Events that are runs of the program itself.
    pub runs: u64,
    /// Raw accesses of the program: fetches, loads and stores.
    pub accesses: u64,
    /// Fetches among them.
    pub fetches: u64,
    /// Stores among them.
    pub stores: u64,
    /// Page touches on behalf of system calls.
    pub kernel_accesses: u64,
    /// Memory calls.
    pub calls: u64,
    /// Processes.
    pub processes: u32,
    /// Threads, first threads included.
    pub threads: u32,
    /// Accesses that the importer left out because they hit the tool's own memory or objects.
    #[serde(default)]
    pub left_out: u64,
}
