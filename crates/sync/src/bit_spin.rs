//! A lock in one bit of a word (Linux's `bit_spin_lock`), such as a table page's memmap record.

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::Backend;
use crate::on_this_cpu::OnThisCpu;
use crate::rank::{self, Rank};
use core::marker::PhantomData;

/// Set while the lock is held.
///
/// The owner of the word changes the other bits, by atomic read-modify-write operations.
const LOCKED: u32 = 1 << 31;

/// Locks a bit of an [`AtomicU32`].
///
/// The owner of the word defines what the lock protects.
pub struct BitSpinLock;

impl BitSpinLock {
    /// The lock bit, which the owner of the word must not change.
    pub const BIT: u32 = LOCKED;

    /// Waits until the bit is clear, and sets it.
    ///
    /// # Panics
    /// In debug builds, if a lock inside rank `R` is held, or one of rank `R` that does not nest.
    #[inline]
    pub fn lock<R: Rank, B: Backend>(word: &AtomicU32) -> BitSpinGuard<'_, R, B> {
        rank::enter::<R, B>();
        B::point();
        while word.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            while word.load(Ordering::Relaxed) & LOCKED != 0 {
                B::pause();
            }
        }
        BitSpinGuard { word, kind: PhantomData, here: PhantomData }
    }
}

/// Holds a lock bit; drop releases it.
///
/// Neither `Send` nor `Sync` (INV-LOCK-CPU).
#[must_use]
pub struct BitSpinGuard<'a, R: Rank, B: Backend> {
    word: &'a AtomicU32,
    kind: PhantomData<fn() -> (R, B)>,
    here: OnThisCpu,
}

impl<R: Rank, B: Backend> Drop for BitSpinGuard<'_, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.word.fetch_and(!LOCKED, Ordering::Release);
        rank::leave::<R, B>();
    }
}
