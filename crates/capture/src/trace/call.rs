//! Memory calls with their arguments and results.
//!
//! One table declares every call: its number in the file, its name as in the Linux manual, its
//! arguments in Linux's order. The enum, its encoding and its decoding come from the table.

use super::ids::{FileId, Prot, RawErrno, RawMapFlags, UserAddr};
use super::wire::{wire_enum, wire_struct};

wire_struct! {
    /// A memory call that has returned.
    pub struct MemCall {
        /// What was asked.
        pub op: MemOp,
        /// What came back: the returned word (an address, a length or 0), or the errno.
        pub result: Result<u64, RawErrno>,
    }
}

wire_enum! {
    /// The calls that concern memory.
    ///
    /// Lengths and offsets are bytes; flag words are Linux's, unchecked.
    pub enum MemOp {
        /// `mmap(2)`.
        1 => Mmap {
            /// The address asked for; 0 leaves it to the kernel.
            addr: UserAddr,
            /// Length.
            len: u64,
            /// Rights.
            prot: Prot,
            /// Flags.
            flags: RawMapFlags,
            /// The file behind the descriptor; `None` for anonymous memory.
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
            /// New rights.
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
        /// `brk(2)`; the result is the break afterwards, moved or not.
        6 => Brk {
            /// The break asked for; 0 asks where it is.
            addr: UserAddr,
        },
        /// `mlock(2)` and, with flags, `mlock2(2)`.
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
        /// `mincore(2)`; what it writes to its vector is a kernel run.
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
            /// Flags.
            flags: u32,
        },
        /// A memory call that none of the above is (`shmat`, `mbind`, `userfaultfd`, …), its
        /// arguments as the capture has them: addresses in them are *not* translated to the trace's
        /// layout.
        14 => Other {
            /// Its x86-64 system call number.
            number: u32,
            /// Its arguments.
            args: Vec<u64>,
        },
        /// Not a call of the program: memory that was there before its first recorded event, mapped
        /// read, write and execute by the importer because the user chose to infer mappings. Its
        /// result is its address.
        15 => Inferred {
            /// Start.
            addr: UserAddr,
            /// Length.
            len: u64,
        },
    }
}
