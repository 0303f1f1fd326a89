//! A lock for many readers or one writer (as Linux's `mmap_lock` and `i_mmap_rwsem`).
//!
//! A writer that has waited for a while has new readers wait, as Linux's `RWSEM_FLAG_HANDOFF` does
//! after 4 ms. Until then they overtake it: if the host of a virtual machine runs its CPUs in turn,
//! each turn that one waits for takes long.
//!
//! So a CPU that reads must not wait to read again before it releases the lock.
//!
//! **INV-LOCK-WRITER** Readers that keep coming do not keep a writer out: once it has waited for a
//! while, new readers wait for it. Only `try_read` overtakes it then.
//!
//! Not guaranteed: that writers do not keep a reader, or another writer, out.

use crate::atomic::{AtomicU32, Ordering, const_unless_loom};
use crate::backend::Backend;
use crate::guard::{guard, guard_mut};
use crate::line::{LineRef, LineState, LineUse};
use crate::rank::{self, Rank};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use pagewright_plant::plant;

/// Set while a writer holds the lock.
const WRITER: u32 = 1 << 31;
/// Set while new readers wait for a writer that waits; the other bits count readers.
const HANDOFF: u32 = 1 << 30;
/// How often a writer pauses before it sets [`HANDOFF`]; loom takes too long to explore them.
const PATIENCE: u32 = if cfg!(loom) { 0 } else { 32 };

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

    /// Waits until no writer holds the lock or is due, and acquires it for reading (`down_read`).
    ///
    /// # Panics
    /// In debug builds, if a lock inside this rank is held, or one of this rank that does not nest.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T, R, B> {
        rank::enter::<R, B>();
        B::point();
        while !self.try_join(WRITER | HANDOFF) {
            B::pause();
        }
        self.joined()
    }

    /// Acquires the lock for reading, unless a writer holds it (`down_read_trylock`).
    ///
    /// It overtakes a writer that waits, unlike Linux's, because reclaim would otherwise skip busy
    /// processes. Linux's reclaim does not take `mmap_lock`.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, R, B>> {
        rank::enter::<R, B>();
        B::point();
        // The exchange also fails if the number of readers changes. That is no reason to give up.
        while self.state.load(Ordering::Relaxed) & WRITER == 0 {
            if self.try_join(WRITER) {
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

    /// Becomes a reader if none of the bits `unless` is set.
    fn try_join(&self, unless: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & unless == 0
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
        if self.state.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait_to_write();
        }
        B::line(LineRef::Lock(&self.line), R::NAME, LineUse::Acquire);
        WriteGuard { lock: self, here: PhantomData }
    }

    #[cold]
    fn wait_to_write(&self) {
        let (mut free, mut paused) = (0, 0);
        while let Err(state) = self.state.compare_exchange_weak(free, WRITER, Ordering::Acquire, Ordering::Relaxed) {
            if paused == PATIENCE && state & HANDOFF == 0 {
                self.state.fetch_or(plant!(WriterKeptOut; 0, HANDOFF), Ordering::Relaxed);
            }
            // The attempt also fails if this or another writer has set or cleared the bit.
            free = state & HANDOFF;
            if state != free {
                B::pause();
                paused = PATIENCE.min(paused + 1);
            }
        }
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
        // A writer that waits may have set the other bit.
        lock.state.fetch_and(!WRITER, Ordering::Release);
    }
}
guard_mut!(WriteGuard);
