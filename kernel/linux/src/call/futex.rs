//! `futex`: waiting on a word of memory.
//!
//! A thread that ends releases the locks on its robust list ([`release_words`]).
//!
//! [`futex_pi`] has the commands of locks with an owner.
//!
//! **INV-KERNEL-ROBUST** A thread that ends or replaces its memory owns no lock of its robust list
//! afterwards.
//!
//! **INV-KERNEL-WORDS** A wait for several words (`futex_waitv`) begins only while each has the
//! value that is expected, and one wake-up ends it, with the index of its word.
//!
//! Not guaranteed: `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_CMP_REQUEUE_PI`.

use super::caller::may_trace;
use super::table::missing;
use super::time::read_time;
use super::{Arguments, address, futex_pi};
use crate::cpu::timed_out;
use crate::credentials::TracingIds;
use crate::errno::Errno;
use crate::memory::mm;
use crate::task::{CallStop, SchedulerGuard, SyscallResult, TaskId, Thread, ThreadEntry, WaitReason, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_hal::user;
use pagewright_mm::user::{FutexAccess, FutexKey, FutexScope};
use pagewright_plant::plant;
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
        scheduler().wake_futex(key, linux::FUTEX_BITSET_MATCH_ANY, most);
    }
}

/// Locks the scheduler and loads a word.
///
/// A fault is served while the scheduler is unlocked (`futex_wait_setup`). A recording orders
/// faults and `clone` by one lock, and `clone` locks the scheduler under it.
pub(super) fn lock_and_load(thread: &Thread, word: VirtAddr) -> Result<(SchedulerGuard, u32), Errno> {
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
    // Whether the timeout is a moment, and of `CLOCK_REALTIME`.
    let clock = match command {
        linux::FUTEX_WAIT => Some((false, realtime)),
        linux::FUTEX_WAIT_BITSET | linux::FUTEX_LOCK_PI2 => Some((true, realtime)),
        linux::FUTEX_LOCK_PI => Some((true, true)),
        _ => None,
    };
    let deadline = match (thread.deadline, clock) {
        (None, Some((absolute, realtime))) => deadline(thread, timeout, absolute, realtime)?,
        (known, _) => known,
    };
    if realtime && !matches!(command, linux::FUTEX_WAIT_BITSET | linux::FUTEX_LOCK_PI2) {
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
            Ok(scheduler().wake_futex(key, bitset, most) as u64)
        }
        linux::FUTEX_REQUEUE | linux::FUTEX_CMP_REQUEUE => requeue(thread, request),
        linux::FUTEX_WAKE_OP => wake_op(thread, request),
        linux::FUTEX_LOCK_PI | linux::FUTEX_LOCK_PI2 | linux::FUTEX_TRYLOCK_PI => {
            futex_pi::lock(thread, request, deadline)
        }
        linux::FUTEX_UNLOCK_PI => futex_pi::unlock(thread, request),
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
    let woken = scheduler.wake_futex(key, linux::FUTEX_BITSET_MATCH_ANY, wakes);
    Ok((woken + scheduler.requeue(key, other, moves)) as u64)
}

/// `FUTEX_WAKE_OP`: changes the second word and wakes waiters of the first (`futex_wake_op`).
///
/// Those of the second are woken too if its old value compares.
fn wake_op(thread: &Thread, request: &FutexRequest) -> SyscallResult {
    let operation = request.value3;
    // The timeout's argument is a count here.
    let counts = [request.value.cast_signed(), (request.timeout as u32).cast_signed()];
    let [first, second] = counts.map(|count| count.max(1) as usize);
    let key = futex_key(thread, request.word, request.scope)?;
    let other = mm().futex_key(&thread.space.0, request.second_word, request.scope, FutexAccess::Write)?;
    // The argument and the value to compare with are signed, of 12 bits.
    let signed = |shift: u32| ((operation << (20 - shift)).cast_signed() >> 20).cast_unsigned();
    let argument = if operation >> 31 != 0 { 1_u32 << (signed(12) & 31) } else { signed(12) };
    let change: fn(u32, u32) -> u32 = match operation >> 28 & 0x7 {
        linux::FUTEX_OP_SET => |_, argument| argument,
        linux::FUTEX_OP_ADD => u32::wrapping_add,
        linux::FUTEX_OP_OR => |old, argument| old | argument,
        linux::FUTEX_OP_ANDN => |old, argument| old & !argument,
        linux::FUTEX_OP_XOR => |old, argument| old ^ argument,
        _ => return Err(Errno::ENOSYS.into()),
    };
    let old = loop {
        let old = thread.space.load_u32(request.second_word)?;
        if thread.space.compare_exchange_u32(request.second_word, old, change(old, argument))? == old {
            break old;
        }
    };
    let (old, compared) = (old.cast_signed(), signed(0).cast_signed());
    let holds = match operation >> 24 & 0xf {
        linux::FUTEX_OP_CMP_EQ => old == compared,
        linux::FUTEX_OP_CMP_NE => old != compared,
        linux::FUTEX_OP_CMP_LT => old < compared,
        linux::FUTEX_OP_CMP_LE => old <= compared,
        linux::FUTEX_OP_CMP_GT => old > compared,
        linux::FUTEX_OP_CMP_GE => old >= compared,
        _ => return Err(Errno::ENOSYS.into()),
    };
    let mut scheduler = scheduler();
    let any = linux::FUTEX_BITSET_MATCH_ANY;
    let mut woken = scheduler.wake_futex(key, any, first);
    if holds {
        woken += scheduler.wake_futex(other, any, second);
    }
    Ok(woken as u64)
}

/// The size of `struct futex_waitv`, and the most of them (`FUTEX_WAITV_MAX`).
const WAITER: usize = 24;
const WAITERS_MAX: u64 = 128;

/// `futex_waitv`: waits until one of several words is woken, and returns its index.
pub(super) fn futex_waitv(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (at, count, flags, timeout, clock) = (a[0], u64::from(a[1] as u32), a[2] as u32, a[3], a[4] as u32);
    if flags != 0 || !(1..=WAITERS_MAX).contains(&count) || at == 0 {
        return Err(Errno::EINVAL.into());
    }
    let deadline = match timeout {
        0 => None,
        _ if !matches!(clock, linux::CLOCK_REALTIME | linux::CLOCK_MONOTONIC) => return Err(Errno::EINVAL.into()),
        at => deadline(thread, at, true, clock == linux::CLOCK_REALTIME)?,
    };
    let bytes = thread.space.read_vec(address(at), count as usize * WAITER)?;
    let mut waiters = Vec::new();
    waiters.try_reserve_exact(count as usize)?;
    for entry in bytes.chunks_exact(WAITER) {
        let word = |at: usize| entry[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        // The upper half of the last word is reserved.
        if word(16) & !u64::from(linux::FUTEX_32 | linux::FUTEX_PRIVATE_FLAG) != 0
            || word(16) as u32 & linux::FUTEX_32 == 0
        {
            return Err(Errno::EINVAL.into());
        }
        let is_private = word(16) as u32 & linux::FUTEX_PRIVATE_FLAG != 0;
        waiters.push((word(0), address(word(8)), if is_private { FutexScope::Private } else { FutexScope::Shared }));
    }
    thread.words.clear();
    thread.words.try_reserve_exact(waiters.len())?;
    for (_, word, scope) in &waiters {
        let key = futex_key(thread, *word, *scope)?;
        thread.words.push(key);
    }
    // A fault is served while the scheduler is unlocked, and then all words are looked at again.
    let scheduler = 'again: loop {
        let scheduler = scheduler();
        for (wanted, word, _) in &waiters {
            match user::load_u32(*word) {
                Ok(value) if u64::from(value) == *wanted => {}
                Ok(_) => return Err(Errno::EAGAIN.into()),
                Err(_) => {
                    drop(scheduler);
                    thread.space.load_u32(*word)?;
                    continue 'again;
                }
            }
        }
        break scheduler;
    };
    thread.deadline = deadline;
    Err(CallStop::Sleep { scheduler, wait: WaitReason::FutexAny, deadline, at_deadline: timed_out() })
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

/// The size of `struct robust_list_head`.
const ROBUST_HEAD: u64 = 24;
/// The longest robust list that is walked (`ROBUST_LIST_LIMIT`).
const ROBUST_MAX: usize = 2048;

/// `set_robust_list`.
pub(super) fn set_robust_list(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[1] != ROBUST_HEAD {
        return Err(Errno::EINVAL.into());
    }
    if let Some(entry) = scheduler().threads.get_mut(&thread.id) {
        entry.robust_list = address(a[0]);
    }
    Ok(0)
}

/// `get_robust_list`.
pub(super) fn get_robust_list(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let id = if a[0] as u32 == 0 { thread.id } else { TaskId(a[0] as u32) };
    let (list, process) = {
        let scheduler = scheduler();
        let entry = scheduler.threads.get(&id).ok_or(Errno::ESRCH)?;
        let process = scheduler.processes.get(&entry.process).ok_or(Errno::ESRCH)?;
        (entry.robust_list, process.handle.clone())
    };
    if !may_trace(thread, &process, TracingIds::Real)? {
        return Err(Errno::EPERM.into());
    }
    thread.space.write_u64(address(a[2]), ROBUST_HEAD)?;
    thread.space.write_u64(address(a[1]), list.raw())?;
    Ok(0)
}

/// Whether a thread that leaves its memory must store or wake there.
pub(super) fn owes_words(thread: &Thread) -> bool {
    let has_list = |entry: &ThreadEntry| entry.robust_list > VirtAddr::ZERO;
    thread.clear_child_tid > VirtAddr::ZERO || scheduler().threads.get(&thread.id).is_some_and(has_list)
}

/// Does what a thread owes to the users of its memory when it leaves it (`mm_release`).
///
/// Releases the locks on its robust list, and clears the word with its number. The CPU runs its
/// address space.
pub(super) fn release_words(thread: &mut Thread) {
    let list = scheduler().threads.get_mut(&thread.id).map(|entry| core::mem::take(&mut entry.robust_list));
    if let Some(head) = list.filter(|head| *head > VirtAddr::ZERO) {
        // INV-KERNEL-ROBUST. As in Linux, a bad address ends the walk.
        let _ = plant!(RobustListForgotten; Ok(()), release_robust_list(thread, head));
    }
    let word = core::mem::take(&mut thread.clear_child_tid);
    if word > VirtAddr::ZERO && thread.space.write_u32(word, 0).is_ok() {
        wake(thread, word, 1);
    }
}

/// Walks a robust list (`exit_robust_list`).
///
/// The lowest bit of a pointer marks a lock with priority inheritance.
fn release_robust_list(thread: &Thread, head: VirtAddr) -> Result<(), Errno> {
    let field = |at: u64| thread.space.read_u64(head.checked_add(at).ok_or(Errno::EFAULT)?);
    let (first, offset, pending) = (field(0)?, field(8)?, field(16)?);
    let word = |entry: u64| address((entry & !1).wrapping_add(offset));
    let mut entry = first;
    for _ in 0..ROBUST_MAX {
        if entry & !1 == head.raw() {
            break;
        }
        let next = thread.space.read_u64(address(entry & !1));
        if entry & !1 != pending & !1 {
            release_robust_word(thread, word(entry), entry & 1 != 0, false)?;
        }
        entry = next?;
    }
    if pending & !1 != 0 {
        release_robust_word(thread, word(pending), pending & 1 != 0, true)?;
    }
    Ok(())
}

/// Marks a lock whose owner ends, and wakes a waiter (`handle_futex_death`).
fn release_robust_word(thread: &Thread, word: VirtAddr, inherits: bool, pending: bool) -> Result<(), Errno> {
    if !word.is_aligned(4) {
        return Err(Errno::EINVAL);
    }
    loop {
        let value = thread.space.load_u32(word)?;
        // The lock was released, and the thread ended before it woke a waiter.
        if pending && !inherits && value == 0 {
            wake(thread, word, 1);
            return Ok(());
        }
        if value & linux::FUTEX_TID_MASK != thread.id.0 {
            return Ok(());
        }
        let died = value & linux::FUTEX_WAITERS | linux::FUTEX_OWNER_DIED;
        if thread.space.compare_exchange_u32(word, value, died)? == value {
            if !inherits && value & linux::FUTEX_WAITERS != 0 {
                wake(thread, word, 1);
            }
            return Ok(());
        }
    }
}
