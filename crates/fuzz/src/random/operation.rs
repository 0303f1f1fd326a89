//! The operations of random programs, and how they print.
//!
//! Addresses are absolute, so an operation means the same whichever operations were removed before
//! it. It acts on the process that its CPU runs.

use super::kernel_operation::KernelOperation;
use super::syscall::Syscall;
use pagewright_model::spec::{MmapPlacement, RangeCall};
use pagewright_types::{Access, CpuId, Rights, VirtAddr};
use std::fmt;

/// What `mmap` maps.
///
/// The number is the first page of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedObject {
    /// Private anonymous memory.
    PrivateAnon,
    /// Shared anonymous memory.
    SharedAnon,
    /// The file, with `MAP_PRIVATE`.
    PrivateFile(u64),
    /// The file, with `MAP_SHARED`.
    SharedFile(u64),
    /// The file opened for reading only, with `MAP_SHARED`.
    SharedReadOnly(u64),
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `mmap(2)`.
    Mmap {
        /// The placement.
        place: MmapPlacement,
        /// Length in bytes.
        len: u64,
        /// The protection.
        rights: Rights,
        /// The object.
        object: MappedObject,
        /// `MAP_POPULATE`.
        populate: bool,
    },
    /// A call on a range of addresses.
    Range(RangeCall),
    /// `fork(2)`.
    ///
    /// The child runs when a CPU switches to it.
    Fork,
    /// The end of the process, unless another CPU runs it too.
    Exit {
        /// Whether the CPU stays on the dying tables, as a kernel thread does.
        lazily: bool,
    },
    /// `ftruncate(2)` of the file.
    Truncate {
        /// The new size, in pages.
        pages: u64,
    },
    /// An access to one cell of eight bytes.
    Access {
        /// Address of the cell.
        va: VirtAddr,
        /// Load, store or fetch.
        access: Access,
    },
    /// Accesses to random cells of a range of pages.
    AccessMany {
        /// Address of the first page.
        start: VirtAddr,
        /// Number of pages.
        pages: u64,
        /// Number of accesses.
        times: u32,
        /// Seed that chooses cells and kinds of access.
        seed: u64,
    },
    /// The CPU switches to another process.
    Switch {
        /// Index among the live processes, modulo their number.
        to: usize,
    },
    /// The CPU runs a kernel thread until its next operation.
    RunKernelThread,
    /// Makes a later allocation fail.
    FailAllocation {
        /// Number of allocations that succeed before it.
        after: u64,
    },
    /// A call with raw arguments.
    Syscall(Syscall),
    /// An operation of the kernel on the process's memory.
    Kernel(KernelOperation),
}

/// An operation and the CPU that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStep {
    /// The CPU.
    pub cpu: CpuId,
    /// The operation.
    pub operation: Operation,
}

impl Operation {
    /// The name under which calls are counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mmap { .. } => "mmap",
            Self::Range(call) => call.name(),
            Self::Fork => "fork",
            Self::Exit { .. } => "exit",
            Self::Truncate { .. } => "ftruncate",
            Self::Access { .. } | Self::AccessMany { .. } => "access",
            Self::Switch { .. } => "switch",
            Self::RunKernelThread => "kernel thread",
            Self::FailAllocation { .. } => "allocation failure",
            Self::Syscall(call) => call.name(),
            Self::Kernel(kernel) => kernel.name(),
        }
    }
}

impl fmt::Display for MappedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateAnon => f.write_str("private anonymous"),
            Self::SharedAnon => f.write_str("shared anonymous"),
            Self::PrivateFile(page) => write!(f, "private file from page {page}"),
            Self::SharedFile(page) => write!(f, "shared file from page {page}"),
            Self::SharedReadOnly(page) => write!(f, "shared read-only file from page {page}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mmap { place, len, rights, object, populate } => {
                let populate = if *populate { ", populate" } else { "" };
                match place {
                    MmapPlacement::Anywhere => write!(f, "mmap(anywhere, {len:#x}, {rights}, {object}{populate})"),
                    MmapPlacement::Fixed(at) => write!(f, "mmap({at}, {len:#x}, {rights}, {object}, fixed{populate})"),
                    MmapPlacement::FixedNoReplace(at) => {
                        write!(f, "mmap({at}, {len:#x}, {rights}, {object}, fixed, no replace{populate})")
                    }
                }
            }
            Self::Range(call) => call.fmt(f),
            Self::Fork => f.write_str("fork()"),
            Self::Exit { lazily: false } => f.write_str("exit()"),
            Self::Exit { lazily: true } => f.write_str("exit(), lazy TLB"),
            Self::Truncate { pages } => write!(f, "ftruncate({pages} pages)"),
            Self::Access { va, access } => write!(f, "{access} {va}"),
            Self::AccessMany { start, pages, times, seed } => {
                write!(f, "{times} accesses in {pages} pages at {start} (seed {seed})")
            }
            Self::Switch { to } => write!(f, "switch to process {to}"),
            Self::RunKernelThread => f.write_str("run a kernel thread"),
            Self::FailAllocation { after } => write!(f, "(an allocation fails after {after} more)"),
            Self::Syscall(call) => call.fmt(f),
            Self::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

impl fmt::Display for ProgramStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}: {}", self.cpu, self.operation)
    }
}
