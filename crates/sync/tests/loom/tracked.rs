//! A number whose accesses must be ordered; loom checks that.

use loom::cell::UnsafeCell;

/// A plain number, which threads share under a lock.
pub(crate) struct Tracked(UnsafeCell<u32>);

// SAFETY: INV-LOCK-EXCL – the tests access it only under the lock that they test, and loom reports
// a failure of that lock.
unsafe impl Sync for Tracked {}
// SAFETY: INV-LOCK-EXCL – a number belongs to no thread.
unsafe impl Send for Tracked {}

impl Tracked {
    pub(crate) fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> u32 {
        // SAFETY: INV-LOCK-EXCL – loom has checked that no write is concurrent.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn add_one(&self) {
        // SAFETY: INV-LOCK-EXCL – loom has checked that no other access is concurrent.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}
