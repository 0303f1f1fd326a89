//! Memory calls with their arguments and results.
//!
//! One table declares every call: its tag in the file, its name in the Linux manual, and its
//! arguments in Linux's order. The table generates the enum, its encoder and its decoder.

use super::ids::{FileId, PAGE_SIZE, Prot, RawErrno, RawMapFlags, UserAddr};
use super::wire::{wire_enum, wire_struct};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

wire_struct! {
    /// A memory call that has returned.
    pub struct MemCall {
        /// The call and its arguments.
        pub op: MemOp,
        /// The returned word (an address, a length or 0), or the errno.
        pub result: Result<u64, RawErrno>,
    }
}

wire_enum! {
    /// The system calls that concern memory.
    ///
    /// Lengths and offsets are in bytes. Flag words are Linux's and are not checked.
    pub enum MemOp {
        /// `mmap(2)`.
        1 => Mmap {
            /// The requested address; with 0 the kernel chooses one.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// `PROT_*`.
            prot: Prot,
            /// `MAP_*`.
            flags: RawMapFlags,
            /// The file of the descriptor; `None` for anonymous memory.
            file: Option<FileId>,
            /// Offset in the file.
            offset: u64,
        },
        /// `munmap(2)`.
        2 => Munmap {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
        },
        /// `mprotect(2)`.
        3 => Mprotect {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// `PROT_*`.
            prot: Prot,
        },
        /// `mremap(2)`.
        4 => Mremap {
            /// Old start.
            addr: UserAddr,
            /// Old length.
            old_len: u64,
            /// New length.
            new_len: u64,
            /// `MREMAP_*`.
            flags: u32,
            /// New start, for `MREMAP_FIXED`.
            new_addr: UserAddr,
        },
        /// `madvise(2)`.
        5 => Madvise {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// `MADV_*`.
            advice: u32,
        },
        /// `brk(2)`; its result is the break after the call, whether it moved or not.
        6 => Brk {
            /// The requested break; 0 only queries the break.
            addr: UserAddr,
        },
        /// `mlock(2)`, or `mlock2(2)` with its flags.
        7 => Mlock {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// `MLOCK_*`.
            flags: u32,
        },
        /// `munlock(2)`.
        8 => Munlock {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
        },
        /// `mlockall(2)`.
        9 => Mlockall {
            /// `MCL_*`.
            flags: u32,
        },
        /// `munlockall(2)`.
        10 => Munlockall {},
        /// `msync(2)`.
        11 => Msync {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// `MS_*`.
            flags: u32,
        },
        /// `mincore(2)`; the store to its vector is a run of its own, with the origin kernel.
        12 => Mincore {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
        },
        /// `membarrier(2)`.
        13 => Membarrier {
            /// `MEMBARRIER_CMD_*`.
            command: u32,
            /// `MEMBARRIER_CMD_FLAG_*`.
            flags: u32,
        },
        /// Any other memory call, such as `shmat`, `mbind` or `userfaultfd`.
        ///
        /// Its arguments are those of the capture: addresses in them are *not* translated to the
        /// trace's layout.
        14 => Other {
            /// The x86-64 system call number.
            number: u32,
            /// The arguments.
            args: Vec<u64>,
        },
        /// Memory that the importer inferred to be mapped, because no call of the capture maps it.
        ///
        /// This is not a call of the program. The memory is readable, writable and executable. The
        /// result is its address.
        15 => Inferred {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
        },
    }
}

impl MemOp {
    /// The name of the call, as reports show it; `madvise` and unnamed calls with their number.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Mmap { .. } => "mmap".into(),
            Self::Munmap { .. } => "munmap".into(),
            Self::Mprotect { .. } => "mprotect".into(),
            Self::Mremap { .. } => "mremap".into(),
            Self::Madvise { advice, .. } => format!("madvise({advice})").into(),
            Self::Brk { .. } => "brk".into(),
            Self::Mlock { .. } => "mlock".into(),
            Self::Munlock { .. } => "munlock".into(),
            Self::Mlockall { .. } => "mlockall".into(),
            Self::Munlockall {} => "munlockall".into(),
            Self::Msync { .. } => "msync".into(),
            Self::Mincore { .. } => "mincore".into(),
            Self::Membarrier { .. } => "membarrier".into(),
            Self::Other { number, .. } => format!("system call {number}").into(),
            Self::Inferred { .. } => "inferred mapping".into(),
        }
    }

    /// The addresses that the call changes if it returns `result`; empty if it changes no range.
    ///
    /// For `mremap` it is the new place; for `brk` everything below the new break.
    pub fn range(&self, result: u64) -> Range<u64> {
        let bytes =
            |start: u64, len: u64| start..start.saturating_add(len.checked_next_multiple_of(PAGE_SIZE).unwrap_or(len));
        match *self {
            Self::Mmap { len, .. } => bytes(result, len),
            Self::Mremap { new_len, .. } => bytes(result, new_len),
            Self::Brk { .. } => 0..result,
            Self::Munmap { addr, len }
            | Self::Mprotect { addr, len, .. }
            | Self::Madvise { addr, len, .. }
            | Self::Mlock { addr, len, .. }
            | Self::Munlock { addr, len }
            | Self::Msync { addr, len, .. }
            | Self::Mincore { addr, len }
            | Self::Inferred { addr, len } => bytes(addr.0, len),
            Self::Mlockall { .. } | Self::Munlockall {} | Self::Membarrier { .. } | Self::Other { .. } => 0..0,
        }
    }
}

/// The call with its arguments in Linux's order, numbers as in the capture.
impl fmt::Display for MemOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mmap { addr, len, prot, flags, file, offset } => {
                write!(f, "mmap({addr}, {len}, {prot}, {flags}, ")?;
                match file {
                    Some(id) => write!(f, "file {id}, {offset:#x})"),
                    None => write!(f, "-1, {offset:#x})"),
                }
            }
            Self::Munmap { addr, len } => write!(f, "munmap({addr}, {len})"),
            Self::Mprotect { addr, len, prot } => write!(f, "mprotect({addr}, {len}, {prot})"),
            Self::Mremap { addr, old_len, new_len, flags, new_addr } => {
                write!(f, "mremap({addr}, {old_len}, {new_len}, {flags:#x}, {new_addr})")
            }
            Self::Madvise { addr, len, advice } => write!(f, "madvise({addr}, {len}, {advice})"),
            Self::Brk { addr } => write!(f, "brk({addr})"),
            Self::Mlock { addr, len, flags } => write!(f, "mlock2({addr}, {len}, {flags:#x})"),
            Self::Munlock { addr, len } => write!(f, "munlock({addr}, {len})"),
            Self::Mlockall { flags } => write!(f, "mlockall({flags:#x})"),
            Self::Munlockall {} => write!(f, "munlockall()"),
            Self::Msync { addr, len, flags } => write!(f, "msync({addr}, {len}, {flags:#x})"),
            Self::Mincore { addr, len } => write!(f, "mincore({addr}, {len})"),
            Self::Membarrier { command, flags } => write!(f, "membarrier({command}, {flags:#x})"),
            Self::Other { number, args } => write!(f, "system call {number} with {args:x?}"),
            Self::Inferred { addr, len } => write!(f, "inferred mapping of {len} bytes at {addr}"),
        }
    }
}
