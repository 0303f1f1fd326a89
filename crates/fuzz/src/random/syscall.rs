//! Memory calls as a program makes them: raw numbers, so that flags that nobody knows can be
//! passed, too.

use pagewright_model::spec::ExclusiveCall;
use pagewright_types::VirtAddr;
use std::fmt;

/// The descriptor that `mmap` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// None: -1.
    None,
    /// The file, opened for reading and writing.
    Both,
    /// The file, opened for reading.
    Reading,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscall {
    /// `mmap`, with protection and flags as they are passed.
    Map {
        /// Where, or a hint.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `PROT_*`.
        prot: u32,
        /// `MAP_*`.
        flags: u32,
        /// What.
        file: Descriptor,
        /// From which byte on.
        offset: u64,
    },
    /// One that has its process for itself, as the reference memory knows it.
    Exclusive(ExclusiveCall),
    /// `mprotect`, with protection as it is passed.
    Protect {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `PROT_*`.
        prot: u32,
    },
    /// `mincore`, with its answer stored to the program's memory.
    ResidentInto {
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// Where the answer goes.
        vec: VirtAddr,
    },
    /// `prlimit64`, of both limits.
    BothLimits {
        /// `RLIMIT_*`.
        resource: u32,
        /// Bytes.
        soft: u64,
        /// Bytes.
        hard: u64,
    },
    /// `fallocate`.
    Allocate {
        /// `FALLOC_FL_*`.
        flags: u32,
        /// From which byte on.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `fcntl` with `F_ADD_SEALS`.
    AddSeals {
        /// Through which descriptor.
        file: Descriptor,
        /// `F_SEAL_*`.
        seals: u32,
    },
    /// `fcntl` with `F_GET_SEALS`.
    GetSeals,
    /// `pread` of eight bytes.
    Read {
        /// Of the file.
        offset: u64,
    },
    /// `pwrite` of eight bytes.
    Write {
        /// Of the file.
        offset: u64,
    },
    /// `process_vm_readv` of bytes of another process, or of one's own.
    ReadOther {
        /// Which: the place among those that live, counted round.
        process: usize,
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
    },
    /// `process_vm_writev` of eight bytes to another process, or to one's own memory.
    WriteOther {
        /// Which: the place among those that live, counted round.
        process: usize,
        /// Where.
        addr: VirtAddr,
    },
    /// `process_madvise` about another process's memory, or one's own.
    AdviseOther {
        /// Which: the place among those that live, counted round.
        process: usize,
        /// Where.
        addr: VirtAddr,
        /// Bytes.
        len: u64,
        /// `MADV_*`.
        advice: u32,
    },
    /// `vmsplice` of eight bytes into a pipe, which then has a reference on their page.
    Splice {
        /// Where.
        addr: VirtAddr,
    },
    /// What was spliced first is read out of the pipe.
    Drain,
    /// No call: `/proc/self/maps` is read.
    Maps,
    /// No call: `/proc/self/smaps` and `/proc/self/status` are read.
    Usage,
    /// No call: `/proc/self/pagemap` is read, of these pages; those of files are left out where
    /// they would be copied.
    Pages {
        /// The first.
        addr: VirtAddr,
        /// How many.
        pages: u64,
    },
}

impl Syscall {
    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Map { .. } => "mmap",
            Self::Exclusive(call) => call.name(),
            Self::Protect { .. } => "mprotect",
            Self::ResidentInto { .. } => "mincore",
            Self::BothLimits { .. } => "prlimit64",
            Self::Allocate { .. } => "fallocate",
            Self::AddSeals { .. } => "fcntl(F_ADD_SEALS)",
            Self::GetSeals => "fcntl(F_GET_SEALS)",
            Self::Read { .. } => "pread",
            Self::Write { .. } => "pwrite",
            Self::ReadOther { .. } => "process_vm_readv",
            Self::WriteOther { .. } => "process_vm_writev",
            Self::AdviseOther { .. } => "process_madvise",
            Self::Splice { .. } => "vmsplice",
            Self::Drain => "read of a pipe",
            Self::Maps => "/proc/self/maps",
            Self::Usage => "/proc/self/smaps",
            Self::Pages { .. } => "/proc/self/pagemap",
        }
    }

    /// The process that it concerns beside its caller, by its place among those that live.
    pub(crate) fn other(&self) -> Option<usize> {
        if let Self::ReadOther { process, .. } | Self::WriteOther { process, .. } | Self::AdviseOther { process, .. } =
            self
        {
            Some(*process)
        } else {
            None
        }
    }

    /// The advice that it gives.
    pub(crate) fn advice(&self) -> Option<u32> {
        if let Self::Exclusive(ExclusiveCall::Advise { advice, .. } | ExclusiveCall::AdviseRanges { advice, .. })
        | Self::AdviseOther { advice, .. } = self
        {
            Some(*advice)
        } else {
            None
        }
    }
}

impl fmt::Display for Syscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Map { addr, len, prot, flags, file, offset } => {
                write!(f, "mmap({addr}, {len:#x}, prot {prot:#x}, flags {flags:#x}, {file:?}, {offset:#x})")
            }
            Self::GetSeals | Self::Maps | Self::Usage | Self::Drain => f.write_str(name),
            Self::Pages { addr, pages } => write!(f, "{name}({addr}, {pages} pages)"),
            Self::Exclusive(call) => call.fmt(f),
            Self::Protect { addr, len, prot } => write!(f, "mprotect({addr}, {len:#x}, prot {prot:#x})"),
            Self::ResidentInto { addr, len, vec } => write!(f, "mincore({addr}, {len:#x}, {vec})"),
            Self::BothLimits { resource, soft, hard } => write!(f, "prlimit64({resource}, {soft:#x}, {hard:#x})"),
            Self::WriteOther { process, addr } => write!(f, "process_vm_writev(process {process}, {addr}, 8 bytes)"),
            Self::AdviseOther { process, addr, len, advice } => {
                write!(f, "process_madvise(process {process}, {addr} {len:#x}, advice {advice})")
            }
            Self::Splice { addr } => write!(f, "vmsplice({addr}, 8 bytes)"),
            Self::Allocate { flags, offset, len } => write!(f, "fallocate({flags:#x}, {offset:#x}, {len:#x})"),
            Self::AddSeals { file, seals } => write!(f, "fcntl({file:?}, F_ADD_SEALS, {seals:#x})"),
            Self::Read { offset } | Self::Write { offset } => write!(f, "{name}(8 bytes at {offset:#x})"),
            Self::ReadOther { process, addr, len } => {
                write!(f, "process_vm_readv(process {process}, {addr}, {len:#x})")
            }
        }
    }
}
