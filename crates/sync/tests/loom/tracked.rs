//! A number whose every access loom checks for being ordered with the others.

use loom::cell::UnsafeCell;

/// A plain number, shared on the word of whoever locks it.
pub(crate) struct Tracked(UnsafeCell<u32>);

// SAFETY: INV-LOCK-EXCL – the tests reach it only under the lock that they test, and loom reports
// it if that lock fails.
unsafe impl Sync for Tracked {}
// SAFETY: INV-LOCK-EXCL – a number belongs to no thread.
unsafe impl Send for Tracked {}

impl Tracked {
    pub(crate) fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> u32 {
        // SAFETY: INV-LOCK-EXCL – loom hands out the pointer after it has checked that no write is
        // concurrent.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn add_one(&self) {
        // SAFETY: INV-LOCK-EXCL – loom hands out the pointer after it has checked that no other
        // access is concurrent.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}
