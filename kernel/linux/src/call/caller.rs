//! A thread as the caller of memory calls ([`CallingProcess`]).
//!
//! A process may act on another one if it could trace it (`ptrace(2)`).

use super::pidfd::{OtherSpace, space_of_handle};
use crate::credentials::{Credentials, ThreadIds, TracingIds};
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::inode::{HeldObject, Inode, InodeKind};
use crate::limits::Rlimit;
use crate::memory::Space;
use crate::task::{TaskId, Thread, scheduler};
use linux_raw_sys::general as linux;
use pagewright_hal::Machine;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_plant::plant;
use pagewright_sync::Arc;
use pagewright_syscall::{CallingProcess, FileUse};
use pagewright_types::{Rights, VirtAddr};

/// The modes of shared memory without and with `MFD_NOEXEC_SEAL`.
const EXECUTABLE: u32 = 0o100_777;
const NOT_EXECUTABLE: u32 = 0o100_666;

impl CallingProcess<Machine> for Thread {
    type Error = Errno;
    type SpaceHandle = OtherSpace;

    fn space(&self) -> &Space {
        &self.space.0
    }

    fn copy_from_user(&self, from: VirtAddr, to: &mut [u8]) -> Result<(), Errno> {
        self.space.read(from, to)
    }

    fn copy_to_user(&self, to: VirtAddr, from: &[u8]) -> Result<(), Errno> {
        self.space.write(to, from)
    }

    fn with_file<T>(
        &self,
        fd: u32,
        purpose: FileUse,
        call: impl FnOnce(&Arc<FileObject<Machine>>, Rights) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let open = self.open_file(fd.into())?;
        let shmem = || open.inode().and_then(|node| node.shmem());
        let object = match purpose {
            FileUse::Map => open.inode().ok_or(Errno::ENODEV)?.object()?,
            FileUse::Seal => shmem().ok_or(Errno::EINVAL)?,
            FileUse::Allocate if !open.can_write() => return Err(Errno::EBADF),
            FileUse::Allocate if open.seekable().is_none() => return Err(Errno::ESPIPE),
            FileUse::Allocate => shmem().ok_or(Errno::EOPNOTSUPP)?,
        };
        let mut opened = if purpose == FileUse::Map { Rights::EXEC } else { Rights::empty() };
        opened.set(Rights::READ, open.can_read());
        opened.set(Rights::WRITE, open.can_write());
        call(&object, opened)
    }

    fn truncate(&self, fd: u32, size: u64) -> Result<(), Errno> {
        let open = self.open_file(fd.into())?;
        let node = open.inode().filter(|_| open.can_write()).ok_or(Errno::EINVAL)?;
        node.resize(size)
    }

    fn open_memfd(&self, object: Arc<FileObject<Machine>>, flags: MemfdFlags) -> Result<u32, Errno> {
        let mode = if flags.contains(MemfdFlags::NOEXEC_SEAL) { NOT_EXECUTABLE } else { EXECUTABLE };
        let node = Inode::new(object.name(), mode, InodeKind::Shmem(HeldObject(object.clone())));
        let open = OpenFile::new(OpenTarget::Inode(node), linux::O_RDWR);
        Ok(self.add_descriptor(&open, flags.contains(MemfdFlags::CLOEXEC))? as u32)
    }

    fn limit(&self, pid: u32, resource: u32, new: Option<Rlimit>) -> Result<Rlimit, Errno> {
        let id = if pid == 0 { self.process } else { TaskId(pid) };
        let mut scheduler = scheduler();
        let process = scheduler.processes.get_mut(&id).ok_or(Errno::ESRCH)?;
        let privileged = self.credentials.has(linux::CAP_SYS_RESOURCE);
        if id != self.process && !privileged && !self.is_same_user(&process.credentials) {
            return Err(Errno::EPERM);
        }
        let old = process.limits.get(resource)?;
        let Some(new) = new else { return Ok(old) };
        process.limits.set(resource, new, privileged)?;
        let (space, limits) = (process.space.upgrade(), process.limits.clone());
        drop(scheduler);
        if let Some(space) = space {
            space.set_limits(&limits);
        }
        Ok(old)
    }

    fn may_move_all(&self) -> bool {
        self.credentials.has(linux::CAP_SYS_NICE)
    }

    fn space_of_pid(&self, pid: u32) -> Result<OtherSpace, Errno> {
        let id = TaskId(pid);
        let handle = scheduler().processes.get(&id).map(|process| process.handle.clone()).ok_or(Errno::ESRCH)?;
        if !may_trace(self, &handle, TracingIds::Real)? {
            return Err(Errno::EPERM);
        }
        space_of_handle(&handle)
    }

    fn space_of_pidfd(&self, fd: u32) -> Result<OtherSpace, Errno> {
        let open = self.open_file(fd.into())?;
        let OpenTarget::Process(handle) = &open.target else { return Err(Errno::EBADF) };
        if !may_trace(self, handle, TracingIds::Files)? {
            return Err(Errno::EACCES);
        }
        self.credentials.need(linux::CAP_SYS_NICE)?;
        space_of_handle(handle)
    }
}

impl Thread {
    /// Whether its real ids are all those of another process (`check_prlimit_permission`).
    fn is_same_user(&self, other: &Credentials) -> bool {
        let Credentials { user, group, .. } = &*self.credentials;
        let all_are = |ids: ThreadIds, id| [ids.real, ids.effective, ids.saved] == [id; 3];
        all_are(other.user, user.real) && all_are(other.group, group.real)
    }
}

/// Whether a thread may look into a process, which may be its own (`ptrace_may_access`).
pub(crate) fn may_trace(thread: &Thread, handle: &alloc::sync::Arc<TaskId>, by: TracingIds) -> Result<bool, Errno> {
    // INV-KERNEL-LOOK.
    plant!(StrangerMayLook => return Ok(true));
    let scheduler = scheduler();
    let target = scheduler.process_of(handle).ok_or(Errno::ESRCH)?;
    let allowed = || thread.credentials.may_trace(&target.credentials, target.is_dumpable, by);
    Ok(**handle == thread.process || allowed())
}
