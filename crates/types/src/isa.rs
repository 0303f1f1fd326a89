//! The instruction sets.
//!
//! Their page-table formats are implemented twice, independently: `pagewright_arch::Isa` for the
//! memory manager, and `pagewright_model::walk` for the oracle.

use core::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsaKind {
    /// Intel 64 and AMD64.
    X86_64,
    /// Armv8-A and later, in AArch64 state.
    Aarch64,
}

impl IsaKind {
    /// Both, in the order in which reports show them.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "arm64",
        }
    }
}

impl fmt::Display for IsaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
