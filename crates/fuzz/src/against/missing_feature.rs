//! Features of Linux that the running kernel may lack.

use crate::random::Syscall;
use pagewright_model::spec::ExclusiveCall;

pagewright_types::named_table! {
    /// A feature that older kernels lack, or that a kernel may forbid.
    ///
    /// Its name says which calls or bits are not compared without it.
    pub enum MissingFeature {
        Seal = "mseal", "`mseal` (Linux 6.10).";
        Guard = "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE", "`MADV_GUARD_INSTALL` (Linux 6.13, for anonymous memory).";
        AdviseRanges = "process_madvise on the caller", "`process_madvise` on the caller, with any advice (Linux 6.14).";
        AdviseOthers = "process_madvise on other processes", "`process_madvise` on other processes, which needs `CAP_SYS_NICE`.";
        SoftDirty = "soft-dirty bits", "Soft-dirty bits (`CONFIG_MEM_SOFT_DIRTY`).";
        GuardBit = "the guard bit of pagemap", "Guards in `pagemap` (Linux 6.15).";
    }
}

impl MissingFeature {
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
