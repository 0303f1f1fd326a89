//! Process groups and sessions (`kernel/sys.c`).
//!
//! Not guaranteed: terminals, so a session controls none.

use super::Arguments;
use crate::errno::Errno;
use crate::process::Process;
use crate::task::{Scheduler, SyscallResult, TaskId, Thread, scheduler};

/// The process that an argument names; 0 is the caller's.
fn named(thread: &Thread, id: u64) -> TaskId {
    if id as u32 == 0 { thread.process } else { TaskId(id as u32) }
}

fn process(scheduler: &Scheduler, id: TaskId) -> Result<&Process, Errno> {
    scheduler.processes.get(&id).ok_or(Errno::ESRCH)
}

pub(super) fn getpgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    Ok(process(&scheduler(), named(thread, a[0]))?.group.0.into())
}

#[cfg(target_arch = "x86_64")]
pub(super) fn getpgrp(thread: &mut Thread, _: Arguments) -> SyscallResult {
    getpgid(thread, [0; 6])
}

pub(super) fn getsid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    Ok(process(&scheduler(), named(thread, a[0]))?.session.0.into())
}

/// `setsid`: the process leads a new session and a new group, whose number no group has yet.
pub(super) fn setsid(thread: &mut Thread, _: Arguments) -> SyscallResult {
    let (id, mut scheduler) = (thread.process, scheduler());
    let is_taken = |process: &Process| process.group == id || process.session == id;
    if scheduler.processes.values().any(is_taken) {
        return Err(Errno::EPERM.into());
    }
    let process = scheduler.process(id);
    (process.session, process.group) = (id, id);
    Ok(id.0.into())
}

/// `setpgid`, of the caller's process or of a child that has not called `execve`.
pub(super) fn setpgid(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let id = named(thread, a[0]);
    if (a[1] as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let group = if a[1] as u32 == 0 { id } else { TaskId(a[1] as u32) };
    let mut scheduler = scheduler();
    let session = scheduler.process(thread.process).session;
    if scheduler.threads.get(&id).is_some_and(|entry| entry.process != id) {
        return Err(Errno::EINVAL.into());
    }
    let target = process(&scheduler, id)?;
    if id != thread.process {
        if target.parent != thread.process {
            return Err(Errno::ESRCH.into());
        }
        if target.session != session {
            return Err(Errno::EPERM.into());
        }
        if target.has_executed {
            return Err(Errno::EACCES.into());
        }
    }
    let is_joinable = |process: &Process| process.group == group && process.session == session;
    if target.session == id || group != id && !scheduler.processes.values().any(is_joinable) {
        return Err(Errno::EPERM.into());
    }
    scheduler.process(id).group = group;
    Ok(0)
}
