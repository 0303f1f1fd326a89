//! Storage for the counters declared in `types`.
//!
//! Not guaranteed: a consistent view. A sum over CPUs is read while they count, as `/proc/vmstat` is.

use crate::atomic::{AtomicU64, Ordering};
use crate::percpu::{OutOfMemory, PerCpu};
use pagewright_types::{Counter, CpuId};

/// All counters of one machine, one array per CPU, so that counting never bounces a cache line.
pub struct Counters(PerCpu<[AtomicU64; Counter::COUNT]>);

impl Counters {
    /// Counters at zero for `cpus` CPUs.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new(cpus: usize) -> Result<Self, OutOfMemory> {
        PerCpu::try_new(cpus, |_| core::array::from_fn(|_| AtomicU64::new(0))).map(Self)
    }

    /// Adds `n` to what `cpu` has counted.
    #[inline]
    pub fn add(&self, cpu: CpuId, counter: Counter, n: u64) {
        self.0.get(cpu)[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// What `cpu` has counted.
    #[inline]
    pub fn of(&self, cpu: CpuId, counter: Counter) -> u64 {
        self.0.get(cpu)[counter as usize].load(Ordering::Relaxed)
    }

    /// The sum over all CPUs. CPUs that count meanwhile may or may not be seen.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|cpu| cpu[counter as usize].load(Ordering::Relaxed)).sum()
    }
}
