//! Shared ownership with fallible allocation.
//!
//! `alloc::sync::Arc` aborts if it runs out of memory; a kernel must report that. There are strong
//! references only: the explicit end of an address space breaks cycles.
//!
//! **INV-ARC-COUNT** The count of a shared value is the number of its handles, and the value lives
//! while the count is above zero. The last handle sees every access through the others before it
//! drops the value.

use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::boxed::AllocError;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

struct Inner<T> {
    count: AtomicUsize,
    value: T,
}

/// A value owned by all clones together, and dropped with the last one.
pub struct Arc<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: INV-ARC-COUNT – clones on several CPUs share `&T`, hence `T: Sync`. The last clone drops
// the value on its own CPU, hence `T: Send`. The count is atomic.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: INV-ARC-COUNT – as above: `&Arc<T>` gives `&T` and clones.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

/// Memory for one [`Arc`], reserved so that its creation cannot fail.
#[must_use]
pub struct ReservedArc<T>(Box<MaybeUninit<Inner<T>>>);

impl<T> ReservedArc<T> {
    /// Creates the shared value in this memory.
    pub fn fill(self, value: T) -> Arc<T> {
        let room = Box::write(self.0, Inner { count: AtomicUsize::new(1), value });
        let raw = Box::into_raw(room);
        // SAFETY: INV-ARC-COUNT – the pointer of a box is not null.
        Arc { inner: unsafe { NonNull::new_unchecked(raw) } }
    }
}

impl<T> Arc<T> {
    /// Reserves memory for one value.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn reserve() -> Result<ReservedArc<T>, AllocError> {
        let bytes = size_of::<Inner<T>>();
        // SAFETY: INV-ARC-COUNT – the count makes the layout's size nonzero, which the allocator
        // requires.
        let raw = unsafe { alloc::alloc::alloc(Layout::new::<Inner<T>>()) };
        if raw.is_null() {
            return Err(AllocError { bytes });
        }
        // SAFETY: INV-ARC-COUNT – the global allocator has just returned the pointer for this
        // layout, and the box's content may be uninitialised.
        Ok(ReservedArc(unsafe { Box::from_raw(raw.cast()) }))
    }

    /// Creates a shared value.
    ///
    /// # Errors
    /// [`AllocError`], and `value` is dropped. A caller that must keep it calls [`Arc::reserve`]
    /// first.
    pub fn try_new(value: T) -> Result<Self, AllocError> {
        Self::reserve().map(|room| room.fill(value))
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: INV-ARC-COUNT – the count includes this handle, so the value is alive.
        unsafe { self.inner.as_ref() }
    }

    /// Whether two handles share one value.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // Relaxed is enough, as in `alloc::sync::Arc`: the handle that is cloned is alive.
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
            // Orders every access through other handles, which precedes their drop, before the drop
            // of the value.
            fence(Ordering::Acquire);
            // SAFETY: INV-ARC-COUNT – the count is zero, so this is the last handle; `fill` took
            // the pointer from a box.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}
