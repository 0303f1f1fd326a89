//! Features of Linux that the running kernel may lack.

use crate::random::Syscall;
use pagewright_model::spec::ExclusiveCall;

/// A feature that older kernels lack, or that a kernel may forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFeature {
    /// `mseal` (Linux 6.10).
    Seal,
    /// `MADV_GUARD_INSTALL` (Linux 6.13, for anonymous memory).
    Guard,
    /// `process_madvise` on the caller, with any advice (Linux 6.14).
    AdviseRanges,
    /// `process_madvise` on other processes, which needs `CAP_SYS_NICE`.
    AdviseOthers,
    /// Soft-dirty bits (`CONFIG_MEM_SOFT_DIRTY`).
    SoftDirty,
    /// Guards in `pagemap` (Linux 6.15).
    GuardBit,
}

impl MissingFeature {
    /// The calls or bits that are not compared without it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "mseal",
            Self::Guard => "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE",
            Self::AdviseRanges => "process_madvise on the caller",
            Self::AdviseOthers => "process_madvise on other processes",
            Self::SoftDirty => "soft-dirty bits",
            Self::GuardBit => "the guard bit of pagemap",
        }
    }

    pub(super) fn is_needed_by(self, call: &Syscall) -> bool {
        match self {
            Self::Seal => matches!(call, Syscall::Exclusive(ExclusiveCall::Seal { .. })),
            Self::Guard => matches!(
                call,
                Syscall::Exclusive(ExclusiveCall::Advise { advice: 102 | 103, .. })
                    | Syscall::Exclusive(ExclusiveCall::AdviseRanges { advice: 102 | 103, .. })
            ),
            Self::AdviseRanges => matches!(call, Syscall::Exclusive(ExclusiveCall::AdviseRanges { .. })),
            Self::AdviseOthers => matches!(call, Syscall::ProcessMadvise { .. }),
            Self::SoftDirty | Self::GuardBit => false,
        }
    }
}
