//! Storage for the counters declared in `types`.
//!
//! **INV-COUNT-OWN.** A CPU increments its own counters only, and no increment is lost to an
//! interrupt. On x86-64 an increment is one instruction without a LOCK prefix, as in Linux's
//! `this_cpu_add`: interrupts are taken between instructions (Intel SDM vol. 3A §6.6). On other
//! architectures it is a relaxed atomic addition.
//!
//! Not guaranteed: a consistent view. As in `/proc/vmstat`, a sum is read while CPUs count.

use crate::atomic::{AtomicU64, Ordering};
use crate::percpu::{AllocError, PerCpu};
use pagewright_types::{Counter, CpuId};

/// All counters of one machine, one array per CPU, so that CPUs share no cache line.
pub struct Counters(PerCpu<[AtomicU64; Counter::COUNT]>);

impl Counters {
    /// Counters of `cpus` CPUs, all zero.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpu::try_new(cpus, |_| core::array::from_fn(|_| AtomicU64::new(0))).map(Self)
    }

    /// Adds `n` to a counter of `cpu`, the calling CPU.
    #[inline]
    pub fn add(&self, cpu: CpuId, counter: Counter, n: u64) {
        add_alone(&self.0.get(cpu)[counter as usize], n);
    }

    /// The value of a counter of one CPU.
    #[inline]
    pub fn of(&self, cpu: CpuId, counter: Counter) -> u64 {
        self.0.get(cpu)[counter as usize].load(Ordering::Relaxed)
    }

    /// The sum over all CPUs.
    ///
    /// Concurrent increments may or may not be included.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|cpu| cpu[counter as usize].load(Ordering::Relaxed)).sum()
    }
}

/// Adds to a counter that no other CPU increments.
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[inline]
fn add_alone(count: &AtomicU64, n: u64) {
    // SAFETY: `count` is eight aligned bytes with interior mutability, so other CPUs load them
    // whole.
    unsafe { core::arch::asm!("add qword ptr [{}], {}", in(reg) count.as_ptr(), in(reg) n, options(nostack)) }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
#[inline]
fn add_alone(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}
