//! Traps taken in the kernel: interrupts, and faults on user memory.
//!
//! Traps from user mode end [`super::context::UserContext::run`] instead.

use super::context::{INTERRUPT, Registers, SYNCHRONOUS};
use super::{CpuLocal, gic, local, timer};
use crate::boot::CPUS;
use crate::kernel::kernel;
use crate::time;
use crate::user_asm::fixup;
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable, TPIDR_EL1, VBAR_EL1, Writeable};
use pagewright_types::CpuId;

static LOCALS: [CpuLocal; CPUS] = [const { CpuLocal::new() }; CPUS];

unsafe extern "C" {
    safe fn trap_vectors();
}

/// Installs the vectors and the per-CPU data of this CPU.
pub(super) fn install(cpu: CpuId) {
    let own = &LOCALS[cpu.index()];
    own.id.set(cpu);
    TPIDR_EL1.set((&raw const *own).expose_provenance() as u64);
    VBAR_EL1.set(trap_vectors as *const () as u64);
    barrier::isb(barrier::SY);
}

/// Handles the pending interrupt, taken in the kernel or in user mode.
pub(super) fn handle_interrupt(in_user_mode: bool) {
    gic::handle(|interrupt| {
        if interrupt == gic::SHOOTDOWN {
            kernel().handle_ipi();
        } else {
            if interrupt == gic::TICK {
                timer::rearm();
                time::count_tick(in_user_mode);
            }
            local().need_resched.set(true);
        }
    });
}

/// Reports a stack overflow of the kernel; called by `trap.s` on a separate stack.
#[unsafe(no_mangle)]
extern "C" fn stack_overflowed(pc: u64) -> ! {
    panic!("kernel stack overflow at {pc:#x}");
}

/// Exception class of a data abort from the same level (Arm ARM D17.2.37).
const DATA_ABORT: u64 = 0x25;

/// Handles a trap in the kernel; called by `trap.s`.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(registers: &mut Registers) {
    if registers.kind == INTERRUPT {
        handle_interrupt(false);
        return;
    }
    let (syndrome, address) = (ESR_EL1.get(), FAR_EL1.get());
    if registers.kind == SYNCHRONOUS
        && syndrome >> 26 == DATA_ABORT
        && let Some(pc) = fixup(registers.pc)
    {
        registers.pc = pc;
        return;
    }
    panic!("trap {} in the kernel, syndrome {syndrome:#x}, address {address:#x}: {registers:#x?}", registers.kind);
}
