//! Replaying a capture: what the program did to its memory, done again on our memory manager and a
//! simulated machine.
//!
//! ```text
//!   Source ── events ─▶ feed ─▶ a queue per thread ─▶ turns on CPUs (Scheduler) ─▶ Lab ─▶ Report
//! ```
//!
//! The capturing tool ran one thread at a time. Replay lets them run side by side again: every
//! thread has a queue, CPUs take turns by their modelled clocks, and only what the program itself
//! ordered stays in order:
//!
//! 1. the events of one thread;
//! 2. around every call and every change of a process's threads: what its threads did before in the
//!    capture comes before, what they did after comes after (accesses between two calls are free to
//!    overlap);
//! 3. a child after its fork, the reaping of a child after its end, and a parent after its `vfork`
//!    child has left its memory.
//!
//! Queues hold a bounded window of the capture, so memory grows with the program's footprint and
//! not with the trace.
//!
//! Reclaim in the background has threads of its own (`kswapd`), which run beside the program where
//! a CPU is free.
//!
//! Where the memory manager does not do as Linux did, the report says so ([`Report::diverged`]);
//! nothing is fitted.
//!
//! Not guaranteed: that threads meet as they would on real CPUs. Modelled clocks decide, and locks
//! between threads order nothing.

mod calls;
mod engine;
mod file;
mod kswapd;
mod process;
mod queue;
mod report;
mod source;
mod tasks;

pub use report::{Counts, ImageReport, Measured, Modelled, NotReplayed, Report};
pub use source::Source;

use crate::trace::TraceError;
use pagewright_arch::{Aarch64, X86_64};
use pagewright_lab::LabError;
use pagewright_mm::{FaultError, MmError, MmSetting, MmSettingError};
use pagewright_sim::{MachineConfig, Picos};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// Replays everything that `source` has on the machine of `config`, which has the instruction set
/// `isa`.
///
/// # Errors
/// [`ReplayError`]: an unreadable trace, an impossible machine, or a program that can't go on.
pub fn replay(isa: IsaKind, source: &mut dyn Source, config: &ReplayConfig) -> Result<Report, ReplayError> {
    match isa {
        IsaKind::X86_64 => engine::replay_on::<X86_64>(source, config),
        IsaKind::Aarch64 => engine::replay_on::<Aarch64>(source, config),
    }
}

/// A machine, its settings, and how threads share it.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// The machine.
    pub machine: MachineConfig,
    /// Settings that differ from their defaults.
    pub settings: Vec<(MmSetting, u64)>,
    /// Slots of a page on a device for swap; none without.
    pub swap_slots: u32,
    /// How long a thread keeps its CPU while others wait (Linux's `base_slice_ns`).
    pub slice: Picos,
    /// How far a CPU's clock may run ahead of another that has work.
    pub lookahead: Picos,
}

impl ReplayConfig {
    /// A replay on `machine` with every setting at its default.
    pub fn new(machine: MachineConfig) -> Self {
        Self {
            machine,
            settings: Vec::new(),
            swap_slots: 0,
            slice: Picos::from_nanos(3_000_000),
            lookahead: Picos::from_nanos(50_000),
        }
    }

    /// The configuration as named figures.
    fn counts(&self) -> Counts {
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
        Counts(counts)
    }
}

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The machine can't be built.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A setting is impossible.
    #[error("{0}")]
    Setting(#[from] MmSettingError),
    /// The machine's memory is too small for the program.
    #[error("process {pid} runs out of memory after {events} events ({error}): give the machine more with --mem")]
    OutOfMemory {
        /// The process.
        pid: u32,
        /// Events replayed until then.
        events: u64,
        /// What failed.
        error: MmError,
    },
    /// The program was captured making this access, and may not make it here.
    #[error("process {pid}, event {events}: the capture makes an access that is refused here: {error}")]
    Refused {
        /// The process.
        pid: u32,
        /// Events replayed until then.
        events: u64,
        /// The access, where, and why it is refused.
        error: FaultError,
    },
    /// The events name a thread, process or file that was never born, or wait for each other.
    #[error("the trace makes no sense at event {events}: {what}")]
    Nonsense {
        /// Events replayed until then.
        events: u64,
        /// What does not fit.
        what: Nonsense,
    },
}

/// What does not fit in a trace that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// A thread that was never born.
    #[error("thread {0} was never born")]
    Thread(u32),
    /// A process that was never born.
    #[error("process {0} was never born")]
    Process(u32),
    /// A file that was never introduced.
    #[error("file {0} was never introduced")]
    File(u32),
    /// Threads and processes are numbered in order of birth; this number was not next.
    #[error("thread {0} is born out of turn")]
    OutOfTurn(u32),
    /// Files are numbered in order of introduction; this number was not next.
    #[error("file {0} is introduced out of turn")]
    FileOutOfTurn(u32),
    /// Something is left to do for a thread that has ended.
    #[error("thread {0} goes on after its end")]
    AfterEnd(u32),
    /// Every thread waits for another.
    #[error("every thread waits for another")]
    Deadlock,
}
