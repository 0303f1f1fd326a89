//! Replay: repeats the accesses and memory calls of a capture on a simulated machine.
//!
//! ```text
//!   EventSource ── events ─▶ feed ─▶ a queue per thread ─▶ turns on CPUs (Scheduler) ─▶ Lab ─▶ ReplayReport
//! ```
//!
//! The capturing tool ran one thread at a time. The replay runs the threads concurrently: every
//! thread has a queue of its events, and the CPUs take turns by their modelled clocks. Only the
//! order that the program imposed is kept:
//!
//! 1. the events of one thread;
//! 2. each memory call, fork, exec and exit, among the events of all threads of its process: events
//!    that precede it in the capture happen before it, and later ones after it (accesses between
//!    two calls may overlap);
//! 3. a child after its fork, the reaping of a child after its exit, and a `vfork` parent after its
//!    child has left the parent's memory.
//!
//! The queues hold a bounded window of the capture, so memory grows with the program's footprint
//! and not with the length of the trace.
//!
//! Background reclaim has threads of its own (`kswapd`), which run beside the program on a free
//! CPU.
//!
//! If the memory manager returns another result than Linux did, the report says so
//! ([`ReplayReport::diverged`]). The replay is not adjusted to Linux's result, except that mappings
//! are placed at the addresses that Linux chose.
//!
//! Not guaranteed: that threads interleave as they would on real CPUs. Modelled clocks decide, and
//! locks between threads impose no order.

mod calls;
mod diverged;
mod engine;
mod error;
mod faults;
mod feed;
mod file;
mod forks;
mod kswapd;
mod process;
mod queue;
mod report;
mod settles;
mod source;
mod tasks;
mod ticks;
mod timeline;
mod turnover;

pub use error::{CaptureReplayError, DivergedCall, TraceInconsistency};
pub use forks::{ForkReport, TableMemory};
pub use report::{
    CpuTimeline, FaultTimeline, MappingFaults, MeasuredTimes, ModelledTimes, NamedCounts, NodeReport, OracleReport,
    ReplayReport, SkippedCall,
};
pub use settles::SettleReport;
pub use source::EventSource;
pub use turnover::{RemoteFlushes, TierReport, TurnoverCounts};

use pagewright_arch::{Aarch64, X86_64};
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Picos};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// Replays all events of `source` on the machine of `config`, with the instruction set `isa`.
///
/// # Errors
/// [`CaptureReplayError`]: the trace cannot be read or contradicts itself, the machine cannot be
/// built, or the program cannot continue.
pub fn replay(
    isa: IsaKind,
    source: &mut dyn EventSource,
    config: &ReplayConfig,
) -> Result<ReplayReport, CaptureReplayError> {
    match isa {
        IsaKind::X86_64 => engine::replay_on::<X86_64>(source, config),
        IsaKind::Aarch64 => engine::replay_on::<Aarch64>(source, config),
    }
}

/// The machine of a replay, its settings, and the time slices of its threads.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// The machine.
    pub machine: MachineConfig,
    /// Settings of the memory manager that differ from their defaults.
    pub settings: Vec<(MmSetting, u64)>,
    /// Slots of the swap device, of one page each; 0 for a machine without swap.
    pub swap_slots: u32,
    /// The time that a thread keeps its CPU while others wait for one (Linux's `base_slice_ns`).
    pub slice: Picos,
    /// Whether the oracle judges the machine; its findings are in the report.
    pub oracle: bool,
    /// The time by which the clock of a CPU may be ahead of that of another CPU with work.
    pub lookahead: Picos,
}

impl ReplayConfig {
    /// A replay on `machine` without swap, with every setting at its default.
    pub fn new(machine: MachineConfig) -> Self {
        Self {
            machine,
            settings: Vec::new(),
            swap_slots: 0,
            slice: Picos::from_nanos(3_000_000),
            oracle: false,
            lookahead: Picos::from_nanos(50_000),
        }
    }

    /// The machine and every setting, as named numbers.
    fn counts(&self) -> NamedCounts {
        let machine = &self.machine;
        let mut counts = vec![
            ("cpus", u64::from(machine.cpus)),
            ("nodes", machine.nodes.len() as u64),
            ("memory_bytes", machine.nodes.iter().map(|node| node.bytes).sum()),
            ("swap_bytes", u64::from(self.swap_slots) * PAGE_SIZE),
            ("seed", machine.seed),
            ("tagged", u64::from(machine.tagged)),
        ];
        for &setting in MmSetting::ALL {
            let set = self.settings.iter().rev().find(|(set, _)| *set == setting);
            counts.push((setting.name(), set.map_or(setting.default(), |(_, value)| *value)));
        }
        NamedCounts(counts)
    }
}
