//! User mode as a call.
//!
//! [`UserContext::run`] loads the registers, enters user mode, and returns at the next trap with
//! the registers saved. Shootdown IPIs are handled without returning. If a timer tick or a kick has
//! arrived in the kernel, `run` returns before it enters user mode (Linux's `TIF_NEED_RESCHED`).
//!
//! The kernel is compiled without floating point. The floating-point registers are therefore loaded
//! and saved only when a CPU switches contexts ([`UserContext::load`], [`UserContext::save`]), as
//! is the thread pointer, which user mode sets itself.

use super::{interrupts, local, mmu, trap};
use crate::kernel::{Exception, FloatingException, Trap};
use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable, TPIDR_EL0, Writeable};
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};

/// General registers, in the layout of `trap.s`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are the registers'")]
pub struct Registers {
    pub x: [u64; 31],
    pub sp: u64,
    pub pc: u64,
    pub pstate: u64,
    pub(super) kind: u64,
    /// ESR_EL1 of the last synchronous exception.
    syndrome: u64,
}

const _: () = assert!(size_of::<Registers>() == 288);

/// Kinds of traps, which the vectors of `trap.s` store.
pub(super) const SYNCHRONOUS: u64 = 0;
pub(super) const INTERRUPT: u64 = 1;

/// The bits of PSTATE that user mode may set: the condition flags.
const USER_FLAGS: u64 = 0xf << 28;

/// The FPSIMD registers.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct FpState {
    /// V0 to V31.
    pub registers: [u8; 512],
    /// FPSR.
    pub status: u64,
    /// FPCR.
    pub control: u64,
}

/// The exception that last sent the thread a signal, as the frame of a handler shows it.
///
/// Linux: `fault_address` and `fault_code` of `thread_struct`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRecord {
    /// The address (FAR_EL1).
    pub address: u64,
    /// The syndrome (ESR_EL1); 0 if the frame has none.
    pub syndrome: u64,
}

/// A thread's registers.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct UserContext {
    /// General registers.
    ///
    /// Bits that user mode may not set are corrected before user mode is entered.
    pub registers: Registers,
    /// Floating-point registers, while no CPU has them loaded.
    pub floating: FpState,
    /// The exception that last sent the thread a signal.
    pub fault: FaultRecord,
    thread_pointer: u64,
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers);
    fn save_floating(to: *mut FpState);
    fn load_floating(from: *const FpState);
}

impl UserContext {
    /// Creates the context of a thread that starts at `pc` with its stack at `sp`.
    pub fn new(pc: VirtAddr, sp: VirtAddr) -> Self {
        let registers = Registers { x: [0; 31], sp: sp.raw(), pc: pc.raw(), pstate: 0, kind: 0, syndrome: 0 };
        let floating = FpState { registers: [0; 512], status: 0, control: 0 };
        Self { registers, floating, fault: FaultRecord::default(), thread_pointer: 0 }
    }

    /// The number and the arguments of the system call.
    pub fn syscall(&self) -> (u64, [u64; 6]) {
        let x = &self.registers.x;
        (x[8], [x[0], x[1], x[2], x[3], x[4], x[5]])
    }

    /// Sets the result of the system call.
    pub fn set_syscall_result(&mut self, value: u64) {
        self.registers.x[0] = value;
    }

    /// Restarts the system call `number` with its first argument.
    pub fn restart_syscall(&mut self, number: u64, first: u64) {
        self.registers.x[8] = number;
        self.registers.x[0] = first;
        // SVC is four bytes long.
        self.registers.pc -= 4;
    }

    /// The program counter.
    pub fn pc(&self) -> VirtAddr {
        VirtAddr::new(self.registers.pc)
    }

    /// The stack pointer.
    pub fn sp(&self) -> VirtAddr {
        VirtAddr::new(self.registers.sp)
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: VirtAddr) {
        self.registers.sp = sp.raw();
    }

    /// Sets the thread pointer (`TPIDR_EL0`) of a context that no CPU has loaded.
    pub fn set_thread_pointer_unloaded(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    /// Loads the floating-point registers and the thread pointer into this CPU.
    pub fn load(&mut self) {
        TPIDR_EL0.set(self.thread_pointer);
        // SAFETY: the area is borrowed, and every value of it is valid in the registers.
        unsafe { load_floating(&raw const self.floating) };
    }

    /// Loads the floating-point registers, and keeps the thread pointer.
    ///
    /// Linux: `rt_sigreturn` does not restore it.
    pub fn load_keeping_thread_pointer(&mut self) {
        self.thread_pointer = TPIDR_EL0.get();
        self.load();
    }

    /// Saves the floating-point registers and the thread pointer of this CPU.
    pub fn save(&mut self) {
        self.thread_pointer = TPIDR_EL0.get();
        // SAFETY: the area is borrowed mutably.
        unsafe { save_floating(&raw mut self.floating) };
    }

    /// Records the abort that the last trap was, which sends a signal (`set_thread_esr`).
    ///
    /// As in Linux, a program learns nothing about the kernel's half: each access there is reported
    /// as a translation fault at level 0.
    pub fn record_fault(&mut self, address: VirtAddr) {
        let syndrome = self.registers.syndrome;
        let shown = match syndrome >> CLASS_SHIFT {
            _ if address < mmu::Isa::USER_END => syndrome,
            DATA_ABORT => syndrome & (CLASS | LENGTH | CACHE_MAINTENANCE | WRITE) | TRANSLATION,
            _ => syndrome & (CLASS | LENGTH) | TRANSLATION,
        };
        self.fault = FaultRecord { address: address.raw(), syndrome: shown };
    }

    /// Records the exception that the last trap was, which sends a signal (`arm64_notify_die`).
    pub fn record_exception(&mut self, exception: Exception) {
        let syndrome = self.registers.syndrome;
        match exception {
            Exception::Misaligned(address) if syndrome >> CLASS_SHIFT == DATA_ABORT => self.record_fault(address),
            Exception::Misaligned(_) => self.fault = FaultRecord { address: 0, syndrome },
            Exception::Undefined => self.fault = FaultRecord::default(),
            Exception::Division
            | Exception::FloatingPoint(_)
            | Exception::Breakpoint
            | Exception::SingleStep
            | Exception::Protection
            | Exception::Segment => {}
        }
    }

    /// Runs user mode until the next trap.
    ///
    /// This CPU must run the thread's space and have called [`UserContext::load`].
    ///
    /// # Panics
    /// On a trap that user mode cannot cause, such as an SError.
    // Each trap passes here, and the only caller is the loop of a CPU.
    #[inline(always)]
    pub fn run(&mut self) -> Trap {
        loop {
            let r = &mut self.registers;
            if r.pc >= mmu::Isa::USER_END.raw() {
                r.syndrome = INSTRUCTION_ABORT << CLASS_SHIFT | LENGTH;
                return Trap::Fault { va: VirtAddr::new(r.pc), access: Access::Exec };
            }
            // EL0, AArch64 state, no exceptions masked.
            r.pstate &= USER_FLAGS;
            interrupts::disable();
            if local().need_resched.take() {
                interrupts::enable();
                return Trap::Interrupt;
            }
            // SAFETY: the registers enter EL0 at a user address with interrupts enabled.
            unsafe { enter_user(r) };
            let (kind, syndrome, address) = (r.kind, ESR_EL1.get(), FAR_EL1.get());
            if kind == INTERRUPT {
                trap::handle_interrupt(true);
            }
            interrupts::enable();
            match kind {
                INTERRUPT => {}
                SYNCHRONOUS => {
                    r.syndrome = syndrome;
                    return trap_of(syndrome, address, r.sp);
                }
                _ => panic!(
                    "trap {kind} in user mode, syndrome {syndrome:#x}, address {address:#x}: {:#x?}",
                    self.registers
                ),
            }
        }
    }
}

/// The exception class, and whether the instruction has 32 bits (ESR_ELx.EC, IL).
const CLASS_SHIFT: u32 = 26;
const CLASS: u64 = 0x3f << CLASS_SHIFT;
const LENGTH: u64 = 1 << 25;
/// Classes of aborts from user mode (Arm ARM D17.2.37).
const INSTRUCTION_ABORT: u64 = 0x20;
const DATA_ABORT: u64 = 0x24;
/// Bits of the syndrome of a data abort (WnR, CM), and values of its status (DFSC).
const WRITE: u64 = 1 << 6;
const CACHE_MAINTENANCE: u64 = 1 << 8;
const STATUS: u64 = 0x3f;
const ALIGNMENT: u64 = 0x21;
const TRANSLATION: u64 = 0x04;

/// The trap of a synchronous exception, by its class (Arm ARM D17.2.37).
fn trap_of(syndrome: u64, address: u64, sp: u64) -> Trap {
    let va = VirtAddr::new(address);
    match syndrome >> CLASS_SHIFT {
        0x15 => Trap::Syscall,
        INSTRUCTION_ABORT => Trap::Fault { va, access: Access::Exec },
        DATA_ABORT if syndrome & STATUS == ALIGNMENT => Trap::Exception(Exception::Misaligned(va)),
        DATA_ABORT => {
            // Cache maintenance is reported as a store but needs read permission only.
            let write = syndrome & WRITE != 0 && syndrome & CACHE_MAINTENANCE == 0;
            Trap::Fault { va, access: if write { Access::Write } else { Access::Read } }
        }
        0x22 => Trap::Exception(Exception::Misaligned(va)),
        // FAR_EL1 has no address of a misaligned stack pointer.
        0x26 => Trap::Exception(Exception::Misaligned(VirtAddr::new(sp))),
        0x2c => Trap::Exception(Exception::FloatingPoint(floating_exception(syndrome))),
        0x32 | 0x33 => Trap::Exception(Exception::SingleStep),
        0x30..=0x3c => Trap::Exception(Exception::Breakpoint),
        _ => Trap::Exception(Exception::Undefined),
    }
}

/// The floating-point exception of a syndrome (`do_fpsimd_exc`).
fn floating_exception(syndrome: u64) -> FloatingException {
    const VALID: u64 = 1 << 23;
    let kinds = [
        (1 << 0, FloatingException::Invalid),
        (1 << 1, FloatingException::DivisionByZero),
        (1 << 2, FloatingException::Overflow),
        (1 << 3, FloatingException::Underflow),
        (1 << 4, FloatingException::Inexact),
    ];
    let raised = kinds.iter().find(|(bit, _)| syndrome & VALID != 0 && syndrome & bit != 0);
    raised.map_or(FloatingException::Unknown, |(_, kind)| *kind)
}

/// `HWCAP_FP` and `HWCAP_ASIMD`, which every CPU has.
pub(crate) fn hardware_capabilities() -> u64 {
    0b11
}
