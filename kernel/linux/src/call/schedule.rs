//! Calls about scheduling: policies, priorities, sets of CPUs (`kernel/sched/core.c`).
//!
//! Not guaranteed: `SCHED_DEADLINE`, which is refused.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::run_queue::{ROUND_ROBIN_NS, Scheduling};
use crate::task::{CallStop, Scheduler, SyscallResult, TaskId, Thread, ThreadEntry, WaitReason, scheduler};
use linux_raw_sys::general as linux;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_types::CpuMask;

/// The highest priority of a real-time policy (`MAX_RT_PRIO - 1`).
const PRIORITY_MAX: u32 = 99;
/// The bytes of a word of a set of CPUs.
const WORD: u64 = 8;

fn is_real_time(policy: u32) -> bool {
    matches!(policy, linux::SCHED_FIFO | linux::SCHED_RR)
}

fn is_known(policy: u32) -> bool {
    matches!(policy, linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE) || is_real_time(policy)
}

/// The thread that an argument names; 0 is the caller.
fn target(thread: &Thread, id: u64) -> TaskId {
    if id as u32 == 0 { thread.id } else { TaskId(id as u32) }
}

fn entry(scheduler: &Scheduler, id: TaskId) -> Result<&ThreadEntry, Errno> {
    scheduler.threads.get(&id).ok_or(Errno::ESRCH)
}

pub(super) fn sched_yield(_thread: &mut Thread, _: Arguments) -> SyscallResult {
    Err(CallStop::Yield(0))
}

/// `sched_getaffinity`: the CPUs of a thread that are online.
pub(super) fn sched_getaffinity(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (online, len) = (Machine.online(), a[1] as u32);
    if u64::from(len) * 8 < u64::from(online.count()) || !u64::from(len).is_multiple_of(WORD) {
        return Err(Errno::EINVAL.into());
    }
    let cpus = entry(&scheduler(), target(thread, a[0]))?.scheduling.cpus.and(&online);
    thread.space.write_u64(address(a[2]), cpus.words()[0])?;
    Ok(WORD)
}

/// `sched_setaffinity`; the thread has left its CPU when the call returns.
pub(super) fn sched_setaffinity(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let len = (a[1] as u32 as usize).min(CpuMask::WORDS * WORD as usize);
    let given = thread.space.read_vec(address(a[2]), len)?;
    let mut words = [0; CpuMask::WORDS];
    for (index, byte) in given.iter().enumerate() {
        words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
    }
    let (id, cpus) = (target(thread, a[0]), CpuMask::from_words(words).and(&Machine.online()));
    let mut scheduler = scheduler();
    let known = entry(&scheduler, id)?;
    if !thread.credentials.may_schedule(&known.credentials) {
        return Err(Errno::EPERM.into());
    }
    if cpus.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let new = Scheduling { cpus, ..known.scheduling };
    if scheduler.set_scheduling(id, new) {
        return Err(CallStop::Sleep { scheduler, wait: WaitReason::Migration(id), deadline: None, at_deadline: 0 });
    }
    if scheduler.must_leave() { Err(CallStop::Yield(0)) } else { Ok(0) }
}

/// The priority in `struct sched_param`.
fn read_priority(thread: &Thread, at: u64) -> Result<i32, Errno> {
    Ok(i32::from_le_bytes(thread.space.read_array(address(at))?))
}

pub(super) fn sched_setscheduler(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if (a[1] as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    set(thread, a[0], Some(a[1] as u32), a[2])
}

pub(super) fn sched_setparam(thread: &mut Thread, a: Arguments) -> SyscallResult {
    set(thread, a[0], None, a[1])
}

/// Sets the policy, or keeps it, and the priority (`__sched_setscheduler`).
fn set(thread: &Thread, id: u64, policy: Option<u32>, at: u64) -> SyscallResult {
    if at == 0 || (id as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let priority = read_priority(thread, at)?;
    let id = target(thread, id);
    let mut scheduler = scheduler();
    let known = entry(&scheduler, id)?;
    let old = known.scheduling;
    let (policy, resets_on_fork) = match policy {
        None => (old.policy, old.resets_on_fork),
        Some(policy) => (policy & !linux::SCHED_RESET_ON_FORK, policy & linux::SCHED_RESET_ON_FORK != 0),
    };
    let priority = u32::try_from(priority).ok().filter(|priority| *priority <= PRIORITY_MAX);
    let priority = priority.filter(|_| is_known(policy)).ok_or(Errno::EINVAL)?;
    if is_real_time(policy) != (priority != 0) {
        return Err(Errno::EINVAL.into());
    }
    let limits = scheduler.processes.get(&known.process).map(|process| &process.limits);
    let limit = limits.map_or(0, |limits| limits.real_time_priority());
    // `user_check_sched_setscheduler`
    let raises = is_real_time(policy)
        && (policy != old.policy && limit == 0 || priority > old.priority.into() && u64::from(priority) > limit);
    let is_nice_allowed = limits.is_some_and(|limits| i64::from(old.nice) >= limits.nice());
    let leaves_idle = old.policy == linux::SCHED_IDLE && policy != linux::SCHED_IDLE && !is_nice_allowed;
    if raises || leaves_idle || old.resets_on_fork && !resets_on_fork {
        thread.credentials.need(linux::CAP_SYS_NICE)?;
    }
    if !thread.credentials.may_schedule(&known.credentials) {
        return Err(Errno::EPERM.into());
    }
    scheduler.set_scheduling(id, Scheduling { policy, priority: priority as u8, resets_on_fork, ..old });
    // The thread, or another one of a higher priority, may be the next for this CPU.
    if scheduler.must_leave() { Err(CallStop::Yield(0)) } else { Ok(0) }
}

pub(super) fn sched_getscheduler(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if (a[0] as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let Scheduling { policy, resets_on_fork, .. } = entry(&scheduler(), target(thread, a[0]))?.scheduling;
    Ok((policy | if resets_on_fork { linux::SCHED_RESET_ON_FORK } else { 0 }).into())
}

pub(super) fn sched_getparam(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] == 0 || (a[0] as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let priority = entry(&scheduler(), target(thread, a[0]))?.scheduling.priority;
    thread.space.write_u32(address(a[1]), priority.into())?;
    Ok(0)
}

pub(super) fn sched_get_priority_max(_thread: &mut Thread, a: Arguments) -> SyscallResult {
    priority_limit(a[0] as u32, PRIORITY_MAX)
}

pub(super) fn sched_get_priority_min(_thread: &mut Thread, a: Arguments) -> SyscallResult {
    priority_limit(a[0] as u32, 1)
}

fn priority_limit(policy: u32, of_real_time: u32) -> SyscallResult {
    match policy {
        policy if is_real_time(policy) => Ok(of_real_time.into()),
        policy if is_known(policy) || policy == linux::SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// `sched_rr_get_interval`: a slice is one tick, that of `SCHED_RR` longer; `SCHED_FIFO` has none.
pub(super) fn sched_rr_get_interval(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if (a[0] as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let policy = entry(&scheduler(), target(thread, a[0]))?.scheduling.policy;
    let slice = match policy {
        linux::SCHED_FIFO => 0,
        linux::SCHED_RR => ROUND_ROBIN_NS,
        _ => pagewright_hal::time::TICK_NS,
    };
    super::time::write_time(thread, address(a[1]), slice)
}
