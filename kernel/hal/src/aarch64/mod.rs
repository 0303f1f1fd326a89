//! arm64: Linux's Image protocol, GICv3, EL1 traps.
//!
//! A CPU's own data ([`CpuLocal`]) is what its `TPIDR_EL1` points to.

mod boot;
pub(crate) mod context;
mod gic;
pub(crate) mod interrupts;
pub(crate) mod io;
pub(crate) mod mmu;
pub(crate) mod smp;
pub(crate) mod timer;
mod trap;
pub(crate) mod user;

use aarch64_cpu::registers::{Readable, TPIDR_EL1};
use core::arch::global_asm;
use core::cell::Cell;
use core::mem::offset_of;
use pagewright_sync::RankSet;
use pagewright_types::CpuId;

global_asm!(include_str!("boot.s"));
global_asm!(include_str!("trap.s"));

/// One CPU's own data.
///
/// Its first field is used by `trap.s`.
#[repr(C, align(64))]
pub(crate) struct CpuLocal {
    kernel_sp: Cell<u64>,
    id: Cell<CpuId>,
    /// Ranks of the locks held.
    pub(crate) held: Cell<RankSet>,
    /// Time was up, or somebody poked this CPU, and user mode has not been left for it yet.
    pub(crate) attention: Cell<bool>,
}

const _: () = assert!(offset_of!(CpuLocal, kernel_sp) == 0);

// SAFETY: each CPU reaches only its own, by TPIDR_EL1.
unsafe impl Sync for CpuLocal {}

impl CpuLocal {
    pub(crate) const fn new() -> Self {
        Self {
            kernel_sp: Cell::new(0),
            id: Cell::new(CpuId::new(0)),
            held: Cell::new(RankSet::EMPTY),
            attention: Cell::new(false),
        }
    }
}

/// The running CPU's own data.
#[inline]
pub(crate) fn local() -> &'static CpuLocal {
    // SAFETY: `trap::install` set it to this CPU's data, which live for ever.
    unsafe { &*core::ptr::with_exposed_provenance::<CpuLocal>(TPIDR_EL1.get() as usize) }
}

/// The CPU that runs.
#[inline]
pub(crate) fn cpu() -> CpuId {
    local().id.get()
}

/// Passes a moment while another CPU must act first.
///
/// `YIELD`, because an emulator lets others go on then; the compiler's own hint is `ISB`.
#[inline]
pub(crate) fn pause() {
    // SAFETY: a hint.
    unsafe { core::arch::asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Makes another CPU run its IPI handler.
pub(crate) fn send_ipi(cpu: CpuId) {
    gic::send(smp::hardware_id(cpu), gic::SHOOTDOWN);
}

/// Interrupts another CPU.
pub(crate) fn poke(cpu: CpuId) {
    gic::send(smp::hardware_id(cpu), gic::POKE);
}
