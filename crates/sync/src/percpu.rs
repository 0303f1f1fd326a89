//! One value per CPU.
//!
//! [`PerCpu`] is an array in which each value has cache lines of its own. The caller names the CPU
//! ([`crate::Backend::cpu`] tells which one runs).
//!
//! Not guaranteed: that only its own CPU accesses a value. Any CPU may, so `T` is an atomic type or
//! a lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use pagewright_types::CpuId;
use thiserror::Error;

/// The kernel heap is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no kernel memory for {bytes} bytes")]
pub struct AllocError {
    /// The size of the allocation that failed, in bytes.
    pub bytes: usize,
}

/// Keeps the values of neighbouring CPUs in separate cache lines.
///
/// Two lines each, because the adjacent-line prefetcher loads lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// One `T` for each CPU, each on cache lines of its own.
///
/// Every CPU can access every value, so `T` synchronises itself: an atomic type or a lock.
pub struct PerCpu<T>(Box<[Padded<T>]>);

impl<T> PerCpu<T> {
    /// One value for each of `cpus` CPUs, made by `make`.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(cpus: usize, mut make: impl FnMut(CpuId) -> T) -> Result<Self, AllocError> {
        let mut values = Vec::new();
        values.try_reserve_exact(cpus).map_err(|_| AllocError { bytes: cpus * size_of::<Padded<T>>() })?;
        values.extend((0..cpus).map(|cpu| Padded(make(CpuId::new(cpu as u16)))));
        Ok(Self(values.into_boxed_slice()))
    }

    /// The value of `cpu`.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> &T {
        &self.0[cpu.index()].0
    }

    /// All values in the order of their CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.0.len()
    }
}
