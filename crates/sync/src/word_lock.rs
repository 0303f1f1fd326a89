//! A lock in a word of a record, such as the memmap record of a page table.
//!
//! The lock has the whole word, so that a store releases it. A lock in one bit (Linux's
//! `bit_spin_lock`) would need a second atomic read-modify-write operation.

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::Backend;
use crate::on_this_cpu::OnThisCpu;
use crate::rank::{self, Rank};
use core::marker::PhantomData;

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// Locks an [`AtomicU32`], which is 0 while no CPU holds the lock.
///
/// The owner of the word defines what the lock protects.
pub struct WordLock;

impl WordLock {
    /// Waits until the word is 0, and takes the lock.
    ///
    /// # Panics
    /// In debug builds, if a lock inside rank `R` is held, or one of rank `R` that does not nest.
    #[inline]
    pub fn lock<R: Rank, B: Backend>(word: &AtomicU32) -> WordGuard<'_, R, B> {
        rank::enter::<R, B>();
        B::point();
        // As in `SpinLock`, an attempt that fails does not store.
        while word.compare_exchange_weak(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while word.load(Ordering::Relaxed) != FREE {
                B::pause();
            }
        }
        WordGuard { word, kind: PhantomData, here: PhantomData }
    }

    /// Whether this or another CPU holds the lock.
    #[inline]
    pub fn is_locked(word: &AtomicU32) -> bool {
        word.load(Ordering::Acquire) != FREE
    }
}

/// Holds a [`WordLock`]; drop releases it.
///
/// Neither `Send` nor `Sync` (INV-LOCK-CPU).
#[must_use]
pub struct WordGuard<'a, R: Rank, B: Backend> {
    word: &'a AtomicU32,
    kind: PhantomData<fn() -> (R, B)>,
    here: OnThisCpu,
}

impl<R: Rank, B: Backend> Drop for WordGuard<'_, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(FREE, Ordering::Release);
        rank::leave::<R, B>();
    }
}
