//! System calls of an address space of the lab.
//!
//! [`LabCaller`] stands for the kernel's part of a process: its space, its descriptors and the
//! other processes. It decodes a call's registers by the decoder that a kernel uses.
//!
//! Not guaranteed: permission. Every caller may act on every process.

use pagewright_arch::Isa;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_mm::space::{Resource, Rlimit};
use pagewright_mm::{Mm, MmError, Space};
use pagewright_sim::Sim;
use pagewright_sync::Arc;
use pagewright_syscall::{CallArguments, CallingProcess, DecodedCall, FileUse, LinuxCall};
use pagewright_types::{Errno, Rights, VirtAddr};
use std::cell::RefCell;

type File<I> = Arc<FileObject<Sim<I>>>;

/// An address space of the lab that makes system calls.
///
/// Descriptors are numbered 1, 2, … in the order in which they were added, and so are the other
/// processes. A pidfd has the number of its process. Call the methods inside
/// [`Lab::on`](crate::Lab::on), on a CPU that runs the space.
pub struct LabCaller<'a, I: Isa> {
    mm: &'a Mm<Sim<I>>,
    space: &'a Arc<Space<Sim<I>>>,
    files: RefCell<Vec<(File<I>, Rights)>>,
    processes: Vec<Arc<Space<Sim<I>>>>,
    /// Bytes that replace user memory from this address on.
    buffer: Option<(VirtAddr, RefCell<Vec<u8>>)>,
}

impl<'a, I: Isa> LabCaller<'a, I> {
    /// A caller without descriptors.
    pub fn new(mm: &'a Mm<Sim<I>>, space: &'a Arc<Space<Sim<I>>>) -> Self {
        Self { mm, space, files: RefCell::new(Vec::new()), processes: Vec::new(), buffer: None }
    }

    /// Adds a descriptor of `file`, opened with these rights.
    #[must_use]
    pub fn with_file(self, file: &File<I>, opened: Rights) -> Self {
        self.files.borrow_mut().push((file.clone(), opened));
        self
    }

    /// Adds another process.
    #[must_use]
    pub fn with_process(mut self, space: &Arc<Space<Sim<I>>>) -> Self {
        self.processes.push(space.clone());
        self
    }

    /// Replaces the user memory at `at` by `bytes`.
    ///
    /// A call that copies from or to this range then leaves the memory of the space unchanged.
    #[must_use]
    pub fn with_buffer(mut self, at: VirtAddr, bytes: Vec<u8>) -> Self {
        self.buffer = Some((at, RefCell::new(bytes)));
        self
    }

    /// The bytes that replaced user memory.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer.map(|(_, bytes)| bytes.into_inner()).unwrap_or_default()
    }

    /// The file behind a descriptor, if it is open.
    pub fn open_file(&self, fd: u64) -> Option<File<I>> {
        self.descriptor(fd as u32).ok().map(|(file, _)| file)
    }

    fn descriptor(&self, fd: u32) -> Result<(File<I>, Rights), Errno> {
        let index = (fd as usize).checked_sub(1).ok_or(Errno::EBADF)?;
        self.files.borrow().get(index).cloned().ok_or(Errno::EBADF)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The errno of the call; also `ENOSYS` for calls that need more than the memory manager.
    pub fn call(&self, call: LinuxCall, arguments: CallArguments) -> Result<u64, Errno> {
        match call.decode(I::KIND, arguments)? {
            DecodedCall::Memory(request) => request.serve(self.mm, self),
            DecodedCall::Clone(_) | DecodedCall::Futex(_) | DecodedCall::Swap(_) => Err(Errno::ENOSYS),
        }
    }

    /// Calls `copy` with `len` bytes of the buffer at `at`, if the buffer has all of them.
    fn in_buffer(&self, at: VirtAddr, len: usize, copy: impl FnOnce(&mut [u8])) -> Option<()> {
        let (start, bytes) = self.buffer.as_ref()?;
        let first = usize::try_from(at.raw().checked_sub(start.raw())?).ok()?;
        copy(bytes.borrow_mut().get_mut(first..first.checked_add(len)?)?);
        Some(())
    }
}

fn all_copied(left: usize) -> Result<(), Errno> {
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

impl<I: Isa> CallingProcess<Sim<I>> for LabCaller<'_, I> {
    type Error = Errno;
    type SpaceHandle = Arc<Space<Sim<I>>>;

    fn space(&self) -> &Space<Sim<I>> {
        self.space
    }

    fn copy_from_user(&self, from: VirtAddr, to: &mut [u8]) -> Result<(), Errno> {
        match self.in_buffer(from, to.len(), |bytes| to.copy_from_slice(bytes)) {
            Some(()) => Ok(()),
            None => all_copied(self.mm.copy_from_user(self.space, from, to)),
        }
    }

    fn copy_to_user(&self, to: VirtAddr, from: &[u8]) -> Result<(), Errno> {
        match self.in_buffer(to, from.len(), |bytes| bytes.copy_from_slice(from)) {
            Some(()) => Ok(()),
            None => all_copied(self.mm.copy_to_user(self.space, to, from)),
        }
    }

    fn with_file<T>(
        &self,
        fd: u32,
        purpose: FileUse,
        call: impl FnOnce(&File<I>, Rights) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (file, opened) = self.descriptor(fd)?;
        if purpose == FileUse::Allocate && !opened.contains(Rights::WRITE) {
            return Err(Errno::EBADF);
        }
        call(&file, opened)
    }

    fn truncate(&self, fd: u32, size: u64) -> Result<(), Errno> {
        let (file, opened) = self.descriptor(fd)?;
        if !opened.contains(Rights::WRITE) {
            return Err(Errno::EINVAL);
        }
        self.mm.truncate(&file, size).map_err(MmError::errno)
    }

    fn open_memfd(&self, object: File<I>, _flags: MemfdFlags) -> Result<u32, Errno> {
        let mut files = self.files.borrow_mut();
        files.push((object, Rights::RW));
        Ok(files.len() as u32)
    }

    fn limit(&self, pid: u32, resource: u32, new: Option<Rlimit>) -> Result<Rlimit, Errno> {
        let other = if pid == 0 { None } else { Some(self.space_of_pid(pid)?) };
        let space = other.as_ref().unwrap_or(self.space);
        let resource = Resource::from_raw(resource).ok_or(Errno::EINVAL)?;
        match new {
            Some(new) => self.mm.set_limit(space, resource, new).map_err(MmError::errno),
            None => Ok(space.map().read().limits().limit(resource)),
        }
    }

    fn may_move_all(&self) -> bool {
        true
    }

    fn space_of_pid(&self, pid: u32) -> Result<Self::SpaceHandle, Errno> {
        let index = (pid as usize).checked_sub(1).ok_or(Errno::ESRCH)?;
        self.processes.get(index).cloned().ok_or(Errno::ESRCH)
    }

    fn space_of_pidfd(&self, fd: u32) -> Result<Self::SpaceHandle, Errno> {
        self.space_of_pid(fd).map_err(|_| Errno::EBADF)
    }
}
