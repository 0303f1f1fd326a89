//! Storage for the counters declared in `types`.
//!
//! **INV-COUNT-OWN.** A CPU counts for itself only, and nothing that it counts is lost, whatever
//! interrupts it meanwhile. On x86-64 that takes one instruction, and no locked one (SDM vol. 3A
//! §6.6: an interrupt comes between instructions), as Linux's `this_cpu_add`; elsewhere it is an
//! atomic addition that orders nothing.
//!
//! Not guaranteed: a consistent view. A sum over CPUs is read while they count, as `/proc/vmstat`
//! is.

use crate::atomic::{AtomicU64, Ordering};
use crate::percpu::{AllocError, PerCpu};
use pagewright_types::{Counter, CpuId};

/// All counters of one machine, one array per CPU, so that counting never bounces a cache line.
pub struct Counters(PerCpu<[AtomicU64; Counter::COUNT]>);

impl Counters {
    /// Counters at zero for `cpus` CPUs.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpu::try_new(cpus, |_| core::array::from_fn(|_| AtomicU64::new(0))).map(Self)
    }

    /// Adds `n` to what `cpu`, the one that calls, has counted.
    #[inline]
    pub fn add(&self, cpu: CpuId, counter: Counter, n: u64) {
        add_alone(&self.0.get(cpu)[counter as usize], n);
    }

    /// What `cpu` has counted.
    #[inline]
    pub fn of(&self, cpu: CpuId, counter: Counter) -> u64 {
        self.0.get(cpu)[counter as usize].load(Ordering::Relaxed)
    }

    /// The sum over all CPUs.
    ///
    /// CPUs that count meanwhile may or may not be seen.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|cpu| cpu[counter as usize].load(Ordering::Relaxed)).sum()
    }
}

/// Adds to what no other CPU adds to at the same time.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
fn add_alone(count: &AtomicU64, n: u64) {
    // SAFETY: `count` is eight bytes that may be changed through a shared reference; others load
    // them whole, for they are aligned.
    unsafe { core::arch::asm!("add qword ptr [{}], {}", in(reg) count.as_ptr(), in(reg) n, options(nostack)) }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
#[inline]
fn add_alone(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}
