//! A mutual-exclusion lock that spins, with [`Backend::pause`] between attempts.

use crate::atomic::{AtomicBool, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::on_this_cpu::OnThisCpu;
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A value that one CPU at a time can access.
///
/// `R` is its rank in the lock order.
pub struct SpinLock<T, R, B> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
    kind: PhantomData<fn() -> (R, B)>,
}

// SAFETY: INV-LOCK-EXCL – `locked` is true while a guard exists, and only the guard's holder
// accesses the value. So sharing the lock needs no more than `T: Send`.
unsafe impl<T: Send, R, B> Sync for SpinLock<T, R, B> {}

impl<T, R: Rank, B: Backend> SpinLock<T, R, B> {
    const_unless_loom! {
        /// An unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value), kind: PhantomData }
        }
    }

    /// Waits until the lock is free, and acquires it.
    ///
    /// # Panics
    /// In debug builds, if a lock inside this rank is held, or one of this rank that does not nest.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        // Compare-and-exchange and not swap: an attempt that fails does not store, so the cache
        // line stays with the holder.
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.locked.load(Ordering::Relaxed) {
                B::pause();
            }
        }
        SpinGuard { lock: self, here: PhantomData }
    }

    /// The value, without locking, because the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Holds a [`SpinLock`]; drop releases it.
///
/// Neither `Send` nor `Sync` (INV-LOCK-CPU): a guard that is `Sync` would share `&T` between CPUs,
/// although the lock requires only `T: Send`.
#[must_use]
pub struct SpinGuard<'a, T, R: Rank, B: Backend> {
    lock: &'a SpinLock<T, R, B>,
    here: OnThisCpu,
}

impl<T, R: Rank, B: Backend> Deref for SpinGuard<'_, T, R, B> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: INV-LOCK-EXCL – this guard exists, so no other guard does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> DerefMut for SpinGuard<'_, T, R, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: INV-LOCK-EXCL – this guard exists and is borrowed mutably, so no other reference
        // to the value exists.
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
