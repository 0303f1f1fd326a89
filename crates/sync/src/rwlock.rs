//! A lock that many may read under and one may write under (Linux's `mmap_lock`, `i_mmap_rwsem`).

use crate::atomic::{AtomicU32, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// Set while a writer holds the lock; the rest counts readers.
const WRITER: u32 = 1 << 31;

/// A value with many readers or one writer.
///
/// `R` is its place in the lock order.
pub struct RwLock<T, R, B> {
    state: AtomicU32,
    value: UnsafeCell<T>,
    kind: PhantomData<fn() -> (R, B)>,
}

// SAFETY: INV-LOCK-EXCL – readers share the value (hence `T: Sync`) and a writer alone moves or
// changes it (hence `T: Send`).
unsafe impl<T: Send + Sync, R, B> Sync for RwLock<T, R, B> {}

impl<T, R: Rank, B: Backend> RwLock<T, R, B> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { state: AtomicU32::new(0), value: UnsafeCell::new(value), kind: PhantomData }
        }
    }

    /// Waits until no writer holds the lock and joins the readers.
    ///
    /// # Panics
    /// In debug builds when a lock at or below this rank is held.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        while !self.try_join() {
            B::pause();
        }
        ReadGuard { lock: self }
    }

    /// Joins the readers unless a writer holds the lock (`down_read_trylock`).
    ///
    /// # Panics
    /// In debug builds when a lock below this rank is held, or one of it and the rank does not
    /// nest.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, R, B>> {
        rank::enter::<R, B>();
        B::point();
        // A reader that comes or goes in between is no writer.
        while self.state.load(Ordering::Relaxed) & WRITER == 0 {
            if self.try_join() {
                return Some(ReadGuard { lock: self });
            }
        }
        rank::leave::<R, B>();
        None
    }

    fn try_join(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & WRITER == 0
            && self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits until the lock is free and takes it alone.
    ///
    /// # Panics
    /// In debug builds when a lock at or below this rank is held.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        while self.state.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            B::pause();
        }
        WriteGuard { lock: self }
    }

    /// The value, without locking: the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Reads under an [`RwLock`]; released on drop.
#[must_use]
pub struct ReadGuard<'a, T, R: Rank, B: Backend> {
    lock: &'a RwLock<T, R, B>,
}

impl<T, R: Rank, B: Backend> Deref for ReadGuard<'_, T, R, B> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: INV-LOCK-EXCL – a reader is counted in `state`, so no writer has a guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> Drop for ReadGuard<'_, T, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.fetch_sub(1, Ordering::Release);
        rank::leave::<R, B>();
    }
}

/// Writes under an [`RwLock`]; released on drop.
#[must_use]
pub struct WriteGuard<'a, T, R: Rank, B: Backend> {
    lock: &'a RwLock<T, R, B>,
}

impl<T, R: Rank, B: Backend> Deref for WriteGuard<'_, T, R, B> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: INV-LOCK-EXCL – WRITER is set for this guard alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> DerefMut for WriteGuard<'_, T, R, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: INV-LOCK-EXCL – WRITER is set for this guard alone, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, R: Rank, B: Backend> Drop for WriteGuard<'_, T, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(0, Ordering::Release);
        rank::leave::<R, B>();
    }
}
