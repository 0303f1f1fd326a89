//! The errors of faults.

use super::MmError;
use core::fmt;
use pagewright_tlb::frames::NoFrames;
use pagewright_types::{Access, Errno, Rights, VirtAddr};

/// Why a fault failed; the embedder raises the signal that each variant names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No mapping contains the address: `SIGSEGV`, `SEGV_MAPERR`.
    NotMapped {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
    },
    /// The mapping does not allow the access: `SIGSEGV`, `SEGV_ACCERR`.
    NotAllowed {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
        /// The rights of the mapping.
        rights: Rights,
    },
    /// The page has a guard: `SIGSEGV`, `SEGV_MAPERR`.
    Guarded {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
    },
    /// The address is past the end of the file: `SIGBUS`.
    PastEnd {
        /// The address.
        va: VirtAddr,
    },
    /// The device of the file failed, or a truncation removed the page during the read: `SIGBUS`.
    Device {
        /// Page of the file.
        index: u64,
        /// The error of the device.
        errno: Errno,
    },
    /// Memory is short; the embedder chooses a process to kill.
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

/// Converts the error of a fault that a call has taken itself.
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
            Self::Guarded { va, access } => write!(f, "{access} at {va}: the page has a guard"),
            Self::PastEnd { va } => write!(f, "{va} is past the end of its file"),
            Self::Device { index, errno } => write!(f, "page {index} of the file cannot be read: {errno}"),
            Self::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FaultError {}
