//! The errors of memory calls and faults, and their errno values.

mod fault;

pub use fault::FaultError;

use crate::file::Seals;
use crate::policy::PolicyMode;
use crate::space::{Advice, Resource};
use pagewright_sync::AllocError;
use pagewright_table::CopyStop;
use pagewright_tlb::frames::NoFrames;
use pagewright_types::{Errno, NodeId, NodeMask, PageRange, RangeError, Rights, SwapEntry, VirtAddr};
use thiserror::Error;

/// Why a memory call failed.
///
/// Unless the call says otherwise, nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MmError {
    /// An address is misaligned, or its range passes the end of the address space.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The length is 0.
    #[error("the length at {at} is 0")]
    EmptyRange {
        /// The address.
        at: VirtAddr,
    },
    /// The range passes the end of user memory (`EINVAL`).
    #[error("{len:#x} bytes at {addr} pass the end of user memory")]
    OutOfBounds {
        /// The address.
        addr: VirtAddr,
        /// The length in bytes.
        len: u64,
    },
    /// The range to map passes the end of user memory (`ENOMEM`).
    #[error("{range} passes the end of user memory")]
    BeyondUser {
        /// The range.
        range: PageRange,
    },
    /// The length exceeds user memory.
    #[error("{len:#x} bytes exceed user memory")]
    TooLong {
        /// The length in bytes.
        len: u64,
    },
    /// The flags are unknown or contradict each other.
    #[error("flags {flags:#x} are unknown or contradict each other")]
    BadFlags {
        /// The flags of the call.
        flags: u32,
    },
    /// A memory policy cannot have these nodes: none of them exists, or the mode takes none.
    #[error("policy {mode:?} cannot have nodes {nodes:?}")]
    BadPolicyNodes {
        /// The mode.
        mode: PolicyMode,
        /// The nodes of the call.
        nodes: NodeMask,
    },
    /// A page is on a node that the new policy does not name (`MPOL_MF_STRICT`).
    #[error("the page at {at} is on node {node}")]
    Misplaced {
        /// The address of the page.
        at: VirtAddr,
        /// Its node.
        node: NodeId,
    },
    /// The program may not move pages that others map (`MPOL_MF_MOVE_ALL`).
    #[error("the program may not move shared pages")]
    MoveAllNotPermitted,
    /// The file offset is not a multiple of the page size.
    #[error("file offset {offset:#x} is not a multiple of the page size")]
    MisalignedOffset {
        /// The offset in bytes.
        offset: u64,
    },
    /// The file offset exceeds what a mapping can have.
    #[error("file offset {offset:#x} is too large")]
    OffsetOverflow {
        /// The offset in bytes.
        offset: u64,
    },
    /// A page of the range is mapped already, and the call may not replace it.
    #[error("a page of {range} is mapped already")]
    AlreadyMapped {
        /// The range of the call.
        range: PageRange,
    },
    /// The program may not map at this address (`vm.mmap_min_addr`).
    #[error("{at} is below vm.mmap_min_addr, {min}")]
    TooLow {
        /// The address.
        at: VirtAddr,
        /// The lowest address at which it may.
        min: VirtAddr,
    },
    /// The pool of huge pages is empty.
    #[error("no huge pages for {pages} pages")]
    NoHugePages {
        /// The length in pages.
        pages: u64,
    },
    /// No gap is long enough.
    #[error("no gap of {pages} pages is free")]
    NoUnmappedArea {
        /// The length in pages.
        pages: u64,
    },
    /// A page of the range is not mapped.
    #[error("{at} is not mapped")]
    NotMapped {
        /// The first such page.
        at: VirtAddr,
    },
    /// The mapping cannot have these rights.
    #[error("rights {rights} exceed the maximum {max} of the mapping")]
    Forbidden {
        /// The rights of the call.
        rights: Rights,
        /// The greatest rights that are possible.
        max: Rights,
    },
    /// The file system of the file permits no execution.
    #[error("rights {rights} are not permitted by the file's file system")]
    NotExecutable {
        /// The rights of the call.
        rights: Rights,
    },
    /// The space would have more mappings than `vm.max_map_count`.
    #[error("the space would have more than {limit} mappings")]
    TooManyMappings {
        /// The limit.
        limit: u64,
    },
    /// The source of `mremap` is not mapped (`EFAULT`).
    #[error("the source at {at} is not mapped")]
    SourceNotMapped {
        /// The address.
        at: VirtAddr,
    },
    /// The range passes the end of its mapping, and the call takes one mapping only.
    #[error("{range} passes the end of its mapping")]
    SpansMappings {
        /// The range.
        range: PageRange,
    },
    /// The source and the destination of a move overlap.
    #[error("{from} and {to} overlap")]
    Overlaps {
        /// The source.
        from: PageRange,
        /// The destination.
        to: PageRange,
    },
    /// The call would map a private mapping a second time.
    #[error("the private mapping at {at} cannot be mapped twice")]
    PrivateNotDuplicable {
        /// Its address.
        at: VirtAddr,
    },
    /// The mapping is sealed (`mseal`).
    #[error("the mapping at {at} is sealed")]
    Sealed {
        /// The address of the mapping, or of its first page in the range.
        at: VirtAddr,
    },
    /// The program may not lock memory.
    #[error("the program may not lock memory")]
    LockNotPermitted,
    /// `mlock` or `mlockall` would pass `RLIMIT_MEMLOCK` (`ENOMEM`).
    #[error("{pages} locked pages pass the limit of {limit} bytes")]
    OverLockLimit {
        /// Locked pages that there would be.
        pages: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A new or larger locked mapping would pass `RLIMIT_MEMLOCK` (`EAGAIN`).
    #[error("{pages} locked pages pass the limit of {limit} bytes")]
    MapOverLockLimit {
        /// Locked pages that there would be.
        pages: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A page of locked memory cannot be faulted in, because the mapping forbids the access.
    #[error("the page at {at} cannot be faulted in")]
    CannotPopulate {
        /// The page.
        at: VirtAddr,
    },
    /// A page of locked memory cannot be faulted in, because memory is short.
    #[error("no memory for the locked page at {at}")]
    NoMemoryToLock {
        /// The page.
        at: VirtAddr,
    },
    /// The space would pass one of its limits.
    #[error("{pages} pages pass {resource}, {limit} bytes")]
    OverLimit {
        /// The limited resource.
        resource: Resource,
        /// Pages that there would be.
        pages: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The overcommit policy refuses the pages (`vm.overcommit_memory`).
    #[error("the overcommit policy refuses {pages} pages")]
    CommitRefused {
        /// The number of pages.
        pages: u64,
    },
    /// The caller may not access user memory at this address.
    #[error("{va} is not accessible")]
    Inaccessible {
        /// The address.
        va: VirtAddr,
    },
    /// The page has the maximum number of references or pins.
    #[error("the page at {va} has the maximum number of references")]
    TooManyHolders {
        /// The address of the page.
        va: VirtAddr,
    },
    /// The call has more segments of memory than `UIO_MAXIOV`.
    #[error("{segments} segments exceed the maximum of one call")]
    TooManySegments {
        /// The number of segments.
        segments: usize,
    },
    /// The word is not aligned.
    #[error("the word at {at} is not aligned")]
    MisalignedWord {
        /// Its address.
        at: VirtAddr,
    },
    /// The advice is unknown, or not allowed about the memory of another process.
    #[error("advice {advice} is unknown or not allowed")]
    BadAdvice {
        /// The number of the advice.
        advice: u32,
    },
    /// The advice does not apply to the mapping.
    #[error("advice {advice:?} does not apply to the mapping at {at}")]
    AdviceNotApplicable {
        /// The address.
        at: VirtAddr,
        /// The advice.
        advice: Advice,
    },
    /// Setting advised flags failed, because the mapping could not be split.
    #[error("the mapping at {at} cannot be split")]
    CannotSplit {
        /// The address.
        at: VirtAddr,
    },
    /// The file cannot be written through the mapping, not even after `mprotect`.
    #[error("the file at {at} cannot be written through its mapping")]
    FileNotWritable {
        /// The address.
        at: VirtAddr,
    },
    /// The memory is locked (`MS_INVALIDATE`).
    #[error("the memory at {at} is locked")]
    MemoryLocked {
        /// The address.
        at: VirtAddr,
    },
    /// A seal of the file forbids the operation.
    #[error("seals of the file forbid it: {seals:?}")]
    FileSealed {
        /// The seals that forbid it.
        seals: Seals,
    },
    /// The file cannot have seals.
    #[error("the file cannot have seals")]
    NoSeals,
    /// The file cannot be sealed against writing, because writable mappings of it exist.
    #[error("the file has {mappings} writable mappings")]
    WritablyMapped {
        /// The number of such mappings.
        mappings: u64,
    },
    /// The file cannot be sealed against writing, because a page has other references.
    #[error("page {index} of the file has other references")]
    PageHeld {
        /// Page of the file.
        index: u64,
    },
    /// The soft limit exceeds the hard limit.
    #[error("the soft limit {soft} exceeds the hard limit {hard}")]
    BadLimit {
        /// The soft limit in bytes.
        soft: u64,
        /// The hard limit in bytes.
        hard: u64,
    },
    /// The program may not raise its hard limit.
    #[error("{resource} may not be raised above {hard} bytes")]
    RaiseNotPermitted {
        /// The limited resource.
        resource: Resource,
        /// The present hard limit in bytes.
        hard: u64,
    },
    /// The files of a tmpfs would pass its size.
    #[error("the tmpfs would exceed {limit} pages")]
    TmpfsFull {
        /// The size in pages.
        limit: u64,
    },
    /// The file would exceed the maximum size of a file.
    #[error("{bytes:#x} bytes exceed the maximum size of a file")]
    FileTooLarge {
        /// The new size in bytes.
        bytes: u64,
    },
    /// The offset and the length are not a range of a file.
    #[error("{len:#x} bytes at {offset:#x} are not a range of a file")]
    BadFileRange {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        len: u64,
    },
    /// The name is too long.
    #[error("a name of {len} bytes is too long")]
    NameTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The file does not support the flags.
    #[error("the file does not support flags {flags:#x}")]
    NotSupported {
        /// The flags.
        flags: u32,
    },
    /// The flags need a feature that the memory manager does not have.
    #[error("flags {flags:#x} need a feature that is not built in")]
    NotConfigured {
        /// The flags.
        flags: u32,
    },
    /// The device of a file failed.
    #[error("the device failed on page {index} of the file: {errno}")]
    Device {
        /// Page of the file.
        index: u64,
        /// The error of the device.
        errno: Errno,
    },
    /// The machine has the maximum number of swap devices.
    #[error("there are {} swap devices, the maximum", SwapEntry::DEVICES)]
    TooManySwapDevices,
    /// The device is in use as a swap device already.
    #[error("the device is swap device {device} already")]
    SwapDeviceInUse {
        /// The number of the swap device.
        device: u8,
    },
    /// No swap device has this number.
    #[error("{device} is not the number of a swap device")]
    NoSuchSwapDevice {
        /// The number.
        device: u8,
    },
    /// The address space has ended.
    #[error("the address space has ended")]
    SpaceEnded,
    /// No frame could be allocated.
    #[error(transparent)]
    NoFrames(#[from] NoFrames),
    /// Shared page tables were asked for before.
    #[error("the program or its parent has asked for shared page tables before")]
    AlreadySet,
    /// No kernel memory could be allocated.
    #[error("no kernel memory: {wanted} bytes or items were requested")]
    NoKernelMemory {
        /// Bytes or items requested.
        wanted: usize,
    },
}

impl MmError {
    /// Returns the errno that Linux returns in this case.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Range(RangeError::Misaligned(_))
            | Self::EmptyRange { .. }
            | Self::OutOfBounds { .. }
            | Self::TooManySegments { .. }
            | Self::MisalignedWord { .. }
            | Self::BadFlags { .. }
            | Self::BadPolicyNodes { .. }
            | Self::MisalignedOffset { .. }
            | Self::Overlaps { .. }
            | Self::PrivateNotDuplicable { .. }
            | Self::BadAdvice { .. }
            | Self::AdviceNotApplicable { .. }
            | Self::NoSeals
            | Self::AlreadySet
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
            | Self::NotExecutable { .. }
            | Self::MoveAllNotPermitted
            | Self::RaiseNotPermitted { .. } => Errno::EPERM,
            Self::Misplaced { .. } => Errno::EIO,
            Self::MapOverLockLimit { .. } | Self::NoMemoryToLock { .. } | Self::CannotSplit { .. } => Errno::EAGAIN,
            Self::OffsetOverflow { .. } => Errno::EOVERFLOW,
            Self::AlreadyMapped { .. } => Errno::EEXIST,
            Self::Forbidden { .. } | Self::FileNotWritable { .. } => Errno::EACCES,
            Self::SpaceEnded => Errno::ESRCH,
            Self::Range(RangeError::Overflow { .. })
            | Self::BeyondUser { .. }
            | Self::TooLong { .. }
            | Self::NoUnmappedArea { .. }
            | Self::NoHugePages { .. }
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

/// Returns the pages of `len` bytes at `addr`, rounded up.
///
/// # Errors
/// [`MmError::OutOfBounds`] (`EINVAL`) if they pass the end of the address space, or
/// [`MmError::Range`] if `addr` is misaligned.
pub(crate) fn bounded(addr: VirtAddr, len: u64) -> Result<PageRange, MmError> {
    PageRange::from_len(addr, len).map_err(|error| match error {
        RangeError::Overflow { .. } => MmError::OutOfBounds { addr, len },
        RangeError::Misaligned(_) => error.into(),
    })
}

/// A copy for which the caller can provide nothing more.
impl From<CopyStop> for MmError {
    fn from(stop: CopyStop) -> Self {
        let (CopyStop::NoFrame(va) | CopyStop::TooManyRefs(va) | CopyStop::PinnedHugeLeaf(va)) = stop;
        Self::TooManyHolders { va }
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
