//! What random programs do, one operation at a time, and how it reads.
//!
//! Addresses are plain values: an operation means the same whatever was left out before it. It acts
//! on the process that its CPU runs.

use super::kernel::Kernel;
use super::syscall::Syscall;
use pagewright_types::{Access, CpuId, Rights, VirtAddr};
use std::fmt;

/// Where `mmap` is to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Anywhere.
    Anywhere,
    /// Here, in the place of what is there.
    Fixed(VirtAddr),
    /// Here or not at all.
    Vacant(VirtAddr),
}

/// What `mmap` maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Zeroes of one's own.
    PrivateAnon,
    /// Zeroes that children share.
    SharedAnon,
    /// The file from this page of it on, stores kept to oneself.
    PrivateFile(u64),
    /// The file from this page of it on.
    SharedFile(u64),
    /// The same, opened for reading only.
    SharedReadOnly(u64),
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `mmap(2)`.
    Map {
        /// Where.
        place: Where,
        /// Bytes.
        len: u64,
        /// Rights.
        rights: Rights,
        /// What.
        object: Object,
        /// Whether pages are faulted in at once.
        populate: bool,
    },
    /// `munmap(2)`.
    Unmap {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `mprotect(2)`.
    Protect {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// The rights from then on.
        rights: Rights,
    },
    /// `madvise(2)` with `MADV_DONTNEED`.
    DontNeed {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `brk(2)`.
    Break {
        /// The break wanted.
        to: VirtAddr,
    },
    /// `fork(2)`.
    ///
    /// The child waits until some CPU switches to it.
    Fork,
    /// The end of the process, unless another CPU runs it, too.
    Exit {
        /// Whether the CPU stays on the dying tables as a kernel thread would.
        lazily: bool,
    },
    /// Truncation of the file to so many pages.
    Truncate {
        /// Pages.
        pages: u64,
    },
    /// An access to one cell.
    Access {
        /// The cell.
        va: VirtAddr,
        /// Load, store or fetch.
        access: Access,
    },
    /// Accesses to cells anywhere in these pages, chosen by the seed.
    Roam {
        /// First page.
        start: VirtAddr,
        /// Pages.
        pages: u64,
        /// How many accesses.
        times: u32,
        /// Chooses cells and kinds.
        seed: u64,
    },
    /// This CPU runs another process: the one at this place among those that live, counted round.
    Switch {
        /// The place.
        to: usize,
    },
    /// This CPU runs a kernel thread until its next operation.
    Lazy,
    /// An allocation will fail, after so many that don't.
    Starve {
        /// How many succeed.
        after: u64,
    },
    /// A call with raw flags, which has its process for itself.
    Syscall(Syscall),
    /// Something that a kernel does with the process's memory.
    Kernel(Kernel),
}

/// An operation and the CPU that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub cpu: CpuId,
    /// What.
    pub operation: Operation,
}

impl Operation {
    /// What it is called where calls are counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Map { .. } => "mmap",
            Self::Unmap { .. } => "munmap",
            Self::Protect { .. } => "mprotect",
            Self::DontNeed { .. } => "madvise(MADV_DONTNEED)",
            Self::Break { .. } => "brk",
            Self::Fork => "fork",
            Self::Exit { .. } => "exit",
            Self::Truncate { .. } => "ftruncate",
            Self::Access { .. } | Self::Roam { .. } => "access",
            Self::Switch { .. } => "switch",
            Self::Lazy => "kernel thread",
            Self::Starve { .. } => "starve",
            Self::Syscall(call) => call.name(),
            Self::Kernel(kernel) => kernel.name(),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateAnon => f.write_str("private anonymous"),
            Self::SharedAnon => f.write_str("shared anonymous"),
            Self::PrivateFile(page) => write!(f, "private, page {page} of the file"),
            Self::SharedFile(page) => write!(f, "shared, page {page} of the file"),
            Self::SharedReadOnly(page) => write!(f, "shared, page {page} of the file opened for reading"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map { place, len, rights, object, populate } => {
                let populate = if *populate { ", populated" } else { "" };
                match place {
                    Where::Anywhere => write!(f, "mmap(anywhere, {len:#x}, {rights}, {object}{populate})"),
                    Where::Fixed(at) => write!(f, "mmap({at}, {len:#x}, {rights}, {object}, fixed{populate})"),
                    Where::Vacant(at) => write!(f, "mmap({at}, {len:#x}, {rights}, {object}, if free{populate})"),
                }
            }
            Self::Unmap { addr, len } => write!(f, "munmap({addr}, {len:#x})"),
            Self::Protect { addr, len, rights } => write!(f, "mprotect({addr}, {len:#x}, {rights})"),
            Self::DontNeed { addr, len } => write!(f, "madvise({addr}, {len:#x}, MADV_DONTNEED)"),
            Self::Break { to } => write!(f, "brk({to})"),
            Self::Fork => f.write_str("fork()"),
            Self::Exit { lazily: false } => f.write_str("exit()"),
            Self::Exit { lazily: true } => f.write_str("exit(), lazily"),
            Self::Truncate { pages } => write!(f, "truncate(the file, {pages} pages)"),
            Self::Access { va, access } => write!(f, "{access} {va}"),
            Self::Roam { start, pages, times, seed } => {
                write!(f, "{times} accesses in {pages} pages at {start} (seed {seed})")
            }
            Self::Switch { to } => write!(f, "switch to process {to}"),
            Self::Lazy => f.write_str("run a kernel thread"),
            Self::Starve { after } => write!(f, "(an allocation fails after {after} more)"),
            Self::Syscall(call) => call.fmt(f),
            Self::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}: {}", self.cpu, self.operation)
    }
}
