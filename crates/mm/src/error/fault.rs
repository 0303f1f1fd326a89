//! The errors of faults.

use super::MmError;
use pagewright_tlb::frames::NoFrames;
use pagewright_types::{Access, Errno, Rights, VirtAddr};
use thiserror::Error;

/// Why a fault failed; the embedder raises the signal that each variant names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FaultError {
    /// No mapping contains the address: `SIGSEGV`, `SEGV_MAPERR`.
    #[error("{access} at {va}: not mapped")]
    NotMapped {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
    },
    /// The mapping does not allow the access: `SIGSEGV`, `SEGV_ACCERR`.
    #[error("{access} at {va}: the mapping is {rights}")]
    NotAllowed {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
        /// The rights of the mapping.
        rights: Rights,
    },
    /// The page has a guard: `SIGSEGV`, `SEGV_MAPERR`.
    #[error("{access} at {va}: the page has a guard")]
    Guarded {
        /// The address.
        va: VirtAddr,
        /// The access.
        access: Access,
    },
    /// The address is past the end of the file: `SIGBUS`.
    #[error("{va} is past the end of its file")]
    PastEnd {
        /// The address.
        va: VirtAddr,
    },
    /// The device of the file failed, or a truncation removed the page during the read: `SIGBUS`.
    #[error("page {index} of the file cannot be read: {errno}")]
    Device {
        /// Page of the file.
        index: u64,
        /// The error of the device.
        errno: Errno,
    },
    /// The page has the maximum number of references, however much memory is free: `SIGBUS`.
    #[error("the page at {va} has the maximum number of references")]
    TooManyHolders {
        /// The address of the page.
        va: VirtAddr,
    },
    /// Memory is short; the embedder chooses a process to kill.
    #[error(transparent)]
    OutOfMemory(MmError),
}

impl From<MmError> for FaultError {
    fn from(error: MmError) -> Self {
        if let MmError::TooManyHolders { va } = error { Self::TooManyHolders { va } } else { Self::OutOfMemory(error) }
    }
}

impl From<NoFrames> for FaultError {
    fn from(error: NoFrames) -> Self {
        Self::OutOfMemory(error.into())
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
            FaultError::TooManyHolders { va } => Self::TooManyHolders { va },
            FaultError::OutOfMemory(error) => error,
        }
    }
}
