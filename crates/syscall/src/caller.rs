//! What the kernel around the memory manager knows of the process that makes a call.

use core::ops::Deref;
use pagewright_mm::Space;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_mm::space::Rlimit;
use pagewright_sync::{Arc, Platform};
use pagewright_types::{Errno, Rights, VirtAddr};

/// What a call does with the file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Maps it.
    ///
    /// A file that cannot be mapped is refused with `ENODEV`.
    Map,
    /// Reads or adds seals.
    ///
    /// A file without seals is refused with `EINVAL`.
    Seal,
    /// Allocates or punches pages (`fallocate`).
    ///
    /// A descriptor that is not open for writing is refused with `EBADF`, a pipe with `ESPIPE`.
    Allocate,
}

/// The process that makes a call.
///
/// A kernel implements this for its processes. Every method may be called while no lock of the
/// memory manager is held.
pub trait CallingProcess<P: Platform> {
    /// The kernel's errors, which include those of memory calls.
    type Error: From<Errno>;
    /// A handle that keeps another process's address space alive.
    type SpaceHandle: Deref<Target = Space<P>>;

    /// Its address space, which this CPU runs.
    fn space(&self) -> &Space<P>;

    /// Copies from its memory, and faults pages in.
    ///
    /// # Errors
    /// `EFAULT`; `to` may hold part of the bytes.
    fn copy_from_user(&self, from: VirtAddr, to: &mut [u8]) -> Result<(), Self::Error>;

    /// Copies to its memory, and faults pages in.
    ///
    /// # Errors
    /// `EFAULT`; the bytes before the fault may have been stored.
    fn copy_to_user(&self, to: VirtAddr, from: &[u8]) -> Result<(), Self::Error>;

    /// Calls `call` with the file behind a descriptor and the rights that it was opened with.
    ///
    /// The file stays open until `call` returns, whatever another thread closes.
    ///
    /// # Errors
    /// `EBADF`, what [`FileUse`] names, and those of `call`.
    fn with_file<T>(
        &self,
        fd: u32,
        purpose: FileUse,
        call: impl FnOnce(&Arc<FileObject<P>>, Rights) -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error>;

    /// Sets the size of the file behind a descriptor (`ftruncate`).
    ///
    /// The file need not be an object of the memory manager.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for a descriptor that is not open for writing, and those of the file.
    fn truncate(&self, fd: u32, size: u64) -> Result<(), Self::Error>;

    /// Opens a descriptor for new shared memory.
    ///
    /// # Errors
    /// `EMFILE`.
    fn open_memfd(&self, object: Arc<FileObject<P>>, flags: MemfdFlags) -> Result<u32, Self::Error>;

    /// Replaces a limit of the process `pid` (0 for the caller), and returns the previous one.
    ///
    /// # Errors
    /// `ESRCH`, `EINVAL`, `EPERM`.
    fn limit(&self, pid: u32, resource: u32, new: Option<Rlimit>) -> Result<Rlimit, Self::Error>;

    /// Whether it may move pages that other processes map (`CAP_SYS_NICE`).
    fn may_move_all(&self) -> bool;

    /// The address space of the process `pid`, which the caller may access.
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`.
    fn space_of_pid(&self, pid: u32) -> Result<Self::SpaceHandle, Self::Error>;

    /// The address space of the process behind a descriptor, which the caller may advise.
    ///
    /// # Errors
    /// `EBADF`, `ESRCH`, `EPERM`.
    fn space_of_pidfd(&self, fd: u32) -> Result<Self::SpaceHandle, Self::Error>;
}
