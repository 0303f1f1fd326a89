//! A slice of zeroed memory that the host provides only where it is touched.
//!
//! Key type: `ZeroedSlice`. A safe constructor would do (`bytemuck::try_zeroed_slice_box`) if host
//! allocators did not write the zeroes themselves as soon as an alignment above 16 bytes is asked
//! for (Rust's `System::alloc_zeroed` on Unix): 16 GB for the memmap of a machine of 1 TiB. So
//! memory is asked for at a low alignment and aligned here.
//!
//! Not guaranteed: laziness. That is the allocator's; one that clears by hand, as a kernel's may,
//! clears all.

use alloc::alloc::{alloc_zeroed, dealloc};
use bytemuck::Zeroable;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use pagewright_sync::OutOfMemory;

/// Alignment that host allocators give without special effort.
const EASY: usize = 8;

/// `len` values of type `T`, all zero to begin with, aligned as `T` wants.
///
/// INV-FRAME-ZEROED: `memory` was allocated with `layout` and belongs to this value alone; `first`
/// is aligned for `T` and lies in it with room for `len` values, each of which is initialised, by
/// zeroes or by what was stored since.
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
    const NOTHING_TO_DROP: () = assert!(!core::mem::needs_drop::<T>(), "values are not dropped");

    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn try_new(len: usize) -> Result<Self, OutOfMemory> {
        let () = Self::NOTHING_TO_DROP;
        let bytes = len.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>().max(EASY));
        let failed = OutOfMemory { bytes };
        let layout = Layout::from_size_align(bytes, EASY).map_err(|_| failed)?;
        // SAFETY: the layout has a size, because an alignment is never 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).ok_or(failed)?;
        let offset = memory.align_offset(align_of::<T>());
        debug_assert!(offset < align_of::<T>().max(EASY), "INV-FRAME-ZEROED: there is no such address");
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
        // SAFETY: INV-FRAME-ZEROED – `len` initialised values stand at `first`, and nobody has them
        // mutably.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for ZeroedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: INV-FRAME-ZEROED – allocated with this layout, and not used after this; the
        // values have nothing to drop.
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

    /// INV-FRAME-ZEROED
    #[test]
    fn values_are_zero_aligned_and_apart() {
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
    fn more_than_there_can_be_is_an_error() {
        assert!(ZeroedSlice::<Line>::try_new(usize::MAX / 64).is_err());
        assert!(ZeroedSlice::<Line>::try_new(usize::MAX).is_err());
    }
}
