//! The numbers of a capture, each with a type of its own.
//!
//! They belong to the captured program, not to the simulated machine: a [`PageNo`] is neither a
//! frame nor a checked address. Bit sets of Linux ([`Prot`], [`RawMapFlags`]) keep unknown bits, so
//! the trace has every bit that the program passed.

use core::fmt;

/// Base-2 logarithm of the page size of a trace.
pub const PAGE_SHIFT: u32 = 12;
/// Page size of a trace, in bytes.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A virtual page of a captured process: its address divided by 4096.
    PageNo(u64), "{:#x}"
);
number!(
    /// A virtual address in a captured process, in bytes.
    UserAddr(u64), "{:#x}"
);
number!(
    /// A process of the trace; processes and threads share one sequence of numbers from 1.
    Pid(u32), "{}"
);
number!(
    /// A thread of the trace, unique over all processes.
    ///
    /// The first thread of a process has the number of the process.
    Tid(u32), "{}"
);
number!(
    /// A file of the trace, numbered from 1 in order of introduction.
    FileId(u32), "{}"
);
number!(
    /// The errno of a failed call, such as 12 for `ENOMEM`.
    RawErrno(u16), "{}"
);
number!(
    /// The `PROT_*` bits that the program passed.
    Prot(u32), "{:#x}"
);
number!(
    /// The `MAP_*` bits that the program passed.
    RawMapFlags(u32), "{:#x}"
);

impl UserAddr {
    /// The page that contains this address.
    pub const fn page(self) -> PageNo {
        PageNo(self.0 >> PAGE_SHIFT)
    }
}

impl PageNo {
    /// The address of the page's first byte.
    pub const fn addr(self) -> UserAddr {
        UserAddr(self.0 << PAGE_SHIFT)
    }
}

impl Prot {
    /// `PROT_READ`.
    pub const READ: Self = Self(1);
    /// `PROT_WRITE`.
    pub const WRITE: Self = Self(2);
    /// `PROT_EXEC`.
    pub const EXEC: Self = Self(4);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Prot {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl RawMapFlags {
    /// `MAP_SHARED`.
    pub const SHARED: Self = Self(0x01);
    /// `MAP_PRIVATE`.
    pub const PRIVATE: Self = Self(0x02);
    /// `MAP_FIXED`.
    pub const FIXED: Self = Self(0x10);
    /// `MAP_ANONYMOUS`.
    pub const ANONYMOUS: Self = Self(0x20);
    /// `MAP_NORESERVE`.
    pub const NORESERVE: Self = Self(0x4000);
    /// `MAP_FIXED_NOREPLACE`.
    pub const FIXED_NOREPLACE: Self = Self(0x10_0000);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
