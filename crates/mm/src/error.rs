//! What a memory call or a fault can answer, and the one map to errno.

mod fault;

pub use fault::FaultError;

use crate::file::Seals;
use crate::space::{Advice, Resource};
use core::fmt;
use pagewright_sync::AllocError;
use pagewright_table::TableAllocError;
use pagewright_tlb::frames::NoFrames;
use pagewright_types::RangeError;
use pagewright_types::{Errno, PageRange, Rights, SwapEntry, VirtAddr};

/// Why a memory call failed.
///
/// Unless a call says otherwise, nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmError {
    /// Address and length are no range of pages.
    Range(RangeError),
    /// A length of zero.
    EmptyRange {
        /// Where it would have been.
        at: VirtAddr,
    },
    /// Address and length reach past the last address, or past the end of user memory, in a call
    /// that takes this for a mistake and not for memory that is missing.
    OutOfBounds {
        /// The address.
        addr: VirtAddr,
        /// The length in bytes.
        len: u64,
    },
    /// What was to be mapped passes the end of user memory.
    BeyondUser {
        /// The range.
        range: PageRange,
    },
    /// More pages were asked for than user memory has.
    TooLong {
        /// Bytes asked for.
        len: u64,
    },
    /// Flags that contradict each other or are unknown.
    BadFlags {
        /// The flags as passed.
        flags: u32,
    },
    /// A file offset that is not page-aligned.
    MisalignedOffset {
        /// The offset in bytes.
        offset: u64,
    },
    /// A file offset past what a mapping can name.
    OffsetOverflow {
        /// The offset in bytes.
        offset: u64,
    },
    /// `MAP_FIXED_NOREPLACE` over an existing mapping.
    AlreadyMapped {
        /// The range asked for.
        range: PageRange,
    },
    /// An address at which the program may not map anything.
    TooLow {
        /// The address.
        at: VirtAddr,
        /// The lowest at which it may.
        least: VirtAddr,
    },
    /// No hole of that size is left.
    NoHole {
        /// Its size in pages.
        pages: u64,
    },
    /// A page of the range is not mapped.
    NotMapped {
        /// The first such page.
        at: VirtAddr,
    },
    /// A right that the mapping can never have.
    Forbidden {
        /// What was asked for.
        rights: Rights,
        /// What is possible.
        most: Rights,
    },
    /// More mappings than `vm.max_map_count`.
    TooManyMappings {
        /// The limit.
        limit: u64,
    },
    /// Nothing is mapped where the call is to begin.
    SourceNotMapped {
        /// The address.
        at: VirtAddr,
    },
    /// A range that passes the end of its mapping, in a call that takes one mapping only.
    SpansMappings {
        /// The range.
        range: PageRange,
    },
    /// Source and destination share pages.
    Overlaps {
        /// The source.
        from: PageRange,
        /// The destination.
        to: PageRange,
    },
    /// A private mapping can't be mapped a second time.
    PrivateNotDuplicable {
        /// Where it is.
        at: VirtAddr,
    },
    /// A mapping that was sealed.
    Sealed {
        /// Its first page, or the first in the range.
        at: VirtAddr,
    },
    /// The program may not lock any memory.
    LockNotPermitted,
    /// `mlock` of more than may be locked.
    OverLockLimit {
        /// Pages that would be locked.
        pages: u64,
        /// `RLIMIT_MEMLOCK` in bytes.
        limit: u64,
    },
    /// Memory that would be locked when it is mapped, and is more than may be.
    MapOverLockLimit {
        /// Pages that would be locked.
        pages: u64,
        /// `RLIMIT_MEMLOCK` in bytes.
        limit: u64,
    },
    /// A page of locked memory can't be had because the access that would bring it is not possible.
    CannotPopulate {
        /// The page.
        at: VirtAddr,
    },
    /// A page of locked memory can't be had for want of memory.
    NoMemoryToLock {
        /// The page.
        at: VirtAddr,
    },
    /// More than a limit of the space allows.
    OverLimit {
        /// The limit.
        resource: Resource,
        /// Pages that there would be.
        pages: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// More than the machine promises (`vm.overcommit_memory`).
    CommitRefused {
        /// Pages asked for.
        pages: u64,
    },
    /// User memory that can't be accessed as the call would.
    Inaccessible {
        /// The address.
        va: VirtAddr,
    },
    /// A page that is referenced or pinned as often as may be.
    TooManyHolders {
        /// Where it was asked for.
        va: VirtAddr,
    },
    /// More pieces of memory in one call than there may be.
    TooManySegments {
        /// How many.
        pieces: usize,
    },
    /// A word that is not aligned.
    MisalignedWord {
        /// Its address.
        at: VirtAddr,
    },
    /// Advice that there is no such thing as, or that may not be given about another process's
    /// memory.
    BadAdvice {
        /// The number.
        advice: u32,
    },
    /// A mapping that can't take the advice.
    AdviceNotApplicable {
        /// Where it was asked.
        at: VirtAddr,
        /// The advice.
        advice: Advice,
    },
    /// A mapping that could not be cut in two, or joined with its neighbour, to be advised about.
    CannotSplit {
        /// Where it would have been cut.
        at: VirtAddr,
    },
    /// A mapping through which its file can't be written, now or later.
    FileNotWritable {
        /// Where it was asked.
        at: VirtAddr,
    },
    /// Locked memory that was to be dropped.
    MemoryLocked {
        /// Where.
        at: VirtAddr,
    },
    /// The file's seals forbid it.
    FileSealed {
        /// Those that do.
        seals: Seals,
    },
    /// The file can't have seals.
    NoSeals,
    /// A file to be sealed against writing, and mapped by who could write it.
    WritablyMapped {
        /// How many such mappings there are.
        mappings: u64,
    },
    /// A file to be sealed against writing, a page of which somebody has taken who could write it.
    PageHeld {
        /// Which page.
        index: u64,
    },
    /// A limit to be above what it may be raised to.
    BadLimit {
        /// The limit, in bytes.
        soft: u64,
        /// What it may be raised to.
        hard: u64,
    },
    /// More than the program may raise its limit to.
    RaiseNotPermitted {
        /// Which limit.
        resource: Resource,
        /// What it may be raised to now.
        hard: u64,
    },
    /// The files of a tmpfs would take more than it may.
    TmpfsFull {
        /// Pages that they may take.
        most: u64,
    },
    /// A file would be larger than a file can be.
    FileTooLarge {
        /// Its size in bytes.
        bytes: u64,
    },
    /// Offset and length that are no part of a file.
    BadFileRange {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        len: u64,
    },
    /// A name that is too long.
    NameTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// What this file can't do.
    NotSupported {
        /// The flags that asked for it.
        flags: u32,
    },
    /// What this kernel was built without.
    NotConfigured {
        /// The flags that asked for it.
        flags: u32,
    },
    /// The device behind a file failed.
    Device {
        /// Page of the file.
        index: u64,
        /// What it said.
        errno: Errno,
    },
    /// More swap devices than can be told apart.
    TooManySwapDevices,
    /// A device that is swapped to already.
    SwapDeviceInUse {
        /// Its number.
        device: u8,
    },
    /// A device that is not swapped to.
    NoSuchSwapDevice {
        /// Its number.
        device: u8,
    },
    /// The address space has ended.
    SpaceEnded,
    /// No frames.
    NoFrames(NoFrames),
    /// No kernel memory.
    NoKernelMemory {
        /// Bytes or items asked for.
        wanted: usize,
    },
}

impl MmError {
    /// What Linux returns in this case.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Range(RangeError::Misaligned(_))
            | Self::EmptyRange { .. }
            | Self::OutOfBounds { .. }
            | Self::TooManySegments { .. }
            | Self::MisalignedWord { .. }
            | Self::BadFlags { .. }
            | Self::MisalignedOffset { .. }
            | Self::Overlaps { .. }
            | Self::PrivateNotDuplicable { .. }
            | Self::BadAdvice { .. }
            | Self::AdviceNotApplicable { .. }
            | Self::NoSeals
            | Self::BadLimit { .. }
            | Self::BadFileRange { .. }
            | Self::NoSuchSwapDevice { .. }
            | Self::NameTooLong { .. } => Errno::EINVAL,
            Self::MemoryLocked { .. }
            | Self::WritablyMapped { .. }
            | Self::PageHeld { .. }
            | Self::SwapDeviceInUse { .. } => Errno::EBUSY,
            Self::FileTooLarge { .. } => Errno::EFBIG,
            Self::TmpfsFull { .. } => Errno::ENOSPC,
            Self::NotSupported { .. } => Errno::EOPNOTSUPP,
            Self::NotConfigured { .. } => Errno::ENOSYS,
            Self::Device { errno, .. } => errno,
            Self::SourceNotMapped { .. } | Self::SpansMappings { .. } | Self::Inaccessible { .. } => Errno::EFAULT,
            Self::TooLow { .. }
            | Self::Sealed { .. }
            | Self::LockNotPermitted
            | Self::FileSealed { .. }
            | Self::TooManySwapDevices
            | Self::RaiseNotPermitted { .. } => Errno::EPERM,
            Self::MapOverLockLimit { .. } | Self::NoMemoryToLock { .. } | Self::CannotSplit { .. } => Errno::EAGAIN,
            Self::OffsetOverflow { .. } => Errno::EOVERFLOW,
            Self::AlreadyMapped { .. } => Errno::EEXIST,
            Self::Forbidden { .. } | Self::FileNotWritable { .. } => Errno::EACCES,
            Self::SpaceEnded => Errno::ESRCH,
            Self::Range(RangeError::Overflow { .. })
            | Self::BeyondUser { .. }
            | Self::TooLong { .. }
            | Self::NoHole { .. }
            | Self::NotMapped { .. }
            | Self::TooManyMappings { .. }
            | Self::TooManyHolders { .. }
            | Self::OverLockLimit { .. }
            | Self::CannotPopulate { .. }
            | Self::OverLimit { .. }
            | Self::CommitRefused { .. }
            | Self::NoFrames(_)
            | Self::NoKernelMemory { .. } => Errno::ENOMEM,
        }
    }
}

/// The pages of an address and a length, for a call that takes an end past the last address for a
/// mistake (`EINVAL`).
pub(crate) fn bounded(addr: VirtAddr, len: u64) -> Result<PageRange, MmError> {
    PageRange::from_len(addr, len).map_err(|error| match error {
        RangeError::Overflow { .. } => MmError::OutOfBounds { addr, len },
        RangeError::Misaligned(_) => error.into(),
    })
}

impl From<NoFrames> for MmError {
    fn from(error: NoFrames) -> Self {
        Self::NoFrames(error)
    }
}

impl From<RangeError> for MmError {
    fn from(error: RangeError) -> Self {
        Self::Range(error)
    }
}

impl From<AllocError> for MmError {
    fn from(error: AllocError) -> Self {
        Self::NoKernelMemory { wanted: error.bytes }
    }
}

impl From<pagewright_btree::TreeReserveError> for MmError {
    fn from(error: pagewright_btree::TreeReserveError) -> Self {
        Self::NoKernelMemory { wanted: error.inserts }
    }
}

impl From<TableAllocError> for MmError {
    fn from(error: TableAllocError) -> Self {
        match error {
            TableAllocError::Frames(error) => error.into(),
            TableAllocError::Kernel(error) => error.into(),
        }
    }
}

impl fmt::Display for MmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(e) => e.fmt(f),
            Self::EmptyRange { at } => write!(f, "length 0 at {at}"),
            Self::OutOfBounds { addr, len } => write!(f, "{len:#x} bytes at {addr} pass the end of memory"),
            Self::BeyondUser { range } => write!(f, "{range} is not in user memory"),
            Self::TooLong { len } => write!(f, "{len:#x} bytes are more than user memory has"),
            Self::BadFlags { flags } => write!(f, "flags {flags:#x}"),
            Self::MisalignedOffset { offset } => write!(f, "file offset {offset:#x} is no multiple of the page size"),
            Self::OffsetOverflow { offset } => write!(f, "file offset {offset:#x} is too large"),
            Self::AlreadyMapped { range } => write!(f, "{range} is not free"),
            Self::NoHole { pages } => write!(f, "no hole of {pages} pages"),
            Self::NotMapped { at } => write!(f, "{at} is not mapped"),
            Self::Forbidden { rights, most } => write!(f, "rights {rights} where at most {most} are possible"),
            Self::TooManyMappings { limit } => write!(f, "more than {limit} mappings"),
            Self::SourceNotMapped { at } => write!(f, "nothing is mapped at {at}"),
            Self::SpansMappings { range } => write!(f, "{range} passes the end of a mapping"),
            Self::Overlaps { from, to } => write!(f, "{from} and {to} overlap"),
            Self::PrivateNotDuplicable { at } => write!(f, "the private mapping at {at} can't be there twice"),
            Self::Sealed { at } => write!(f, "the mapping at {at} is sealed"),
            Self::LockNotPermitted => f.write_str("no memory may be locked"),
            Self::OverLockLimit { pages, limit } | Self::MapOverLockLimit { pages, limit } => {
                write!(f, "{pages} locked pages are more than {limit} bytes")
            }
            Self::CannotPopulate { at } => write!(f, "the page at {at} can't be faulted in"),
            Self::NoMemoryToLock { at } => write!(f, "no memory for the locked page at {at}"),
            Self::OverLimit { resource, pages, limit } => write!(f, "{pages} pages pass {resource} of {limit} bytes"),
            Self::CommitRefused { pages } => write!(f, "{pages} pages more can't be promised"),
            Self::Inaccessible { va } => write!(f, "{va} can't be accessed so"),
            Self::TooManyHolders { va } => write!(f, "the page at {va} can't be held once more"),
            Self::TooManySegments { pieces } => write!(f, "{pieces} pieces of memory in one call"),
            Self::MisalignedWord { at } => write!(f, "the word at {at} is not aligned"),
            Self::BadAdvice { advice } => write!(f, "advice {advice}"),
            Self::AdviceNotApplicable { at, advice } => {
                write!(f, "the mapping at {at} can't take the advice {advice:?}")
            }
            Self::CannotSplit { at } => write!(f, "the mapping at {at} can't be cut in two"),
            Self::FileNotWritable { at } => write!(f, "the file at {at} can't be written through its mapping"),
            Self::MemoryLocked { at } => write!(f, "the memory at {at} is locked"),
            Self::FileSealed { seals } => write!(f, "the file is sealed: {seals:?}"),
            Self::NoSeals => f.write_str("the file can't be sealed"),
            Self::WritablyMapped { mappings } => write!(f, "the file could be written through {mappings} mappings"),
            Self::PageHeld { index } => write!(f, "somebody has page {index} of the file"),
            Self::BadLimit { soft, hard } => write!(f, "a limit of {soft} bytes that may be raised to {hard}"),
            Self::RaiseNotPermitted { resource, hard } => write!(f, "{resource} may not be raised past {hard} bytes"),
            Self::TooLow { at, least } => write!(f, "{at} is below {least}"),
            Self::TmpfsFull { most } => write!(f, "more than {most} pages of a tmpfs"),
            Self::FileTooLarge { bytes } => write!(f, "a file of {bytes:#x} bytes"),
            Self::BadFileRange { offset, len } => write!(f, "{len:#x} bytes of a file from {offset:#x} on"),
            Self::NameTooLong { len } => write!(f, "a name of {len} bytes"),
            Self::NotSupported { flags } => write!(f, "flags {flags:#x} are not supported by the file"),
            Self::NotConfigured { flags } => write!(f, "flags {flags:#x} ask for what there is not"),
            Self::Device { index, errno } => write!(f, "page {index} of the file: {errno}"),
            Self::NoSuchSwapDevice { device } => write!(f, "device {device} is not swapped to"),
            Self::SwapDeviceInUse { device } => write!(f, "swap device {device} is the same"),
            Self::TooManySwapDevices => write!(f, "more than {} swap devices", SwapEntry::DEVICES),
            Self::SpaceEnded => f.write_str("the address space has ended"),
            Self::NoFrames(e) => e.fmt(f),
            Self::NoKernelMemory { wanted } => write!(f, "no kernel memory ({wanted})"),
        }
    }
}

impl core::error::Error for MmError {}
