//! The stacks of the secondary CPUs, with unmapped guards so that an overflow faults.
//!
//! The stack of CPU n is the lower half of the n-th area of [`STRIDE`] bytes. Below it lies the
//! unmapped upper half of the area before; `trap.s` of arm64 relies on this. The stack of the boot
//! CPU is in the image (`boot.s`). `arch::mmu` has the address of the areas and the form of the
//! entries.
//!
//! Not guaranteed: that a function with a frame of more than [`STACK`] bytes hits the guard.

use crate::arch::mmu;
use crate::boot::CPUS;
use alloc::alloc::{Layout, alloc_zeroed};
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::CpuId;

/// Size of a stack in bytes.
pub(crate) const STACK: usize = 64 << 10;
/// Distance between two stacks in bytes.
pub(crate) const STRIDE: usize = 2 * STACK;

const PAGE: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;
const TABLES: usize = (CPUS * STRIDE).div_ceil(LARGE_PAGE);

/// A page table of the kernel.
#[repr(align(4096))]
pub(crate) struct Table(pub(crate) [AtomicU64; 512]);

impl Table {
    pub(crate) const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    /// The entry that points to this table.
    pub(crate) fn entry(&self) -> u64 {
        mmu::physical(self.0.as_ptr() as u64) | mmu::TABLE
    }
}

#[repr(align(4096))]
struct Stack(#[expect(dead_code, reason = "memory for the CPU only")] [u8; STACK]);

/// Allocates and maps the stack of a CPU, and returns its top.
///
/// Runs on CPU 0, which must publish the tables before the other CPU uses the stack.
///
/// # Panics
/// If the heap has no memory for it.
pub(crate) fn new(cpu: CpuId) -> u64 {
    static LARGE: Table = Table::empty();
    static SMALL: [Table; TABLES] = [const { Table::empty() }; TABLES];
    // SAFETY: the size of the layout is not 0.
    let stack = unsafe { alloc_zeroed(Layout::new::<Stack>()) };
    assert!(!stack.is_null(), "no memory for a stack");
    // The heap is in the linear map.
    let memory = stack.expose_provenance() as u64 - mmu::LINEAR;
    let bottom = cpu.index() * STRIDE;
    for at in (0..STACK).step_by(PAGE) {
        let page = (bottom + at) / PAGE;
        SMALL[page / 512].0[page % 512].store((memory + at as u64) | mmu::STACK_PAGE, Ordering::Relaxed);
    }
    for (entry, table) in LARGE.0.iter().zip(&SMALL) {
        entry.store(table.entry(), Ordering::Relaxed);
    }
    mmu::map_stacks(&LARGE);
    mmu::STACKS + (bottom + STACK) as u64
}
