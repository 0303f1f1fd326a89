//! What a fault can answer.

use super::MmError;
use core::fmt;
use pagewright_tlb::frames::NoFrames;
use pagewright_types::{Access, Errno, Rights, VirtAddr};

/// Why an access can't be served: what becomes a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped there: `SIGSEGV`, `SEGV_MAPERR`.
    NotMapped {
        /// The address.
        va: VirtAddr,
        /// What was tried.
        access: Access,
    },
    /// The mapping does not allow it: `SIGSEGV`, `SEGV_ACCERR`.
    NotAllowed {
        /// The address.
        va: VirtAddr,
        /// What was tried.
        access: Access,
        /// What the mapping allows.
        rights: Rights,
    },
    /// A guard is there: `SIGSEGV`, `SEGV_MAPERR`.
    Guarded {
        /// The address.
        va: VirtAddr,
        /// What was tried.
        access: Access,
    },
    /// Past the end of the file: `SIGBUS`.
    PastEnd {
        /// The address.
        va: VirtAddr,
    },
    /// The device behind the file failed, or the page went with the end of the file while it was
    /// read: `SIGBUS`.
    Device {
        /// Page of the file.
        index: u64,
        /// What the device said.
        errno: Errno,
    },
    /// No memory to serve it: the caller decides who dies.
    OutOfMemory(MmError),
}

impl From<NoFrames> for FaultError {
    fn from(error: NoFrames) -> Self {
        Self::OutOfMemory(error.into())
    }
}

impl From<MmError> for FaultError {
    fn from(error: MmError) -> Self {
        Self::OutOfMemory(error)
    }
}

/// Of a fault that a call needed for itself.
impl From<FaultError> for MmError {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::NotMapped { va, .. }
            | FaultError::NotAllowed { va, .. }
            | FaultError::Guarded { va, .. }
            | FaultError::PastEnd { va } => Self::Inaccessible { va },
            FaultError::Device { index, errno } => Self::Device { index, errno },
            FaultError::OutOfMemory(error) => error,
        }
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMapped { va, access } => write!(f, "{access} at {va}: not mapped"),
            Self::NotAllowed { va, access, rights } => write!(f, "{access} at {va}: the mapping is {rights}"),
            Self::Guarded { va, access } => write!(f, "{access} at {va}: a guard is there"),
            Self::PastEnd { va } => write!(f, "{va} is past the end of its file"),
            Self::Device { index, errno } => write!(f, "page {index} of the file can't be read: {errno}"),
            Self::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FaultError {}
