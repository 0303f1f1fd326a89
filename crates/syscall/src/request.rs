//! What a memory call asks for, with its arguments as types.
//!
//! A pointer is still an address here: what it points to is read when the request is served.

use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyQuery};
use pagewright_mm::space::{BindFlags, SyncFlags};
use pagewright_mm::user::FutexScope;
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, Protection, RemapRequest};
use pagewright_types::VirtAddr;

/// A decoded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedCall {
    /// The memory manager serves all of it ([`MemoryRequest::serve`]).
    Memory(MemoryRequest),
    /// `fork`, `vfork`, `clone`: the memory manager copies the address space.
    Clone(CloneRequest),
    /// `futex`: the memory manager finds the word.
    Futex(FutexRequest),
    /// `swapon`, `swapoff`: the memory manager gets the device that the kernel found.
    Swap(SwapRequest),
}

/// A call that the memory manager serves, named as in the manual pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRequest {
    /// `mmap(2)`.
    Mmap(MmapRequest),
    /// `munmap(2)`.
    Munmap(CallRange),
    /// `mprotect(2)`.
    Mprotect(CallRange, Protection),
    /// `brk(2)`, with the end of the heap that is asked for.
    Brk(VirtAddr),
    /// `mremap(2)`.
    Mremap(RemapRequest),
    /// `madvise(2)`.
    Madvise(CallRange, Advice),
    /// `process_madvise(2)`.
    ProcessMadvise(ProcessMadviseRequest),
    /// `mlock(2)`, `mlock2(2)`.
    Mlock(CallRange, LockFlags),
    /// `munlock(2)`.
    Munlock(CallRange),
    /// `mlockall(2)`.
    Mlockall(LockAllFlags),
    /// `munlockall(2)`.
    Munlockall,
    /// `msync(2)`.
    Msync(CallRange, SyncFlags),
    /// `mincore(2)`, with the address of the vector.
    Mincore(CallRange, VirtAddr),
    /// `mseal(2)`, with its flags.
    Mseal(CallRange, u32),
    /// `mbind(2)`.
    Mbind(MbindRequest),
    /// `set_mempolicy(2)`.
    SetMempolicy {
        /// `MPOL_*`.
        mode: PolicyMode,
        /// `MPOL_F_*` in the mode.
        flags: PolicyFlags,
        /// The nodes.
        nodes: UserNodes,
    },
    /// `get_mempolicy(2)`.
    GetMempolicy(GetMempolicyRequest),
    /// `memfd_create(2)`.
    MemfdCreate {
        /// The name, a string.
        name: VirtAddr,
        /// `MFD_*`.
        flags: MemfdFlags,
    },
    /// `fcntl(2)` with `F_ADD_SEALS`.
    AddSeals {
        /// The file.
        fd: u32,
        /// `F_SEAL_*`.
        seals: Seals,
    },
    /// `fcntl(2)` with `F_GET_SEALS`.
    GetSeals {
        /// The file.
        fd: u32,
    },
    /// `ftruncate(2)`.
    Ftruncate {
        /// The file.
        fd: u32,
        /// Its new size in bytes.
        size: u64,
    },
    /// `fallocate(2)`.
    Fallocate {
        /// The file.
        fd: u32,
        /// `FALLOC_FL_*`.
        mode: FallocateFlags,
        /// Offset in bytes.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `getrlimit(2)`, `setrlimit(2)`, `prlimit64(2)`.
    Prlimit(PrlimitRequest),
    /// `process_vm_readv(2)`, `process_vm_writev(2)`.
    ProcessVm(ProcessVmRequest),
    /// `migrate_pages(2)`.
    MigratePages(MigratePagesRequest),
    /// `move_pages(2)`.
    MovePages(MovePagesRequest),
}

/// A bitmap of nodes in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserNodes {
    /// Its address; 0 for no nodes.
    pub at: VirtAddr,
    /// One more than the bits that it has (`maxnode`).
    pub max: u64,
}

/// `mbind(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MbindRequest {
    /// The range.
    pub range: CallRange,
    /// `MPOL_*`.
    pub mode: PolicyMode,
    /// `MPOL_F_*` in the mode.
    pub mode_flags: PolicyFlags,
    /// The nodes.
    pub nodes: UserNodes,
    /// `MPOL_MF_*`, unknown bits included.
    pub flags: BindFlags,
}

/// `get_mempolicy(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMempolicyRequest {
    /// Where the mode or the node is stored; 0 for nowhere.
    pub value: VirtAddr,
    /// Where the nodes are stored.
    pub nodes: UserNodes,
    /// The address that is asked about.
    pub addr: VirtAddr,
    /// `MPOL_F_*`, unknown bits included.
    pub query: PolicyQuery,
}

/// An address and a length in bytes, as passed: neither is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRange {
    /// The address.
    pub addr: VirtAddr,
    /// Bytes.
    pub len: u64,
}

/// `mmap(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmapRequest {
    /// The address, or a hint.
    pub addr: VirtAddr,
    /// Bytes.
    pub len: u64,
    /// `PROT_*`, unknown bits included.
    pub protection: Protection,
    /// `MAP_*`, unknown bits included.
    pub flags: MapFlags,
    /// The file; ignored with [`MapFlags::ANONYMOUS`].
    pub fd: u32,
    /// Offset in the file in bytes, page-aligned.
    pub offset: u64,
}

/// An array of `struct iovec` in user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIoVecs {
    /// Its address.
    pub at: VirtAddr,
    /// How many elements it has.
    pub count: u64,
}

/// The process that [`ProcessMadviseRequest`] advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisedProcess {
    /// The caller (`PIDFD_SELF_THREAD`, `PIDFD_SELF_THREAD_GROUP`).
    Caller,
    /// The process behind this descriptor.
    Pidfd(u32),
}

/// `process_madvise(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMadviseRequest {
    /// The process.
    pub process: AdvisedProcess,
    /// The ranges.
    pub ranges: UserIoVecs,
    /// `MADV_*`, which Linux checks after the ranges and the process.
    pub advice: u32,
}

/// `getrlimit(2)`, `setrlimit(2)`, `prlimit64(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrlimitRequest {
    /// The process; 0 for the caller.
    pub pid: u32,
    /// `RLIMIT_*`.
    pub resource: u32,
    /// The `struct rlimit64` to set, if any.
    pub new: Option<VirtAddr>,
    /// Where the previous one goes, if anywhere.
    pub old: Option<VirtAddr>,
}

/// The direction in which [`ProcessVmRequest`] copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteCopy {
    /// From the other process (`process_vm_readv`).
    Read,
    /// To the other process (`process_vm_writev`).
    Write,
}

/// `process_vm_readv(2)`, `process_vm_writev(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessVmRequest {
    /// The direction.
    pub copy: RemoteCopy,
    /// The other process.
    pub pid: u32,
    /// Ranges of the caller.
    pub local: UserIoVecs,
    /// Ranges of the other process.
    pub remote: UserIoVecs,
}

/// `migrate_pages(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratePagesRequest {
    /// The process; 0 for the caller.
    pub pid: u32,
    /// The nodes whose pages move.
    pub from: UserNodes,
    /// The nodes to which they move.
    pub to: UserNodes,
}

/// `move_pages(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovePagesRequest {
    /// The process; 0 for the caller.
    pub pid: u32,
    /// How many pages.
    pub count: u64,
    /// The array of their addresses.
    pub pages: VirtAddr,
    /// The array of the nodes to which they move; `None` to ask where they are.
    pub nodes: Option<VirtAddr>,
    /// The array to which the status of each is stored.
    pub status: VirtAddr,
    /// `MPOL_MF_*`.
    pub flags: u32,
}

/// `fork(2)`, `vfork(2)`, `clone(2)`; and `clone3(2)`, whose arguments are in user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneRequest {
    /// `CLONE_*`.
    pub flags: u64,
    /// The signal that the parent gets when the child ends; 0 for none.
    pub exit_signal: u64,
    /// The initial stack pointer; 0 for the parent's.
    pub stack: u64,
    /// Where the parent stores the child's number, with `CLONE_PARENT_SETTID`.
    pub parent_tid: VirtAddr,
    /// Where `CLONE_CHILD_SETTID` stores the child's number and `CLONE_CHILD_CLEARTID` clears it.
    pub child_tid: VirtAddr,
    /// The thread pointer, with `CLONE_SETTLS`.
    pub tls: u64,
    /// Where the parent stores the child's descriptor, with `CLONE_PIDFD`.
    ///
    /// `clone` has no argument of its own for it, and stores it at `parent_tid`.
    pub pidfd: VirtAddr,
}

/// `futex(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexRequest {
    /// The word.
    pub word: VirtAddr,
    /// Whether other processes may wait on it.
    pub scope: FutexScope,
    /// `FUTEX_*`, without its flags.
    pub command: u32,
    /// Whether the timeout is of `CLOCK_REALTIME` (`FUTEX_CLOCK_REALTIME`).
    pub realtime: bool,
    /// The value that the word should have, or how many waiters to wake.
    pub value: u32,
    /// The address of a `struct timespec`, or how many waiters to requeue.
    pub timeout: u64,
    /// The second word of a command that requeues.
    pub second_word: VirtAddr,
    /// The bit set of waiters, or the value that a command compares.
    pub value3: u32,
}

/// `swapon(2)`, `swapoff(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapRequest {
    /// Swaps to the device.
    On {
        /// Its path.
        path: VirtAddr,
        /// Its priority, if the caller chose one.
        priority: Option<i16>,
    },
    /// Stops swapping to the device.
    Off {
        /// Its path.
        path: VirtAddr,
    },
}
