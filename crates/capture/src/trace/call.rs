//! Memory calls with their arguments and results.
//!
//! One table declares every call: its tag in the file, its name in the Linux manual, and its
//! arguments in Linux's order. The table generates the enum, its encoder and its decoder.

use super::ids::{FileId, Prot, RawErrno, RawMapFlags, UserAddr};
use super::wire::{wire_enum, wire_struct};

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
