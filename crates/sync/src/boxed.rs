//! Arrays on the kernel heap, whose allocation can fail.
//!
//! [`try_boxed`] makes one of values, [`try_boxed_each`] of values that may themselves fail.
//!
//! Not guaranteed: that the heap has room for what the values own.

use alloc::boxed::Box;
use alloc::vec::Vec;
use thiserror::Error;

/// The kernel heap is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no kernel memory for {bytes} bytes")]
pub struct AllocError {
    /// The size of the allocation that failed, in bytes.
    pub bytes: usize,
}

/// The first `len` of `values`, in an array.
///
/// # Errors
/// [`AllocError`], if the kernel heap is exhausted.
///
/// # Panics
/// In debug builds if there are fewer values.
pub fn try_boxed<T>(len: usize, values: impl IntoIterator<Item = T>) -> Result<Box<[T]>, AllocError> {
    try_boxed_each(len, values.into_iter().map(Ok))
}

/// As [`try_boxed`], with values that can't all be made.
///
/// # Errors
/// [`AllocError`], if the kernel heap is exhausted; else the first error of `values`.
///
/// # Panics
/// As [`try_boxed`].
pub fn try_boxed_each<T, E: From<AllocError>>(
    len: usize,
    values: impl IntoIterator<Item = Result<T, E>>,
) -> Result<Box<[T]>, E> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| AllocError { bytes: len.saturating_mul(size_of::<T>()) })?;
    for value in values.into_iter().take(len) {
        all.push(value?);
    }
    debug_assert_eq!(all.len(), len, "fewer values than the array has room for");
    Ok(all.into_boxed_slice())
}
