//! `getpriority` and `setpriority`: nice values (`kernel/sys.c`).
//!
//! Not guaranteed: any effect on which thread runs.

use super::Arguments;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::run_queue::Scheduling;
use crate::task::{Scheduler, SyscallResult, TaskId, Thread, ThreadEntry, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;

/// The nice values (`MIN_NICE`, `MAX_NICE`).
const NICE_MIN: i32 = -20;
const NICE_MAX: i32 = 19;

/// The threads that the first two arguments of both calls name.
fn named(scheduler: &mut Scheduler, thread: &Thread, a: Arguments) -> Result<Vec<TaskId>, Errno> {
    let named = a[1] as u32;
    let own_group = scheduler.process(thread.process).group;
    let matches = |id: TaskId, entry: &ThreadEntry| match a[0] as u32 {
        linux::PRIO_PROCESS => id == if named == 0 { thread.id } else { TaskId(named) },
        linux::PRIO_PGRP => {
            let group = scheduler.processes.get(&entry.process).map(|process| process.group);
            group == Some(if named == 0 { own_group } else { TaskId(named) })
        }
        _ => entry.credentials.user.real == if named == 0 { thread.credentials.user.real } else { named },
    };
    if a[0] as u32 > linux::PRIO_USER {
        return Err(Errno::EINVAL);
    }
    let threads = scheduler.threads.iter().filter(|(id, entry)| matches(**id, entry));
    Ok(threads.map(|(id, _)| *id).collect())
}

/// `getpriority`: 20 minus the lowest nice value, so that no result is negative.
pub(super) fn getpriority(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let mut scheduler = scheduler();
    let named = named(&mut scheduler, thread, a)?;
    let nice = named.iter().filter_map(|id| Some(scheduler.threads.get(id)?.scheduling.nice)).min();
    Ok((20 - i64::from(nice.ok_or(Errno::ESRCH)?)) as u64)
}

/// `setpriority`; of several threads it changes those that it may, and reports what it may not.
pub(super) fn setpriority(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let nice = (a[2] as i32).clamp(NICE_MIN, NICE_MAX) as i8;
    let mut scheduler = scheduler();
    let mut result = Err(Errno::ESRCH);
    for id in named(&mut scheduler, thread, a)? {
        match allowed(&scheduler, &thread.credentials, id, nice) {
            Ok(new) => {
                scheduler.set_scheduling(id, new);
                if result == Err(Errno::ESRCH) {
                    result = Ok(0);
                }
            }
            Err(error) => result = Err(error),
        }
    }
    Ok(result?)
}

/// The scheduling of a thread with a new nice value, if the caller may set it (`set_one_prio`).
fn allowed(scheduler: &Scheduler, caller: &Credentials, id: TaskId, nice: i8) -> Result<Scheduling, Errno> {
    let entry = scheduler.threads.get(&id).ok_or(Errno::ESRCH)?;
    let target = &entry.credentials;
    let is_owner = [target.user.real, target.user.effective].contains(&caller.user.effective);
    if !is_owner && !caller.has(linux::CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let limit = scheduler.processes.get(&entry.process).map_or(0, |process| process.limits.nice());
    if nice < entry.scheduling.nice && i64::from(nice) < limit && !caller.has(linux::CAP_SYS_NICE) {
        return Err(Errno::EACCES);
    }
    Ok(Scheduling { nice, ..entry.scheduling })
}
