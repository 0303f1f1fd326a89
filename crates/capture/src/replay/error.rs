//! Errors of a replay.

use crate::trace::{MemOp, TraceError, UserAddr};
use pagewright_lab::LabError;
use pagewright_mm::{FaultError, MmError, MmSettingError};
use std::fmt;

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
    /// The machine's memory is too small for the object of a file.
    #[error("no memory for the file {path} after {events} events ({error}): give the machine more with --mem")]
    NoMemoryForFile {
        /// The path of the file.
        path: String,
        /// Number of events replayed before.
        events: u64,
        /// The error of the memory manager.
        error: MmError,
    },
    /// The memory manager refuses a mapping of a program image.
    #[error("process {pid}, event {events}: the mapping of the program image at {at} is refused: {error}")]
    ImageRefused {
        /// The process, as the trace numbers it.
        pid: u32,
        /// The start of the mapping.
        at: UserAddr,
        /// Number of events replayed before.
        events: u64,
        /// The error of the memory manager.
        error: MmError,
    },
    /// A call had another result than on Linux, and the program cannot continue without it.
    #[error("{call}; the program cannot continue: {error}")]
    CallFailed {
        /// The call, its position, and both results.
        call: Box<DivergedCall>,
        /// The access that is refused because of it.
        error: FaultError,
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

/// A call whose result is not that of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivergedCall {
    /// The position of the call among the events of the capture, from 1.
    pub position: u64,
    /// The process, as the trace numbers it.
    pub pid: u32,
    /// The call, with its arguments.
    pub op: MemOp,
    /// The result on Linux.
    pub linux: u64,
    /// The result of the memory manager: a value, or an error.
    pub ours: Result<u64, MmError>,
}

impl fmt::Display for DivergedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, pid, op, linux, ours } = self;
        write!(f, "event {position}, process {pid}: {op} returned {linux:#x} on Linux and ")?;
        match ours {
            Ok(value) => write!(f, "returns {value:#x} here"),
            Err(error) => write!(f, "fails here: {error}"),
        }
    }
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
