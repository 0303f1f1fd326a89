//! A mutual-exclusion lock that spins, with [`Backend::pause`] between attempts.

use crate::atomic::{AtomicBool, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::guard::{guard, guard_mut};
use crate::line::{LineRef, LineState, LineUse};
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// A value that one CPU at a time can access.
///
/// `R` is its rank in the lock order.
pub struct SpinLock<T, R, B: Backend> {
    locked: AtomicBool,
    line: B::Line,
    value: UnsafeCell<T>,
    kind: PhantomData<fn() -> (R, B)>,
}

// SAFETY: INV-LOCK-EXCL – `locked` is true while a guard exists, and only the guard's holder
// accesses the value. So sharing the lock needs no more than `T: Send`.
unsafe impl<T: Send, R, B: Backend> Sync for SpinLock<T, R, B> {}

impl<T, R: Rank, B: Backend> SpinLock<T, R, B> {
    const_unless_loom! {
        /// An unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self {
                locked: AtomicBool::new(false),
                line: B::Line::NEW,
                value: UnsafeCell::new(value),
                kind: PhantomData,
            }
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
        B::line(LineRef::Lock(&self.line), R::NAME, LineUse::Acquire);
        SpinGuard { lock: self, here: PhantomData }
    }

    /// The value, without locking, because the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

guard! {
    /// Holds a [`SpinLock`]; drop releases it.
    ///
    /// Neither `Send` nor `Sync` (INV-LOCK-CPU).
    SpinGuard of SpinLock, released by |lock| {
        B::line(LineRef::Lock(&lock.line), R::NAME, LineUse::Release);
        lock.locked.store(false, Ordering::Release);
    }
}
guard_mut!(SpinGuard);
