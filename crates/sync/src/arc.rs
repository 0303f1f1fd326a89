//! Shared ownership whose creation can fail.
//!
//! `alloc::sync::Arc` aborts when memory is short; a kernel reports it. Strong references only:
//! cycles are broken by the explicit end of an address space.

use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::percpu::AllocError;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

struct Inner<T> {
    count: AtomicUsize,
    value: T,
}

/// A value owned by whoever holds a clone; dropped with the last.
pub struct Arc<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: INV-ARC-COUNT – clones on several CPUs share `&T` (hence Sync) and the last one drops it
// wherever it is (hence Send); the count is atomic.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: INV-ARC-COUNT – as above: `&Arc<T>` gives `&T` and clones.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

/// Memory for one [`Arc`], so that making it later can't fail.
#[must_use]
pub struct ReservedArc<T>(Box<MaybeUninit<Inner<T>>>);

impl<T> ReservedArc<T> {
    /// Puts `value` under shared ownership.
    pub fn fill(self, value: T) -> Arc<T> {
        let room = Box::write(self.0, Inner { count: AtomicUsize::new(1), value });
        let raw = Box::into_raw(room);
        // SAFETY: INV-ARC-COUNT – a pointer from a box is not null.
        Arc { inner: unsafe { NonNull::new_unchecked(raw) } }
    }
}

impl<T> Arc<T> {
    /// Memory for one value.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn reserve() -> Result<ReservedArc<T>, AllocError> {
        let bytes = size_of::<Inner<T>>();
        // SAFETY: INV-ARC-COUNT – a value with a count is not empty, as its layout must be for the
        // allocator.
        let raw = unsafe { alloc::alloc::alloc(Layout::new::<Inner<T>>()) };
        if raw.is_null() {
            return Err(AllocError { bytes });
        }
        // SAFETY: INV-ARC-COUNT – fresh from the global allocator with the layout of what the box
        // is for, which need not be initialised.
        Ok(ReservedArc(unsafe { Box::from_raw(raw.cast()) }))
    }

    /// Puts `value` under shared ownership.
    ///
    /// # Errors
    /// [`AllocError`], and the value is dropped; [`Arc::reserve`] first where that matters.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::reserve().map(|room| room.fill(value))
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: INV-ARC-COUNT – this clone is counted, so the value has not been dropped.
        unsafe { self.inner.as_ref() }
    }

    /// Whether two handles own the same value.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // Relaxed: the clone is made from a live handle, so nothing has to be ordered before it (as
        // in alloc's Arc).
        let before = self.inner().count.fetch_add(1, Ordering::Relaxed);
        assert!(before < isize::MAX as usize, "reference count overflow");
        Self { inner: self.inner }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.inner().count.fetch_sub(1, Ordering::Release) == 1 {
            // Every use through another handle happened before its drop; see them all before the
            // value goes.
            fence(Ordering::Acquire);
            // SAFETY: INV-ARC-COUNT – the count is zero, so this was the last handle; the pointer
            // is the one that `fill` took from its box.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}
