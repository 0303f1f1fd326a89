//! arm64: Linux's Image protocol, GICv3, traps to EL1.
//!
//! `TPIDR_EL1` points to the data of the running CPU ([`CpuLocal`]).

mod boot;
pub(crate) mod context;
pub(crate) mod description;
mod gic;
pub(crate) mod interrupts;
pub(crate) mod io;
pub(crate) mod mmu;
pub(crate) mod smp;
pub(crate) mod timer;
mod trap;

use aarch64_cpu::registers::{Readable, TPIDR_EL1};
use core::arch::global_asm;
use core::cell::Cell;
use core::mem::offset_of;
use pagewright_sync::RankSet;
use pagewright_types::CpuId;

global_asm!(include_str!("boot.s"));
global_asm!(include_str!("trap.s"));

/// Per-CPU data; `trap.s` uses the first field.
#[repr(C, align(64))]
pub(crate) struct CpuLocal {
    kernel_sp: Cell<u64>,
    id: Cell<CpuId>,
    /// Ranks of the locks held.
    pub(crate) held: Cell<RankSet>,
    /// A timer tick or a kick has arrived, and the CPU must leave user mode for it.
    pub(crate) need_resched: Cell<bool>,
    /// The ticks that met user mode and the kernel since they were taken.
    pub(crate) ticks: Cell<(u64, u64)>,
}

const _: () = assert!(offset_of!(CpuLocal, kernel_sp) == 0);

// SAFETY: each CPU accesses only its own data, through TPIDR_EL1.
unsafe impl Sync for CpuLocal {}

impl CpuLocal {
    pub(crate) const fn new() -> Self {
        Self {
            kernel_sp: Cell::new(0),
            id: Cell::new(CpuId::new(0)),
            held: Cell::new(RankSet::EMPTY),
            need_resched: Cell::new(false),
            ticks: Cell::new((0, 0)),
        }
    }
}

/// The data of the running CPU.
#[inline]
pub(crate) fn local() -> &'static CpuLocal {
    // SAFETY: `trap::install` set the register to this CPU's data, which is static.
    unsafe { &*core::ptr::with_exposed_provenance::<CpuLocal>(TPIDR_EL1.get() as usize) }
}

/// The running CPU.
#[inline]
pub(crate) fn cpu() -> CpuId {
    local().id.get()
}

/// Pauses in a loop that waits for another CPU.
///
/// `YIELD` lets an emulator run other CPUs; the compiler's hint is `ISB`.
#[inline]
pub(crate) fn pause() {
    // SAFETY: a hint.
    unsafe { core::arch::asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Sends the shootdown IPI to another CPU.
pub(crate) fn send_ipi(cpu: CpuId) {
    gic::send(smp::hardware_id(cpu), gic::SHOOTDOWN);
}

/// Interrupts another CPU, which then leaves user mode or wakes up.
pub(crate) fn kick(cpu: CpuId) {
    gic::send(smp::hardware_id(cpu), gic::KICK);
}
