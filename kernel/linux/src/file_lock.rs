//! Locks on files: POSIX locks and locks of open file descriptions on ranges, and `flock`.
//!
//! - [`FileLocks`] – the locks of an inode.
//! - [`LockOwner`] – a table of descriptors owns its POSIX locks, an open file its others.
//!
//! A call that must wait sleeps with [`WaitReason::FileLock`](crate::task::WaitReason), and is made
//! again after any lock of the inode was released. The scheduler is locked before the locks of an
//! inode.
//!
//! Linux: `fs/locks.c`. Not guaranteed: fairness between waiters, leases.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOwner {
    /// A table of descriptors (`F_SETLK`), which a process has and its threads share.
    Table(u64),
    /// An open file (`F_OFD_SETLK`, `flock`).
    File(u64),
}

/// A number for an owner, which no other one has.
pub(crate) fn new_owner() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A lock on the bytes from `start` to `last`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeLock {
    pub(crate) start: u64,
    pub(crate) last: u64,
    pub(crate) exclusive: bool,
    pub(crate) owner: LockOwner,
    /// The process that made it, as `F_GETLK` reports it.
    pub(crate) pid: u32,
}

/// The last byte of a lock up to the end of the file (`OFFSET_MAX`).
pub(crate) const TO_END: u64 = i64::MAX as u64;

impl RangeLock {
    fn overlaps(&self, start: u64, last: u64) -> bool {
        self.start <= last && start <= self.last
    }

    /// Its parts outside `start..=last`.
    fn outside(self, start: u64, last: u64) -> impl Iterator<Item = Self> {
        let before = (self.start < start).then(|| Self { last: start - 1, ..self });
        let after = (self.last > last).then(|| Self { start: last + 1, ..self });
        before.into_iter().chain(after)
    }
}

/// The locks of an inode.
#[derive(Default)]
pub(crate) struct FileLocks {
    /// In the order of their starts.
    ranges: Vec<RangeLock>,
    /// The open files that hold the whole file by `flock`, and whether exclusively.
    whole: Vec<(u64, bool)>,
}

impl FileLocks {
    /// A lock of another owner that a new one must wait for (`posix_locks_conflict`).
    pub(crate) fn conflict(&self, wanted: &RangeLock) -> Option<RangeLock> {
        let stands_in_the_way = |held: &&RangeLock| {
            held.owner != wanted.owner
                && (held.exclusive || wanted.exclusive)
                && held.overlaps(wanted.start, wanted.last)
        };
        self.ranges.iter().find(stands_in_the_way).copied()
    }

    /// Adds a lock that has no conflict; it replaces those of its owner in its range.
    pub(crate) fn set(&mut self, mut lock: RangeLock) {
        self.unlock(lock.owner, lock.start, lock.last);
        // Adjacent locks of the same kind are one.
        let (before, after) = (lock.start.saturating_sub(1), lock.last.saturating_add(1));
        for held in &self.ranges {
            let joins = held.owner == lock.owner && held.exclusive == lock.exclusive && held.overlaps(before, after);
            if joins {
                (lock.start, lock.last) = (lock.start.min(held.start), lock.last.max(held.last));
            }
        }
        self.ranges.retain(|held| held.owner != lock.owner || !(lock.start <= held.start && held.last <= lock.last));
        let at = self.ranges.partition_point(|held| held.start < lock.start);
        self.ranges.insert(at, lock);
    }

    /// Releases what an owner has locked in a range; returns whether there was something.
    pub(crate) fn unlock(&mut self, owner: LockOwner, start: u64, last: u64) -> bool {
        let is_held = |held: &RangeLock| held.owner == owner && held.overlaps(start, last);
        if !self.ranges.iter().any(is_held) {
            return false;
        }
        let released: Vec<RangeLock> = self.ranges.extract_if(.., |held| is_held(held)).collect();
        self.ranges.extend(released.into_iter().flat_map(|held| held.outside(start, last)));
        self.ranges.sort_unstable_by_key(|held| held.start);
        true
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.whole.is_empty()
    }

    /// Locks the whole file for an open file, unless another one stands in the way (`flock`).
    ///
    /// A lock of the other kind is released first, even if the new one must wait. Returns whether
    /// the file is locked now, and whether a lock was released.
    pub(crate) fn lock_whole(&mut self, file: u64, exclusive: bool) -> (bool, bool) {
        if self.whole.contains(&(file, exclusive)) {
            return (true, false);
        }
        let released = self.unlock_whole(file);
        let free = self.whole.iter().all(|(_, held)| !held && !exclusive);
        if free {
            self.whole.push((file, exclusive));
        }
        (free, released)
    }

    /// Releases the lock of an open file on the whole file; returns whether it had one.
    pub(crate) fn unlock_whole(&mut self, file: u64) -> bool {
        let before = self.whole.len();
        self.whole.retain(|(holder, _)| *holder != file);
        self.whole.len() < before
    }
}
