//! What a Linux may lack, and what programs begin with on both sides.

use crate::random::Syscall;
use pagewright_model::spec::ExclusiveCall;
use pagewright_types::PAGE_SIZE;

/// Limits that programs start with: number, bytes.
///
/// Those of memory.
pub(super) const LIMITS: [(u32, u64); 4] = [(9, u64::MAX), (2, u64::MAX), (3, 8 << 20), (8, 32 * PAGE_SIZE)];

/// Where the instructions are that processes on Linux run.
///
/// Both sides have it mapped.
pub(super) const CODE: u64 = 0x20_0000;
/// Where the pages for what calls point to are.
pub(super) const DATA: u64 = 0x20_1000;
/// Their bytes.
pub(super) const DATA_BYTES: u64 = 0x2000;
/// Where both end.
pub(super) const END: u64 = DATA + DATA_BYTES;

/// Pages that the pipe takes.
pub(super) const PIPE_PAGES: usize = 16;

/// What the kernel is set to, which our side is set to as well.
#[derive(Clone, Copy)]
pub(super) struct Host {
    /// What limits may be raised to, in the order of [`LIMITS`].
    pub(super) hard: [u64; LIMITS.len()],
    /// Bits of a page's word that it may have.
    pub(super) page_state: u64,
    /// The lowest address at which anything may be mapped.
    pub(super) least_address: u64,
}

/// What older kernels do not have, or others forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// `mseal`: 6.10.
    Seal,
    /// `MADV_GUARD_INSTALL`: 6.13, for anonymous memory.
    Guard,
    /// `process_madvise` about oneself, and with any advice: 6.14.
    AdviseRanges,
    /// `process_madvise` about others: for those with `CAP_SYS_NICE`.
    AdviseOthers,
    /// Soft-dirty bits: `CONFIG_MEM_SOFT_DIRTY`.
    SoftDirty,
    /// Guards in `pagemap`: 6.15.
    GuardBit,
}

impl Lack {
    /// What is left out for want of it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seal => "mseal",
            Self::Guard => "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE",
            Self::AdviseRanges => "process_madvise about the caller",
            Self::AdviseOthers => "the right to process_madvise about others",
            Self::SoftDirty => "soft-dirty bits",
            Self::GuardBit => "the bit of pagemap for guards",
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
            Self::AdviseOthers => matches!(call, Syscall::AdviseOther { .. }),
            Self::SoftDirty | Self::GuardBit => false,
        }
    }
}
