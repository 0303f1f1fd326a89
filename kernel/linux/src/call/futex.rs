//! `futex`: waiting on a word of memory.
//!
//! Not guaranteed: priority inheritance, `FUTEX_WAKE_OP`, robust lists.

use super::address;
use super::table::missing;
use super::time::read_time;
use crate::cpu::timed_out;
use crate::errno::Errno;
use crate::task::{CallStop, FutexWord, Resume, SchedulerGuard, SyscallResult, Thread, WaitReason, scheduler};
use linux_raw_sys::general as linux;
use pagewright_hal::user;
use pagewright_mm::user::FutexScope;
use pagewright_syscall::FutexRequest;
use pagewright_types::{PAGE_SIZE, VirtAddr};

const NS: u64 = 1_000_000_000;

/// The name of a word, which all its waiters and wakers share.
fn futex_word(thread: &Thread, at: VirtAddr, scope: FutexScope) -> Result<FutexWord, Errno> {
    if !at.is_aligned(4) {
        return Err(Errno::EINVAL);
    }
    let space = &thread.space.0;
    if scope == FutexScope::Shared {
        let map = space.map().read();
        let (start, vma) = map.find(at).ok_or(Errno::EFAULT)?;
        if let (true, Some(file)) = (vma.is_shared(), vma.file()) {
            let offset = (vma.pgoff() + at.page_index() - start) * PAGE_SIZE + at.page_offset();
            return Ok(FutexWord::Shared(file.id(), offset));
        }
    }
    Ok(FutexWord::Private(space.id(), at))
}

/// Wakes at most `most` waiters of a word.
pub(super) fn wake(thread: &Thread, at: VirtAddr, most: usize) {
    if let Ok(key) = futex_word(thread, at, FutexScope::Shared) {
        scheduler().wake(most, Resume::Return(0), waits_on(key, linux::FUTEX_BITSET_MATCH_ANY));
    }
}

/// Whether a sleeper waits on the word with a bit set that intersects `bitset`.
fn waits_on(key: FutexWord, bitset: u32) -> impl Fn(&Thread, WaitReason) -> bool {
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
    let FutexRequest { word, scope, command, realtime, value, timeout, second_word, value3 } = *request;
    let bitset = match command {
        linux::FUTEX_WAIT_BITSET | linux::FUTEX_WAKE_BITSET => value3,
        _ => linux::FUTEX_BITSET_MATCH_ANY,
    };
    if bitset == 0 {
        return Err(Errno::EINVAL.into());
    }
    let key = futex_word(thread, word, scope)?;
    match command {
        linux::FUTEX_WAIT | linux::FUTEX_WAIT_BITSET => {
            let absolute = command == linux::FUTEX_WAIT_BITSET;
            let deadline = match thread.deadline {
                Some(deadline) => Some(deadline),
                None => deadline(thread, timeout, absolute, realtime)?,
            };
            let (scheduler, current) = lock_and_load(thread, word)?;
            if current != value {
                return Err(Errno::EAGAIN.into());
            }
            thread.deadline = deadline;
            Err(CallStop::Sleep { scheduler, wait: WaitReason::Futex(key, bitset), deadline, at_deadline: timed_out() })
        }
        linux::FUTEX_WAKE | linux::FUTEX_WAKE_BITSET => {
            // As in Linux, a count of 0 or less wakes one.
            let most = value.cast_signed().max(1) as usize;
            Ok(scheduler().wake(most, Resume::Return(0), waits_on(key, bitset)) as u64)
        }
        linux::FUTEX_REQUEUE | linux::FUTEX_CMP_REQUEUE => {
            let other = futex_word(thread, second_word, scope)?;
            let mut scheduler = if command == linux::FUTEX_CMP_REQUEUE {
                let (scheduler, current) = lock_and_load(thread, word)?;
                if current != value3 {
                    return Err(Errno::EAGAIN.into());
                }
                scheduler
            } else {
                scheduler()
            };
            let woken = scheduler.wake(value as usize, Resume::Return(0), waits_on(key, bitset));
            Ok((woken + scheduler.requeue(key, other, timeout as usize)) as u64)
        }
        _ => missing(thread.call.0),
    }
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
