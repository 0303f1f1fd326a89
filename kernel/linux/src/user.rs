//! What each user holds of the kernel's memory beyond descriptors (`struct user_struct`).
//!
//! **INV-KERNEL-PINNED** Kernel memory that a program pins through sockets and `epoll` is bounded:
//! a message by its sender's buffer, descriptors in messages and watched files by limits of their
//! user, nested instances by their depth; sockets that only each other's messages hold go away.

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::memory::mm;
use alloc::collections::BTreeMap;
use linux_raw_sys::general as linux;
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The counts of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UserCounts {
    /// The descriptors in messages that were not received (`unix_inflight`).
    in_flight: u64,
    /// The files that `epoll` instances watch (`epoll_watches`).
    watches: u64,
}

static USERS: Mutex<BTreeMap<u32, UserCounts>> = Mutex::new(BTreeMap::new());

/// What is taken of memory for each watched file (`EP_ITEM_COST`).
const WATCH_COST: u64 = 200;

/// Changes the counts of a user.
fn change<T>(user: u32, change: impl FnOnce(&mut UserCounts) -> T) -> T {
    let mut users = USERS.lock();
    let counts = users.entry(user).or_default();
    let result = change(counts);
    if *counts == UserCounts::default() {
        users.remove(&user);
    }
    result
}

/// Checks that a user may send more descriptors (`too_many_unix_fds`).
///
/// # Errors
/// `ETOOMANYREFS` if more than `limit` are in flight, unless the caller is privileged.
pub(crate) fn check_in_flight(caller: &Credentials, limit: u64) -> Result<(), Errno> {
    let privileged = caller.has(linux::CAP_SYS_RESOURCE) || caller.has(linux::CAP_SYS_ADMIN);
    let in_flight = change(caller.user.real, |counts| counts.in_flight);
    // INV-KERNEL-PINNED: descriptors in flight are bounded.
    if in_flight > limit && !privileged { Err(Errno::ETOOMANYREFS) } else { Ok(()) }
}

/// Counts descriptors that a user sends.
pub(crate) fn add_in_flight(user: u32) {
    change(user, |counts| counts.in_flight += 1);
}

/// Counts descriptors that were received, or were closed with their message.
pub(crate) fn remove_in_flight(user: u32) {
    change(user, |counts| counts.in_flight -= 1);
}

/// Counts a file that an `epoll` instance of a user begins to watch.
///
/// # Errors
/// `ENOSPC` if all of them take 4 % of memory, as in Linux (`max_user_watches`).
pub(crate) fn add_watch(user: u32) -> Result<(), Errno> {
    let limit = mm().tlb().frames().managed() * PAGE_SIZE / 25 / WATCH_COST;
    change(user, |counts| {
        // INV-KERNEL-PINNED: watched files are bounded.
        if counts.watches >= limit {
            return Err(Errno::ENOSPC);
        }
        counts.watches += 1;
        Ok(())
    })
}

/// Counts watches that have ended.
pub(crate) fn remove_watches(user: u32, count: u64) {
    change(user, |counts| counts.watches -= count);
}
