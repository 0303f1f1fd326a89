//! One value per CPU.
//!
//! [`PerCpu`] is an array on cache lines of its own; it does not know which CPU runs
//! ([`crate::Backend::cpu`] does).
//!
//! Not guaranteed: that only the owning CPU touches a value. Any CPU may, so `T` is an atomic or a
//! lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use pagewright_types::CpuId;

/// Kernel memory ran out while something was being set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    /// Bytes that were asked for.
    pub bytes: usize,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} bytes", self.bytes)
    }
}

/// Keeps neighbouring CPUs' values out of each other's cache lines (two lines: the adjacent-line
/// prefetcher pairs them).
#[repr(align(128))]
struct Padded<T>(T);

/// An array with one `T` for each CPU, on cache lines of its own.
///
/// `T` is responsible for being usable from other CPUs: an atomic or a lock.
pub struct PerCpu<T>(Box<[Padded<T>]>);

impl<T> PerCpu<T> {
    /// `cpus` values made by `make`.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is kept.
    pub fn try_new(cpus: usize, mut make: impl FnMut(CpuId) -> T) -> Result<Self, AllocError> {
        let mut values = Vec::new();
        values.try_reserve_exact(cpus).map_err(|_| AllocError { bytes: cpus * size_of::<Padded<T>>() })?;
        values.extend((0..cpus).map(|cpu| Padded(make(CpuId::new(cpu as u16)))));
        Ok(Self(values.into_boxed_slice()))
    }

    /// The value of `cpu`.
    ///
    /// # Panics
    /// When there is no such CPU.
    #[inline]
    pub fn get(&self, cpu: CpuId) -> &T {
        &self.0[cpu.index()].0
    }

    /// All values, CPU 0 first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.0.len()
    }
}
