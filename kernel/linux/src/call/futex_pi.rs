//! Locks whose word has the number of the owner (`FUTEX_LOCK_PI`, `kernel/futex/pi.c`).
//!
//! A lock without waiters changes hands in user mode. A waiter sets `FUTEX_WAITERS`, so the owner
//! releases the lock by a call, which hands it to the thread that has waited longest
//! ([`Scheduler::wake_next_owner`]). If the owner ends, that thread gets the lock with
//! `FUTEX_OWNER_DIED` when it looks at the word again: only it has the word's memory.
//!
//! Not guaranteed: priority inheritance, and the order of priorities among waiters;
//! `FUTEX_CMP_REQUEUE_PI`.

use super::futex::lock_and_load;
use crate::cpu::timed_out;
use crate::errno::Errno;
use crate::memory::mm;
use crate::task::{CallStop, Resume, Scheduler, SyscallResult, TaskId, Thread, WaitReason};
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as linux;
use pagewright_hal::user;
use pagewright_mm::user::{FutexAccess, FutexKey};
use pagewright_syscall::FutexRequest;
use pagewright_types::VirtAddr;

/// A wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PiWait {
    key: FutexKey,
    owner: TaskId,
    /// The position among all waits.
    order: u64,
}

/// The longest chain of locks and their owners that is looked at (`max_lock_depth`).
const MAX_LOCK_DEPTH: u32 = 1024;
/// The number of waits so far.
static WAITS: AtomicU64 = AtomicU64::new(0);

fn key_of(thread: &Thread, request: &FutexRequest) -> Result<FutexKey, Errno> {
    Ok(mm().futex_key(&thread.space.0, request.word, request.scope, FutexAccess::Write)?)
}

/// Replaces the word if it still holds `old`; the scheduler is locked.
///
/// Returns `false` if the value changed, or if the word must be faulted in first.
fn replace(word: VirtAddr, old: u32, new: u32) -> bool {
    user::compare_exchange_u32(word, old, new) == Ok(old)
}

/// Faults a word in for a store, which changes nothing.
fn fault_in(thread: &Thread, word: VirtAddr) -> Result<(), Errno> {
    let value = thread.space.load_u32(word)?;
    thread.space.compare_exchange_u32(word, value, value).map(|_| ())
}

/// `FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`, `FUTEX_TRYLOCK_PI` (`futex_lock_pi_atomic`).
pub(super) fn lock(thread: &mut Thread, request: &FutexRequest, deadline: Option<u64>) -> SyscallResult {
    let (word, me) = (request.word, thread.id);
    let key = key_of(thread, request)?;
    loop {
        let (mut scheduler, value) = lock_and_load(thread, word)?;
        let stored = TaskId(value & linux::FUTEX_TID_MASK);
        if stored == me {
            return Err(Errno::EDEADLK.into());
        }
        let known = scheduler.owner_of_pi_lock(key);
        let (is_heir, owner) = (known == Some(me), known.unwrap_or(stored));
        if owner == TaskId(0) || is_heir {
            let died = if is_heir { linux::FUTEX_OWNER_DIED } else { value & linux::FUTEX_OWNER_DIED };
            let waiters = if scheduler.has_pi_waiter(key) { linux::FUTEX_WAITERS } else { 0 };
            if replace(word, value, me.0 | died | waiters) {
                if let Some(entry) = scheduler.threads.get_mut(&me) {
                    entry.inherited_lock = None;
                }
                return Ok(0);
            }
        } else if !scheduler.threads.contains_key(&owner) {
            return Err(Errno::ESRCH.into());
        } else if scheduler.waits_for_lock_of(owner, me) {
            return Err(Errno::EDEADLK.into());
        } else if replace(word, value, value | linux::FUTEX_WAITERS) {
            if request.command == linux::FUTEX_TRYLOCK_PI {
                return Err(Errno::EAGAIN.into());
            }
            thread.deadline = deadline;
            let order = WAITS.fetch_add(1, Ordering::Relaxed);
            let wait = WaitReason::FutexPi(PiWait { key, owner, order });
            return Err(CallStop::Sleep { scheduler, wait, deadline, at_deadline: timed_out() });
        }
        drop(scheduler);
        fault_in(thread, word)?;
    }
}

/// `FUTEX_UNLOCK_PI` (`futex_unlock_pi`).
pub(super) fn unlock(thread: &Thread, request: &FutexRequest) -> SyscallResult {
    let (word, me) = (request.word, thread.id);
    let key = key_of(thread, request)?;
    loop {
        let (mut scheduler, value) = lock_and_load(thread, word)?;
        if value & linux::FUTEX_TID_MASK != me.0 {
            return Err(Errno::EPERM.into());
        }
        let next = scheduler.longest_waiter(|wait| wait.key == key);
        let new = next.map_or(0, |(next, _)| next.0 | linux::FUTEX_WAITERS);
        if replace(word, value, new) {
            if let Some((next, _)) = next {
                scheduler.wake_next_owner(key, next, Resume::Return(0));
            }
            return Ok(0);
        }
        drop(scheduler);
        fault_in(thread, word)?;
    }
}

impl Scheduler {
    /// The thread that waits longest for one of the locks that `which` picks.
    fn longest_waiter(&self, which: impl Fn(PiWait) -> bool) -> Option<(TaskId, PiWait)> {
        let waits = self.asleep.iter().filter_map(|(id, sleeper)| match sleeper.wait {
            WaitReason::FutexPi(wait) if which(wait) => Some((*id, wait)),
            _ => None,
        });
        waits.min_by_key(|(_, wait)| wait.order)
    }

    /// The heir of a lock that has not stored its number yet, or the thread that waiters wait for.
    ///
    /// Until the heir has stored it, the word says that the lock is free.
    fn owner_of_pi_lock(&self, key: FutexKey) -> Option<TaskId> {
        let heir = self.threads.iter().find(|(_, entry)| entry.inherited_lock == Some(key)).map(|(id, _)| *id);
        heir.or_else(|| self.longest_waiter(|wait| wait.key == key).map(|(_, wait)| wait.owner))
    }

    /// Whether a thread waits for a lock of another one, directly or through the owners in between.
    fn waits_for_lock_of(&self, mut waiter: TaskId, owner: TaskId) -> bool {
        for _ in 0..MAX_LOCK_DEPTH {
            let wait = self.asleep.get(&waiter).map(|sleeper| sleeper.wait);
            let Some(WaitReason::FutexPi(wait)) = wait else { return false };
            if wait.owner == owner {
                return true;
            }
            waiter = wait.owner;
        }
        false
    }

    fn has_pi_waiter(&self, key: FutexKey) -> bool {
        self.longest_waiter(|wait| wait.key == key).is_some()
    }

    /// Wakes the next owner of a lock, for which all other waiters wait then.
    fn wake_next_owner(&mut self, key: FutexKey, next: TaskId, resume: Resume) {
        for sleeper in self.asleep.values_mut() {
            if let WaitReason::FutexPi(wait) = &mut sleeper.wait
                && wait.key == key
            {
                wait.owner = next;
            }
        }
        self.wake_one(next, resume);
    }

    /// Hands on the locks of a thread that ends or leaves its memory (`exit_pi_state_list`).
    pub(crate) fn hand_on_pi_locks(&mut self, of: TaskId) {
        while let Some((heir, wait)) = self.longest_waiter(|wait| wait.owner == of) {
            if let Some(entry) = self.threads.get_mut(&heir) {
                entry.inherited_lock = Some(wait.key);
            }
            self.wake_next_owner(wait.key, heir, Resume::Again);
        }
    }
}
