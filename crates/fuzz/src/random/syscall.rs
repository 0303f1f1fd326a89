//! Memory calls with raw arguments, and the files of procfs about memory.
//!
//! Arguments are raw so that programs can pass unknown flags.

use pagewright_model::spec::ExclusiveCall;
use pagewright_types::VirtAddr;
use std::fmt;

/// The file descriptor of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDescriptor {
    /// None: -1.
    None,
    /// The file, opened for reading and writing.
    ReadWrite,
    /// The file, opened for reading.
    ReadOnly,
}

/// A call with raw arguments, or a file in `/proc` that is read.
///
/// A `process` is an index among the live processes, modulo their number, and may be the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscall {
    /// `mmap`.
    Mmap {
        /// Address or hint.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `PROT_*`.
        prot: u32,
        /// `MAP_*`.
        flags: u32,
        /// The descriptor.
        file: FileDescriptor,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// A call that must not overlap other operations of its process.
    Exclusive(ExclusiveCall),
    /// `mprotect`.
    Mprotect {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `PROT_*`.
        prot: u32,
    },
    /// `mincore` that stores its vector to the program's memory.
    MincoreInto {
        /// First address.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// Address of the vector.
        vec: VirtAddr,
    },
    /// `prlimit64` that sets both limits.
    SetLimits {
        /// `RLIMIT_*`.
        resource: u32,
        /// Soft limit in bytes.
        soft: u64,
        /// Hard limit in bytes.
        hard: u64,
    },
    /// `fallocate`.
    Fallocate {
        /// `FALLOC_FL_*`.
        flags: u32,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `fcntl` with `F_ADD_SEALS`.
    AddSeals {
        /// The descriptor.
        file: FileDescriptor,
        /// `F_SEAL_*`.
        seals: u32,
    },
    /// `fcntl` with `F_GET_SEALS`.
    GetSeals,
    /// `pread` of eight bytes of the file.
    Pread {
        /// Offset in bytes.
        offset: u64,
    },
    /// `pwrite` of eight bytes to the file.
    Pwrite {
        /// Offset in bytes.
        offset: u64,
    },
    /// `process_vm_readv`.
    ProcessVmReadv {
        /// The process that is read.
        process: usize,
        /// Address in that process.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
    },
    /// `process_vm_writev` of eight bytes.
    ProcessVmWritev {
        /// The process that is written.
        process: usize,
        /// Address in that process.
        addr: VirtAddr,
    },
    /// `process_madvise`.
    ProcessMadvise {
        /// The process that is advised.
        process: usize,
        /// First address in that process.
        addr: VirtAddr,
        /// Length in bytes.
        len: u64,
        /// `MADV_*`.
        advice: u32,
    },
    /// `vmsplice` of eight bytes into a pipe, which then holds a reference to their page.
    Vmsplice {
        /// Address of the bytes.
        addr: VirtAddr,
    },
    /// `read` of the pipe: returns the bytes spliced first.
    ReadPipe,
    /// Reads `/proc/self/maps`.
    ShowMaps,
    /// Reads `/proc/self/smaps` and `/proc/self/status`.
    ShowSmaps,
    /// Reads `/proc/self/pagemap`.
    ///
    /// Pages of a private file mapping that were not copied yet read as zero.
    ShowPagemap {
        /// First address.
        addr: VirtAddr,
        /// Number of pages.
        pages: u64,
    },
}

impl Syscall {
    /// The name under which calls are counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Mmap { .. } => "mmap",
            Self::Exclusive(call) => call.name(),
            Self::Mprotect { .. } => "mprotect",
            Self::MincoreInto { .. } => "mincore",
            Self::SetLimits { .. } => "prlimit64",
            Self::Fallocate { .. } => "fallocate",
            Self::AddSeals { .. } => "fcntl(F_ADD_SEALS)",
            Self::GetSeals => "fcntl(F_GET_SEALS)",
            Self::Pread { .. } => "pread",
            Self::Pwrite { .. } => "pwrite",
            Self::ProcessVmReadv { .. } => "process_vm_readv",
            Self::ProcessVmWritev { .. } => "process_vm_writev",
            Self::ProcessMadvise { .. } => "process_madvise",
            Self::Vmsplice { .. } => "vmsplice",
            Self::ReadPipe => "read of a pipe",
            Self::ShowMaps => "/proc/self/maps",
            Self::ShowSmaps => "/proc/self/smaps",
            Self::ShowPagemap { .. } => "/proc/self/pagemap",
        }
    }

    /// The `process` of a call that has one.
    pub(crate) fn other_process(&self) -> Option<usize> {
        if let Self::ProcessVmReadv { process, .. }
        | Self::ProcessVmWritev { process, .. }
        | Self::ProcessMadvise { process, .. } = self
        {
            Some(*process)
        } else {
            None
        }
    }

    /// The advice (`MADV_*`) of a call that has one.
    pub(crate) fn advice(&self) -> Option<u32> {
        if let Self::Exclusive(ExclusiveCall::Advise { advice, .. } | ExclusiveCall::AdviseRanges { advice, .. })
        | Self::ProcessMadvise { advice, .. } = self
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
            Self::Mmap { addr, len, prot, flags, file, offset } => {
                write!(f, "mmap({addr}, {len:#x}, prot {prot:#x}, flags {flags:#x}, {file:?}, {offset:#x})")
            }
            Self::GetSeals | Self::ShowMaps | Self::ShowSmaps | Self::ReadPipe => f.write_str(name),
            Self::ShowPagemap { addr, pages } => write!(f, "{name}({addr}, {pages} pages)"),
            Self::Exclusive(call) => call.fmt(f),
            Self::Mprotect { addr, len, prot } => write!(f, "mprotect({addr}, {len:#x}, prot {prot:#x})"),
            Self::MincoreInto { addr, len, vec } => write!(f, "mincore({addr}, {len:#x}, {vec})"),
            Self::SetLimits { resource, soft, hard } => write!(f, "prlimit64({resource}, {soft:#x}, {hard:#x})"),
            Self::ProcessVmWritev { process, addr } => {
                write!(f, "process_vm_writev(process {process}, {addr}, 8 bytes)")
            }
            Self::ProcessMadvise { process, addr, len, advice } => {
                write!(f, "process_madvise(process {process}, {addr} {len:#x}, advice {advice})")
            }
            Self::Vmsplice { addr } => write!(f, "vmsplice({addr}, 8 bytes)"),
            Self::Fallocate { flags, offset, len } => write!(f, "fallocate({flags:#x}, {offset:#x}, {len:#x})"),
            Self::AddSeals { file, seals } => write!(f, "fcntl({file:?}, F_ADD_SEALS, {seals:#x})"),
            Self::Pread { offset } | Self::Pwrite { offset } => write!(f, "{name}(8 bytes at {offset:#x})"),
            Self::ProcessVmReadv { process, addr, len } => {
                write!(f, "process_vm_readv(process {process}, {addr}, {len:#x})")
            }
        }
    }
}
