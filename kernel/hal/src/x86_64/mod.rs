//! x86-64: PVH boot, local APIC, long-mode traps.
//!
//! In the kernel, the GS base points to the data of the running CPU ([`CpuLocal`]).

mod acpi;
pub(crate) mod apic;
mod boot;
pub(crate) mod context;
pub(crate) mod description;
pub(crate) mod interrupts;
pub(crate) mod io;
pub(crate) mod mmu;
pub(crate) mod smp;
pub(crate) mod timer;
mod trap;

use core::arch::{asm, global_asm};
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use pagewright_sync::RankSet;
use pagewright_types::CpuId;
use x86_64::structures::gdt::GlobalDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

global_asm!(include_str!("boot.s"), options(att_syntax));
global_asm!(include_str!("trap.s"), options(att_syntax));

/// Per-CPU data; `trap.s` uses the first fields.
#[repr(C, align(64))]
pub(crate) struct CpuLocal {
    this: Cell<*const CpuLocal>,
    context_end: Cell<u64>,
    kernel_rsp: Cell<u64>,
    scratch: Cell<u64>,
    tss: UnsafeCell<TaskStateSegment>,
    id: Cell<CpuId>,
    /// Ranks of the locks held.
    pub(crate) held: Cell<RankSet>,
    /// A timer tick or a kick has arrived, and the CPU must leave user mode for it.
    pub(crate) need_resched: Cell<bool>,
    /// The ticks that met user mode and the kernel since they were taken.
    pub(crate) ticks: Cell<(u64, u64)>,
    gdt: UnsafeCell<GlobalDescriptorTable>,
}

const _: () = {
    assert!(offset_of!(CpuLocal, context_end) == 8);
    assert!(offset_of!(CpuLocal, kernel_rsp) == 16);
    assert!(offset_of!(CpuLocal, scratch) == 24);
    assert!(offset_of!(CpuLocal, tss) + offset_of!(TaskStateSegment, privilege_stack_table) == 36);
};

// SAFETY: each CPU accesses only its own data, through its GS base.
unsafe impl Sync for CpuLocal {}

impl CpuLocal {
    pub(crate) const fn new() -> Self {
        Self {
            this: Cell::new(core::ptr::null()),
            context_end: Cell::new(0),
            kernel_rsp: Cell::new(0),
            scratch: Cell::new(0),
            tss: UnsafeCell::new(TaskStateSegment::new()),
            id: Cell::new(CpuId::new(0)),
            held: Cell::new(RankSet::EMPTY),
            need_resched: Cell::new(false),
            ticks: Cell::new((0, 0)),
            gdt: UnsafeCell::new(GlobalDescriptorTable::new()),
        }
    }
}

/// The data of the running CPU.
#[inline]
pub(crate) fn local() -> &'static CpuLocal {
    let this: *const CpuLocal;
    // SAFETY: since `trap::install` the GS base points to this CPU's data, whose first word is its
    // own address. The data are static.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly));
        &*this
    }
}

/// The running CPU.
#[inline]
pub(crate) fn cpu() -> CpuId {
    local().id.get()
}

/// Pauses in a loop that waits for another CPU (`PAUSE`).
#[inline]
pub(crate) fn pause() {
    core::hint::spin_loop();
}

/// Sends the shootdown IPI to another CPU.
pub(crate) fn send_ipi(cpu: CpuId) {
    apic::send(smp::hardware_id(cpu), trap::SHOOTDOWN);
}

/// Interrupts another CPU, which then leaves user mode or wakes up.
pub(crate) fn kick(cpu: CpuId) {
    apic::send(smp::hardware_id(cpu), trap::KICK);
}
