//! The stacks of the CPUs that did not boot: mapped at addresses of their own, and nothing below
//! each, so that who overflows his stack faults.
//!
//! CPU n's is the lower half of the n-th piece of [`PIECE`] bytes, so that the upper half of the
//! piece before is what lies below it; `trap.s` of arm64 relies on that. The CPU that boots has its
//! stack in the image (`boot.s`). `arch::mmu` says where the pieces begin and how entries look.
//!
//! Not guaranteed: that a function which takes more than [`STACK`] bytes at once touches what is
//! not mapped.

use crate::arch::mmu;
use crate::boot::CPUS;
use alloc::alloc::{Layout, alloc_zeroed};
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::CpuId;

/// Bytes of a stack.
pub(crate) const STACK: usize = 64 << 10;
/// From one stack to the next.
pub(crate) const PIECE: usize = 2 * STACK;

const PAGE: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;
const TABLES: usize = (CPUS * PIECE).div_ceil(LARGE_PAGE);

/// A page table of the kernel's own.
#[repr(align(4096))]
pub(crate) struct Table(pub(crate) [AtomicU64; 512]);

impl Table {
    pub(crate) const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; 512])
    }

    /// The entry that names it.
    pub(crate) fn entry(&self) -> u64 {
        mmu::physical(self.0.as_ptr() as u64) | mmu::TABLE
    }
}

#[repr(align(4096))]
struct Stack(#[expect(dead_code, reason = "memory for the CPU only")] [u8; STACK]);

/// A new stack for a CPU that has none: its top.
///
/// On CPU 0, which must make the tables visible before another CPU uses it.
pub(crate) fn new(cpu: CpuId) -> u64 {
    static LARGE: Table = Table::empty();
    static SMALL: [Table; TABLES] = [const { Table::empty() }; TABLES];
    // SAFETY: a stack has bytes.
    let stack = unsafe { alloc_zeroed(Layout::new::<Stack>()) };
    assert!(!stack.is_null(), "no memory for a stack");
    // The heap is in the linear map.
    let memory = stack.expose_provenance() as u64 - mmu::LINEAR;
    let bottom = cpu.index() * PIECE;
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
