//! `futex`: waiting on a word of memory.
//!
//! Not guaranteed: priority inheritance, `FUTEX_WAKE_OP`, robust lists.

use super::address;
use super::table::missing;
use super::time::read_time;
use crate::cpu::timed_out;
use crate::errno::Errno;
use crate::memory::mm;
use crate::task::{CallStop, Resume, SchedulerGuard, SyscallResult, Thread, WaitReason, scheduler};
use linux_raw_sys::general as linux;
use pagewright_hal::user;
use pagewright_mm::user::{FutexAccess, FutexKey, FutexScope};
use pagewright_syscall::FutexRequest;
use pagewright_types::VirtAddr;

const NS: u64 = 1_000_000_000;

/// The name of a word, which all its waiters and wakers share.
fn futex_key(thread: &Thread, at: VirtAddr, scope: FutexScope) -> Result<FutexKey, Errno> {
    Ok(mm().futex_key(&thread.space.0, at, scope, FutexAccess::Read)?)
}

/// Wakes at most `most` waiters of a word.
pub(super) fn wake(thread: &Thread, at: VirtAddr, most: usize) {
    if let Ok(key) = futex_key(thread, at, FutexScope::Shared) {
        scheduler().wake(most, Resume::Return(0), waits_on(key, linux::FUTEX_BITSET_MATCH_ANY));
    }
}

/// Whether a sleeper waits on the word with a bit set that intersects `bitset`.
fn waits_on(key: FutexKey, bitset: u32) -> impl Fn(&Thread, WaitReason) -> bool {
    move |_, wait| matches!(wait, WaitReason::Futex(at, mine) if at == key && mine & bitset != 0)
}

/// Locks the scheduler and loads a word.
///
/// A fault is served while the scheduler is unlocked (`futex_wait_setup`). A recording orders
/// faults and `clone` by one lock, and `clone` locks the scheduler under it.
fn lock_and_load(thread: &Thread, word: VirtAddr) -> Result<(SchedulerGuard, u32), Errno> {
    loop {
        let scheduler = scheduler();
        if let Ok(value) = user::load_u32(word) {
            return Ok((scheduler, value));
        }
        drop(scheduler);
        thread.space.load_u32(word)?;
    }
}

/// Serves the call.
pub(super) fn futex(thread: &mut Thread, request: &FutexRequest) -> SyscallResult {
    let FutexRequest { command, realtime, timeout, value3, .. } = *request;
    let waits = matches!(command, linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET);
    let deadline = match thread.deadline {
        None if waits => deadline(thread, timeout, command == linux::FUTEX_WAIT_BITSET, realtime)?,
        known => known,
    };
    if realtime && command != linux::FUTEX_WAIT_BITSET {
        return Err(Errno::ENOSYS.into());
    }
    let bitset = match command {
        linux::FUTEX_WAIT_BITSET | linux::FUTEX_WAKE_BITSET => value3,
        _ => linux::FUTEX_BITSET_MATCH_ANY,
    };
    if bitset == 0 {
        return Err(Errno::EINVAL.into());
    }
    match command {
        linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET => wait(thread, request, bitset, deadline),
        linux::FUTEX_WAKE | linux::FUTEX_WAKE_BITSET => {
            let key = futex_key(thread, request.word, request.scope)?;
            // As in Linux, a count of 0 or less wakes one.
            let most = request.value.cast_signed().max(1) as usize;
            Ok(scheduler().wake(most, Resume::Return(0), waits_on(key, bitset)) as u64)
        }
        linux::FUTEX_REQUEUE | linux::FUTEX_CMP_REQUEUE => requeue(thread, request),
        _ => missing(thread.call.0),
    }
}

/// `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`.
fn wait(thread: &mut Thread, request: &FutexRequest, bitset: u32, deadline: Option<u64>) -> SyscallResult {
    let key = futex_key(thread, request.word, request.scope)?;
    let (scheduler, current) = lock_and_load(thread, request.word)?;
    if current != request.value {
        return Err(Errno::EAGAIN.into());
    }
    thread.deadline = deadline;
    Err(CallStop::Sleep { scheduler, wait: WaitReason::Futex(key, bitset), deadline, at_deadline: timed_out() })
}

/// `FUTEX_REQUEUE`, `FUTEX_CMP_REQUEUE`.
fn requeue(thread: &Thread, request: &FutexRequest) -> SyscallResult {
    // The timeout's argument is a count here.
    let (wakes, moves) = (request.value.cast_signed(), (request.timeout as u32).cast_signed());
    let (Ok(wakes), Ok(moves)) = (usize::try_from(wakes), usize::try_from(moves)) else {
        return Err(Errno::EINVAL.into());
    };
    let key = futex_key(thread, request.word, request.scope)?;
    let other = futex_key(thread, request.second_word, request.scope)?;
    let mut scheduler = if request.command == linux::FUTEX_CMP_REQUEUE {
        let (scheduler, current) = lock_and_load(thread, request.word)?;
        if current != request.value3 {
            return Err(Errno::EAGAIN.into());
        }
        scheduler
    } else {
        scheduler()
    };
    let woken = scheduler.wake(wakes, Resume::Return(0), waits_on(key, linux::FUTEX_BITSET_MATCH_ANY));
    Ok((woken + scheduler.requeue(key, other, moves)) as u64)
}

/// The deadline of a wait, in ns since boot; `None` without a timeout.
fn deadline(thread: &mut Thread, at: u64, absolute: bool, realtime: bool) -> Result<Option<u64>, Errno> {
    if at == 0 {
        return Ok(None);
    }
    let time = read_time(thread, address(at))?;
    let start = match (absolute, realtime) {
        (true, true) => return Ok(Some(time.saturating_sub(pagewright_hal::time::boot_seconds() * NS))),
        (true, false) => 0,
        (false, _) => pagewright_hal::time::now_ns(),
    };
    Ok(Some(start.saturating_add(time)))
}
