//! A lock in a word of a record, such as the memmap record of a page table.
//!
//! The lock has the whole word, so that a store releases it. A lock in one bit (Linux's
//! `bit_spin_lock`) would need a second atomic read-modify-write operation.

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::Backend;
use crate::line::{LineRef, LineUse};
use crate::on_this_cpu::OnThisCpu;
use crate::rank::{self, Rank};
use core::marker::PhantomData;
use pagewright_types::Pfn;

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// Locks an [`AtomicU32`], which is 0 while no CPU holds the lock.
///
/// The owner of the word defines what the lock protects.
pub struct WordLock;

impl WordLock {
    /// Waits until the word is 0, and takes the lock.
    ///
    /// The word is in the memmap record of the frame `record`.
    ///
    /// # Panics
    /// In debug builds, if a lock inside rank `R` is held, or one of rank `R` that does not nest.
    #[inline]
    pub fn lock<R: Rank, B: Backend>(word: &AtomicU32, record: Pfn) -> WordGuard<'_, R, B> {
        rank::enter::<R, B>();
        B::point();
        // As in `SpinLock`, an attempt that fails does not store.
        while word.compare_exchange_weak(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while word.load(Ordering::Relaxed) != FREE {
                B::pause();
            }
        }
        B::line(LineRef::Record(record), R::NAME, LineUse::Acquire);
        WordGuard { word, record, kind: PhantomData, here: PhantomData }
    }

    /// Takes the lock if no CPU holds it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    pub fn try_lock<R: Rank, B: Backend>(word: &AtomicU32, record: Pfn) -> Option<WordGuard<'_, R, B>> {
        rank::enter::<R, B>();
        B::point();
        if word.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            rank::leave::<R, B>();
            return None;
        }
        B::line(LineRef::Record(record), R::NAME, LineUse::Acquire);
        Some(WordGuard { word, record, kind: PhantomData, here: PhantomData })
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
    record: Pfn,
    kind: PhantomData<fn() -> (R, B)>,
    here: OnThisCpu,
}

impl<R: Rank, B: Backend> Drop for WordGuard<'_, R, B> {
    #[inline]
    fn drop(&mut self) {
        B::line(LineRef::Record(self.record), R::NAME, LineUse::Release);
        self.word.store(FREE, Ordering::Release);
        rank::leave::<R, B>();
    }
}
