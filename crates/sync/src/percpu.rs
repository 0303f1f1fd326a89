//! One value per CPU.
//!
//! [`PerCpu`] is an array in which each value has cache lines of its own. The caller names the CPU
//! ([`crate::Backend::cpu`] tells which one runs).
//!
//! Not guaranteed: that only its own CPU accesses a value. Any CPU may, so `T` is an atomic type or
//! a lock.

use crate::boxed::{AllocError, try_boxed};
use alloc::boxed::Box;
use pagewright_types::CpuId;

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
        Ok(Self(try_boxed(cpus, (0..cpus).map(|cpu| Padded(make(CpuId::new(cpu as u16)))))?))
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
