//! A lock for many readers or one writer (as Linux's `mmap_lock` and `i_mmap_rwsem`).

use crate::atomic::{AtomicU32, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::guard::{guard, guard_mut};
use crate::line::{LineRef, LineState, LineUse};
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// Set while a writer holds the lock; the other bits count readers.
const WRITER: u32 = 1 << 31;

/// A value with many readers or one writer.
///
/// `R` is its rank in the lock order. A reader spins; the lock does not sleep.
pub struct RwLock<T, R, B: Backend> {
    state: AtomicU32,
    line: B::Line,
    value: UnsafeCell<T>,
    kind: PhantomData<fn() -> (R, B)>,
}

// SAFETY: INV-LOCK-EXCL – readers share the value, hence `T: Sync`. Only the one writer moves or
// changes it, hence `T: Send`.
unsafe impl<T: Send + Sync, R, B: Backend> Sync for RwLock<T, R, B> {}

impl<T, R: Rank, B: Backend> RwLock<T, R, B> {
    const_unless_loom! {
        /// An unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Self {
                state: AtomicU32::new(0),
                line: B::Line::NEW,
                value: UnsafeCell::new(value),
                kind: PhantomData,
            }
        }
    }

    /// Waits until no writer holds the lock, and acquires it for reading (`down_read`).
    ///
    /// # Panics
    /// In debug builds, if a lock inside this rank is held, or one of this rank that does not nest.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        while !self.try_join() {
            B::pause();
        }
        self.joined()
    }

    /// Acquires the lock for reading, unless a writer holds it (`down_read_trylock`).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, R, B>> {
        rank::enter::<R, B>();
        B::point();
        // The exchange also fails if the number of readers changes. That is no reason to give up.
        while self.state.load(Ordering::Relaxed) & WRITER == 0 {
            if self.try_join() {
                return Some(self.joined());
            }
        }
        rank::leave::<R, B>();
        None
    }

    /// The guard of a reader that has joined.
    #[inline]
    fn joined(&self) -> ReadGuard<'_, T, R, B> {
        B::line(LineRef::Lock(&self.line), R::NAME, LineUse::AcquireShared);
        ReadGuard { lock: self, here: PhantomData }
    }

    fn try_join(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & WRITER == 0
            && self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits until the lock is free, and acquires it for writing (`down_write`).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        while self.state.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            B::pause();
        }
        B::line(LineRef::Lock(&self.line), R::NAME, LineUse::Acquire);
        WriteGuard { lock: self, here: PhantomData }
    }

    /// The value, without locking, because the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

guard! {
    /// Holds an [`RwLock`] for reading; drop releases it.
    ///
    /// Neither `Send` nor `Sync` (INV-LOCK-CPU).
    ReadGuard of RwLock, released by |lock| {
        B::line(LineRef::Lock(&lock.line), R::NAME, LineUse::ReleaseShared);
        lock.state.fetch_sub(1, Ordering::Release);
    }
}
guard! {
    /// Holds an [`RwLock`] for writing; drop releases it.
    ///
    /// Neither `Send` nor `Sync` (INV-LOCK-CPU).
    WriteGuard of RwLock, released by |lock| {
        B::line(LineRef::Lock(&lock.line), R::NAME, LineUse::Release);
        lock.state.store(0, Ordering::Release);
    }
}
guard_mut!(WriteGuard);
