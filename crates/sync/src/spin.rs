//! A mutual-exclusion lock that waits by asking the backend to pause.

use crate::atomic::{AtomicBool, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A value that one CPU at a time may use.
///
/// `R` is its place in the lock order.
pub struct SpinLock<T, R, B> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
    kind: PhantomData<fn() -> (R, B)>,
}

// SAFETY: INV-LOCK-EXCL – `locked` is true while a guard exists and only its holder reaches the
// value, so the lock may be shared wherever the value may be sent.
unsafe impl<T: Send, R, B> Sync for SpinLock<T, R, B> {}

impl<T, R: Rank, B: Backend> SpinLock<T, R, B> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value), kind: PhantomData }
        }
    }

    /// Waits until the lock is free and takes it.
    ///
    /// # Panics
    /// In debug builds when a lock at or below this rank is held.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        // Compare and exchange rather than swap: an attempt that fails stores nothing, so it takes
        // the line from nobody.
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.locked.load(Ordering::Relaxed) {
                B::pause();
            }
        }
        SpinGuard { lock: self }
    }

    /// The value, without locking: the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Holds a [`SpinLock`]; released on drop.
#[must_use]
pub struct SpinGuard<'a, T, R: Rank, B: Backend> {
    lock: &'a SpinLock<T, R, B>,
}

impl<T, R: Rank, B: Backend> Deref for SpinGuard<'_, T, R, B> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: INV-LOCK-EXCL – this guard exists, so no other one does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> DerefMut for SpinGuard<'_, T, R, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: INV-LOCK-EXCL – this guard exists and is borrowed mutably, so nothing else refers
        // to the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> Drop for SpinGuard<'_, T, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.lock.locked.store(false, Ordering::Release);
        rank::leave::<R, B>();
    }
}
