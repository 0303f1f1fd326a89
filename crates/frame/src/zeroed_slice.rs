//! A slice of zeroed memory that the host backs only where it is touched.
//!
//! Key type: `ZeroedSlice`. A safe constructor (`bytemuck::try_zeroed_slice_box`) would touch all
//! of the memory: on Unix, `System::alloc_zeroed` writes the zeroes itself for alignments above 16
//! bytes. The memmap of a machine of 1 TiB takes 16 GiB. So `ZeroedSlice` requests memory of a low
//! alignment and aligns it here.
//!
//! Not guaranteed: that untouched memory stays unbacked. A heap that clears memory with stores, as
//! that of a kernel may, touches all of it.

use alloc::alloc::{alloc_zeroed, dealloc};
use bytemuck::Zeroable;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use pagewright_sync::AllocError;

/// An alignment that host allocators provide without clearing the memory themselves.
const LOW_ALIGN: usize = 8;

/// `len` values of type `T`, aligned for `T` and initially zero.
///
/// **INV-FRAME-ZEROED** The memory of a `ZeroedSlice` belongs to the slice alone, is aligned for
/// its values, and holds all of them, initialised. The unsafe code of the memmap depends on it.
///
/// `memory` was allocated with `layout`. `first` is aligned for `T` and lies in `memory`, which has
/// room for `len` values there. Each value is initialised, by the zeroes or by a later store.
pub(crate) struct ZeroedSlice<T> {
    memory: NonNull<u8>,
    layout: Layout,
    first: NonNull<T>,
    len: usize,
    kind: PhantomData<T>,
}

// SAFETY: INV-FRAME-ZEROED – it owns its values as a `Box<[T]>` does.
unsafe impl<T: Send> Send for ZeroedSlice<T> {}
// SAFETY: INV-FRAME-ZEROED – it gives out shared references only, as a `Box<[T]>` does.
unsafe impl<T: Sync> Sync for ZeroedSlice<T> {}

impl<T: Zeroable> ZeroedSlice<T> {
    const NO_DROP: () = assert!(!core::mem::needs_drop::<T>(), "`ZeroedSlice` does not drop its values");

    /// Allocates `len` zero values.
    ///
    /// # Errors
    /// [`AllocError`] when the heap is exhausted or the size overflows.
    pub(crate) fn try_new(len: usize) -> Result<Self, AllocError> {
        let () = Self::NO_DROP;
        let bytes = len.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>().max(LOW_ALIGN));
        let failed = AllocError { bytes };
        let layout = Layout::from_size_align(bytes, LOW_ALIGN).map_err(|_| failed)?;
        // SAFETY: the size of the layout is not 0, because an alignment is never 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).ok_or(failed)?;
        let offset = memory.align_offset(align_of::<T>());
        debug_assert!(
            offset < align_of::<T>().max(LOW_ALIGN),
            "INV-FRAME-ZEROED: no aligned address at an offset of {offset}"
        );
        // SAFETY: INV-FRAME-ZEROED – the offset is below the alignment, which was added to the
        // size.
        let first = unsafe { memory.byte_add(offset) }.cast();
        Ok(Self { memory, layout, first, len, kind: PhantomData })
    }
}

impl<T> Deref for ZeroedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: INV-FRAME-ZEROED – `len` initialised values are at `first`, and no mutable
        // reference to them exists.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for ZeroedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: INV-FRAME-ZEROED – allocated with this layout and not used after this; the values
        // need no drop.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[derive(Zeroable)]
    #[repr(C, align(64))]
    struct Line(AtomicU64);

    /// INV-FRAME-ZEROED.
    #[test]
    fn values_are_zero_aligned_and_disjoint() {
        for len in [0, 1, 2, 1000] {
            let slice = ZeroedSlice::<Line>::try_new(len).expect("memory");
            assert_eq!(slice.len(), len);
            for (index, line) in slice.iter().enumerate() {
                assert_eq!(core::ptr::from_ref(line).addr() % 64, 0);
                assert_eq!(line.0.swap(index as u64 + 1, Ordering::Relaxed), 0);
            }
            assert!(slice.iter().enumerate().all(|(index, line)| line.0.load(Ordering::Relaxed) == index as u64 + 1));
        }
    }

    #[test]
    fn a_size_that_overflows_is_an_error() {
        assert!(ZeroedSlice::<Line>::try_new(usize::MAX / 64).is_err());
        assert!(ZeroedSlice::<Line>::try_new(usize::MAX).is_err());
    }
}
