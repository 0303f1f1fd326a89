//! Traps: what the kernel does about interrupts and faults of its own.
//!
//! Traps from user mode don't come here: they end [`super::context::UserContext::run`].

use super::context::{INTERRUPT, Registers, SYNCHRONOUS};
use super::user::fixup;
use super::{CpuLocal, gic, local, timer};
use crate::boot::CPUS;
use crate::kernel::kernel;
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable, TPIDR_EL1, VBAR_EL1, Writeable};
use pagewright_types::CpuId;

static LOCALS: [CpuLocal; CPUS] = [const { CpuLocal::new() }; CPUS];

unsafe extern "C" {
    safe fn trap_vectors();
}

/// Gives this CPU its vectors and its own data.
pub(super) fn install(cpu: CpuId) {
    let own = &LOCALS[cpu.index()];
    own.id.set(cpu);
    TPIDR_EL1.set((&raw const *own).expose_provenance() as u64);
    VBAR_EL1.set(trap_vectors as *const () as u64);
    barrier::isb(barrier::SY);
}

/// Serves the interrupt that has come, in the kernel or in user mode.
pub(super) fn serve_interrupt() {
    gic::handle(|interrupt| {
        if interrupt == gic::SHOOTDOWN {
            kernel().handle_ipi();
        } else {
            if interrupt == gic::TICK {
                timer::tick_again();
            }
            local().attention.set(true);
        }
    });
}

/// The kernel's stack was too small, from `trap.s`, on a stack for this.
#[unsafe(no_mangle)]
extern "C" fn stack_overflowed(pc: u64) -> ! {
    panic!("the kernel's stack has overflowed, at {pc:#x}");
}

/// Data abort without a change of level (Arm ARM D17.2.37).
const DATA_ABORT: u64 = 0x25;

/// A trap in the kernel, from `trap.s`.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(registers: &mut Registers) {
    if registers.kind == INTERRUPT {
        serve_interrupt();
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
