//! The numbers of a capture, each in a type of its own.
//!
//! They are what the capture says, not yet anything of our machine: a [`PageNo`] is not a frame and
//! not a checked address. Values that Linux defines as bit sets ([`Prot`], [`RawMapFlags`]) are kept
//! raw, unknown bits included, so that nothing that a program asked is lost.

use core::fmt;

/// log2 of the page size of every trace of this version.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page of a trace.
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
    /// A process of the trace, numbered from 1 in order of birth (shared sequence with [`Tid`]).
    Pid(u32), "{}"
);
number!(
    /// A thread of the trace, unique over all processes; a process's first thread has its process's
    /// number.
    Tid(u32), "{}"
);
number!(
    /// A file of the trace's file table.
    FileId(u32), "{}"
);
number!(
    /// The errno of a failed call, as Linux numbers it (`ENOMEM` is 12).
    RawErrno(u16), "{}"
);
number!(
    /// `PROT_*` bits as passed to the call.
    Prot(u32), "{:#x}"
);
number!(
    /// `MAP_*` bits as passed to the call.
    RawMapFlags(u32), "{:#x}"
);

impl UserAddr {
    /// The page that holds this address.
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
