//! Storage for the counters and gauges declared in `types`.
//!
//! **INV-COUNT-OWN** A CPU increments only its own counters, and no increment is lost to an
//! interrupt.
//!
//! On x86-64 an increment is one instruction without a LOCK prefix, as in Linux's `this_cpu_add`:
//! interrupts are taken between instructions (Intel SDM vol. 3A §6.6). On other architectures it is
//! a relaxed atomic addition.
//!
//! Not guaranteed: a consistent view. As in `/proc/vmstat`, a sum is read while CPUs count.

use crate::atomic::{AtomicU64, Ordering};
use crate::boxed::AllocError;
use crate::percpu::PerCpu;
use pagewright_types::{Counter, CpuId, Gauge};

/// One sum for each row of a table, kept per CPU so that CPUs share no cache line.
///
/// The parts wrap, so that a sum is exact although a CPU may subtract what another added.
pub struct PerCpuSums<const N: usize>(PerCpu<[AtomicU64; N]>);

impl<const N: usize> PerCpuSums<N> {
    /// Sums for `cpus` CPUs, all zero.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpu::try_new(cpus, |_| core::array::from_fn(|_| AtomicU64::new(0))).map(Self)
    }

    /// Adds `n` to a row of `cpu`, the calling CPU.
    #[inline]
    pub fn add(&self, cpu: CpuId, row: usize, n: u64) {
        add_alone(&self.0.get(cpu)[row], n);
    }

    /// The sum of a row over all CPUs.
    ///
    /// Concurrent additions may or may not be included.
    pub fn sum(&self, row: usize) -> u64 {
        self.0.iter().map(|cpu| cpu[row].load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// All counters of one machine.
pub struct Counters(PerCpuSums<{ Counter::COUNT }>);

impl Counters {
    /// Counters of `cpus` CPUs, all zero.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpuSums::try_new(cpus).map(Self)
    }

    /// Adds `n` to a counter of `cpu`, the calling CPU.
    #[inline]
    pub fn add(&self, cpu: CpuId, counter: Counter, n: u64) {
        self.0.add(cpu, counter as usize, n);
    }

    /// The value of a counter of one CPU.
    #[inline]
    pub fn of(&self, cpu: CpuId, counter: Counter) -> u64 {
        self.0.0.get(cpu)[counter as usize].load(Ordering::Relaxed)
    }

    /// The sum over all CPUs.
    ///
    /// Concurrent increments may or may not be included.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.sum(counter as usize)
    }
}

/// All gauges of one machine that are stored (`vm_node_stat` and its per-CPU differences).
pub struct Gauges(PerCpuSums<{ Gauge::COUNT }>);

impl Gauges {
    /// Gauges of `cpus` CPUs, all zero.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(cpus: usize) -> Result<Self, AllocError> {
        PerCpuSums::try_new(cpus).map(Self)
    }

    /// Changes a gauge by `pages`, on `cpu`, the calling CPU.
    #[inline]
    pub fn adjust(&self, cpu: CpuId, gauge: Gauge, pages: i64) {
        self.0.add(cpu, gauge as usize, pages as u64);
    }

    /// The sum over all CPUs.
    ///
    /// It may be negative while pages move between CPUs, since the CPUs are read one after the
    /// other. At rest it is exact.
    pub fn sum(&self, gauge: Gauge) -> i64 {
        self.0.sum(gauge as usize) as i64
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
