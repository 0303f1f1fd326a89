//! Errors of a replay.

use crate::trace::TraceError;
use pagewright_lab::LabError;
use pagewright_mm::{FaultError, MmError, MmSettingError};

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum CaptureReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The machine cannot be built.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A setting refuses its value.
    #[error("{0}")]
    Setting(#[from] MmSettingError),
    /// The machine's memory is too small for the program.
    #[error("process {pid} runs out of memory after {events} events ({error}): give the machine more with --mem")]
    OutOfMemory {
        /// The process, as the trace numbers it.
        pid: u32,
        /// Number of events replayed before.
        events: u64,
        /// The error of the memory manager.
        error: MmError,
    },
    /// The memory manager refuses an access that the program made when it was captured.
    #[error("process {pid}, event {events}: the memory manager refuses an access of the capture: {error}")]
    Refused {
        /// The process, as the trace numbers it.
        pid: u32,
        /// Number of events replayed before.
        events: u64,
        /// The access, its address, and why it is refused.
        error: FaultError,
    },
    /// The trace is readable, but its events contradict each other.
    #[error("the trace is inconsistent at event {events}: {what}")]
    Inconsistent {
        /// Number of events replayed before.
        events: u64,
        /// The contradiction.
        what: TraceInconsistency,
    },
}

/// A contradiction between the events of a readable trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceInconsistency {
    /// An event names a thread that no earlier event creates.
    #[error("thread {0} was not created")]
    UnknownThread(u32),
    /// An event names a process that no earlier event creates, or that has exited.
    #[error("process {0} was not created or has exited")]
    UnknownProcess(u32),
    /// An event names a file that no earlier event introduces.
    #[error("file {0} was not introduced")]
    UnknownFile(u32),
    /// A new thread or process does not have the next number.
    #[error("thread {0} is created out of order")]
    ThreadOutOfOrder(u32),
    /// A new file does not have the next number.
    #[error("file {0} is introduced out of order")]
    FileOutOfOrder(u32),
    /// A thread that has exited has further events.
    #[error("thread {0} has events after its exit")]
    AfterExit(u32),
    /// Every thread waits for another one.
    #[error("every thread waits for another one")]
    Deadlock,
}
