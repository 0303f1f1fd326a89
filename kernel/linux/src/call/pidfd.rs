//! Descriptors that name a process (`pidfd_open`), and the address spaces of other processes.
//!
//! Not guaranteed: `PIDFD_NONBLOCK`.

use super::Arguments;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::memory::{Space, SpaceHandle, mm};
use crate::process::Process;
use crate::signal::SIGKILL;
use crate::task::{SyscallResult, TaskId, Thread, scheduler};
use alloc::sync::Arc;
use core::ops::Deref;
use linux_raw_sys::general as linux;
use pagewright_hal::Machine;
use pagewright_mm::Advice;
use pagewright_mm::space::{VmFlags, Vma};
use pagewright_types::VirtAddr;

/// The address space of another process, which does not end while this handle exists.
pub(crate) struct OtherSpace(Arc<SpaceHandle>);

impl Deref for OtherSpace {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.0.0
    }
}

/// The address space of the process that a descriptor names.
pub(super) fn space_of_handle(handle: &Arc<TaskId>) -> Result<OtherSpace, Errno> {
    space_of_process(scheduler().process_of(handle))
}

fn space_of_process(process: Option<&Process>) -> Result<OtherSpace, Errno> {
    let space = process.and_then(|process| process.space.upgrade());
    space.map(OtherSpace).ok_or(Errno::ESRCH)
}

/// `process_mrelease`: frees the memory of a process that ends (`__oom_reap_task_mm`).
///
/// What is locked or shared stays until the process has ended.
pub(super) fn process_mrelease(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] as u32 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let open = thread.open_file(a[0])?;
    let OpenTarget::Process(handle) = &open.target else { return Err(Errno::EBADF.into()) };
    let space = space_of_handle(handle)?;
    {
        let scheduler = scheduler();
        let process = scheduler.process_of(handle).ok_or(Errno::ESRCH)?;
        // All that use the space must end (`task_will_free_mem`).
        let uses = |other: &Process| core::ptr::eq(other.space.as_ptr(), process.space.as_ptr());
        let lives = |other: &Process| other.group_exit.is_none() && !other.pending.contains(SIGKILL);
        if scheduler.processes.values().any(|other| uses(other) && lives(other)) {
            return Err(Errno::EINVAL.into());
        }
    }
    let is_freed = |vma: &Vma<Machine>| vma.file().is_none() && !vma.flags().contains(VmFlags::LOCKED);
    let mut next = VirtAddr::ZERO;
    loop {
        let found = {
            let map = space.map().read();
            map.find_or_after(next).map(|(start, vma)| (vma.range(start), is_freed(vma)))
        };
        let Some((range, is_freed)) = found else { return Ok(0) };
        if is_freed {
            // A mapping that the end of the process has removed meanwhile is no error.
            let _ = mm().madvise(&space, range.start(), range.len(), Advice::DontNeed);
        }
        next = range.end();
    }
}

/// `pidfd_open`.
pub(super) fn open(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] != 0 {
        return Err(Errno::EINVAL.into());
    }
    let handle = scheduler().processes.get(&TaskId(a[0] as u32)).map(|process| process.handle.clone());
    let open = OpenFile::new(OpenTarget::Process(handle.ok_or(Errno::ESRCH)?), linux::O_RDWR);
    Ok(thread.add_descriptor(&open, true)?)
}
