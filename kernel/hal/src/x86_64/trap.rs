//! Traps: the descriptor tables of each CPU, and traps taken in the kernel.
//!
//! Traps from user mode end [`super::context::UserContext::run`] instead.

use super::{CpuLocal, apic, local};
use crate::boot::CPUS;
use crate::kernel::kernel;
use crate::time;
use crate::user_asm::fixup;
use core::arch::asm;
use core::sync::atomic::AtomicU64;
use pagewright_types::CpuId;
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::instructions::tables::{lidt, load_tss};
use x86_64::registers::model_specific::{GsBase, KernelGsBase, LStar, Msr, SFMask};
use x86_64::registers::rflags::RFlags;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::Descriptor;

pub(crate) const PAGE_FAULT: u64 = 14;
const DOUBLE_FAULT: u64 = 8;
/// The shootdown IPI.
pub(crate) const SHOOTDOWN: u8 = 0xf0;
/// The kick: leave user mode, or wake up.
pub(crate) const KICK: u8 = 0xf1;
/// The timer tick.
pub(crate) const TICK: u8 = 0xf2;
/// A spurious interrupt, which needs no handling.
pub(crate) const SPURIOUS: u8 = 0xff;
/// Pushed by `syscall_entry` in place of a vector.
pub(crate) const SYSCALL: u64 = 0x100;

/// The kernel's code selector for SYSCALL; `trap.s` has the user's selectors.
const STAR: u64 = 0x0008 << 32;
const STUB_SIZE: usize = 16;

static LOCALS: [CpuLocal; CPUS] = [const { CpuLocal::new() }; CPUS];
/// 256 gates of two words.
static GATES: Once<[[AtomicU64; 2]; 256]> = Once::new();

unsafe extern "C" {
    safe fn trap_stubs();
    safe fn syscall_entry();
}

/// An interrupt gate, which disables interrupts.
fn gate(vector: usize) -> [AtomicU64; 2] {
    let handler = trap_stubs as *const () as u64 + (vector * STUB_SIZE) as u64;
    // The double fault has a separate stack; user mode may raise a breakpoint (INT3).
    let stack = u64::from(vector as u64 == DOUBLE_FAULT);
    let privilege = if vector == 3 { 3 } else { 0 };
    let low = (handler & 0xffff)
        | 0x08 << 16
        | stack << 32
        | (0x8e00 | privilege << 13) << 32
        | (handler >> 16 & 0xffff) << 48;
    [AtomicU64::new(low), AtomicU64::new(handler >> 32)]
}

#[repr(align(16))]
struct Stack(#[expect(dead_code, reason = "memory for the CPU only")] [u8; 16384]);
static mut DOUBLE_FAULT_STACK: Stack = Stack([0; 16384]);

/// Installs the descriptor tables and the per-CPU data of this CPU.
pub(super) fn install(cpu: CpuId) {
    let own = &LOCALS[cpu.index()];
    own.this.set(own);
    own.id.set(cpu);
    let gates = GATES.call_once(|| core::array::from_fn(gate));
    // SAFETY: only this CPU uses `own`, which is static, as the gates are. The selectors are those
    // of the entries appended here, and `trap.s` uses the user's. All CPUs share the stack for
    // double faults, which end the machine.
    unsafe {
        (*own.tss.get()).interrupt_stack_table[0] = VirtAddr::from_ptr((&raw const DOUBLE_FAULT_STACK).add(1));
        let gdt = &mut *own.gdt.get();
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        gdt.append(Descriptor::user_data_segment());
        gdt.append(Descriptor::user_code_segment());
        let tss = gdt.append(Descriptor::tss_segment_unchecked(own.tss.get()));
        (*own.gdt.get()).load_unsafe();
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
        load_tss(tss);
        let limit = (size_of_val(gates) - 1) as u16;
        lidt(&DescriptorTablePointer { limit, base: VirtAddr::from_ptr(gates) });
        GsBase::write(VirtAddr::from_ptr(own));
        KernelGsBase::write(VirtAddr::zero());
        Msr::new(0xc000_0081).write(STAR);
    }
    LStar::write(VirtAddr::new(syscall_entry as *const () as u64));
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::ALIGNMENT_CHECK
            | RFlags::NESTED_TASK,
    );
}

/// The address of the last page fault on this CPU (CR2).
pub(super) fn fault_address() -> u64 {
    let value: u64;
    // SAFETY: reading CR2 has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nostack, preserves_flags, nomem)) };
    value
}

/// Handles the trap `vector` if it is an interrupt, and returns whether it was one.
pub(super) fn handle_interrupt(vector: u64, in_user_mode: bool) -> bool {
    match u8::try_from(vector) {
        Ok(SHOOTDOWN) => {
            kernel().handle_ipi();
            apic::end_of_interrupt();
        }
        Ok(interrupt @ (KICK | TICK)) => {
            if interrupt == TICK {
                time::count_tick(in_user_mode);
            }
            local().need_resched.set(true);
            apic::end_of_interrupt();
        }
        Ok(SPURIOUS) => {}
        _ => return false,
    }
    true
}

/// Handles a trap in the kernel; called by `trap.s`.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(registers: &mut super::context::Registers) {
    if handle_interrupt(registers.vector, false) {
        return;
    }
    let address = fault_address();
    if registers.vector == PAGE_FAULT
        && let Some(pc) = fixup(registers.rip)
    {
        registers.rip = pc;
        return;
    }
    if registers.vector == DOUBLE_FAULT && super::mmu::is_guard(address) {
        panic!("kernel stack overflow at {:#x}", registers.rip);
    }
    panic!(
        "trap {} in the kernel, error {:#x}, address {address:#x}: {registers:#x?}",
        registers.vector, registers.error
    );
}
