//! Descriptors that name a process (`pidfd_open`), and the address spaces of other processes.
//!
//! Not guaranteed: signals by descriptor, `PIDFD_NONBLOCK`.

use super::Arguments;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenTarget};
use crate::memory::{Space, SpaceHandle};
use crate::process::Process;
use crate::task::{SyscallResult, TaskId, Thread, scheduler};
use alloc::sync::Arc;
use core::ops::Deref;
use linux_raw_sys::general as linux;

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

/// `pidfd_open`.
pub(super) fn open(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] != 0 {
        return Err(Errno::EINVAL.into());
    }
    let handle = scheduler().processes.get(&TaskId(a[0] as u32)).map(|process| process.handle.clone());
    let open = OpenFile::new(OpenTarget::Process(handle.ok_or(Errno::ESRCH)?), linux::O_RDWR);
    Ok(thread.add_descriptor(&open, true)?)
}
