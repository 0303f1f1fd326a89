//! A lock in one bit of somebody else's word: how a table page's lock fits into its memmap record.

use crate::atomic::{AtomicU32, Ordering};
use crate::backend::Backend;
use crate::rank::{self, Rank};
use core::marker::PhantomData;

/// Set while the lock is held.
///
/// The other bits of the word are the owner's, who changes them by atomic read-modify-write.
const LOCKED: u32 = 1 << 31;

/// Locking functions for a bit of an [`AtomicU32`].
///
/// What the lock protects is the word's owner's to say.
pub struct BitSpinLock;

impl BitSpinLock {
    /// The bit used; the owner of the word must leave it alone.
    pub const BIT: u32 = LOCKED;

    /// Waits until the bit is clear and sets it.
    ///
    /// # Panics
    /// In debug builds when a lock at or below rank `R` is held.
    #[inline]
    pub fn lock<R: Rank, B: Backend>(word: &AtomicU32) -> BitSpinGuard<'_, R, B> {
        rank::enter::<R, B>();
        B::point();
        while word.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            while word.load(Ordering::Relaxed) & LOCKED != 0 {
                B::pause();
            }
        }
        BitSpinGuard { word, kind: PhantomData }
    }
}

/// Holds a lock bit; released on drop.
#[must_use]
pub struct BitSpinGuard<'a, R: Rank, B: Backend> {
    word: &'a AtomicU32,
    kind: PhantomData<fn() -> (R, B)>,
}

impl<R: Rank, B: Backend> Drop for BitSpinGuard<'_, R, B> {
    #[inline]
    fn drop(&mut self) {
        self.word.fetch_and(!LOCKED, Ordering::Release);
        rank::leave::<R, B>();
    }
}
