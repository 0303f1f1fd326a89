//! User mode as a call.
//!
//! [`UserContext::run`] loads the registers, enters user mode, and returns at the next trap with
//! the registers saved. Shootdown IPIs are handled without returning. If a timer tick or a kick has
//! arrived in the kernel, `run` returns before it enters user mode (Linux's `TIF_NEED_RESCHED`).
//!
//! The kernel is compiled without floating point. The floating-point registers are therefore loaded
//! and saved only when a CPU switches contexts ([`UserContext::load`], [`UserContext::save`]), as
//! is the thread pointer.

use super::trap::{self, PAGE_FAULT, SYSCALL};
use super::{interrupts, local, mmu};
use crate::kernel::{Exception, FloatingException, Trap};
use core::arch::asm;
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};
use x86_64::registers::model_specific::FsBase;

/// General registers, in the layout of `trap.s`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are the registers'")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub(super) vector: u64,
    pub(super) error: u64,
    pub rip: u64,
    cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    ss: u64,
}

const _: () = assert!(size_of::<Registers>() == 176);

const USER_CODE: u64 = 0x23;
const USER_DATA: u64 = 0x1b;
/// RFLAGS with interrupts enabled and the bit that is always set.
const FLAGS: u64 = 1 << 9 | 1 << 1;
/// The bits of RFLAGS that user mode may set: condition codes, direction, trap, alignment check.
const USER_FLAGS: u64 = 0x24_0dd5;

/// Bits of the error code of a page fault (SDM vol. 3A §4.7).
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const USER_ACCESS: u64 = 1 << 2;
const FETCH: u64 = 1 << 4;

/// The floating-point registers, in the format of `FXSAVE`.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct FpState([u8; 512]);

impl FpState {
    /// The state after a reset, with every exception masked.
    const fn new() -> Self {
        let mut area = [0; 512];
        // FCW 0x37f, MXCSR 0x1f80.
        (area[0], area[1]) = (0x7f, 0x03);
        (area[24], area[25]) = (0x80, 0x1f);
        Self(area)
    }

    /// The first unmasked exception of the x87 unit (vector 16) or of SSE (`fpu__exception_code`).
    fn exception(&self, vector: u64) -> FloatingException {
        let word = |at: usize| u16::from_le_bytes([self.0[at], self.0[at + 1]]);
        let raised = if vector == 16 { word(2) & !word(0) } else { word(24) & !(word(24) >> 7) };
        match raised {
            raised if raised & 0x01 != 0 => FloatingException::Invalid,
            raised if raised & 0x04 != 0 => FloatingException::DivisionByZero,
            raised if raised & 0x08 != 0 => FloatingException::Overflow,
            raised if raised & 0x12 != 0 => FloatingException::Underflow,
            raised if raised & 0x20 != 0 => FloatingException::Inexact,
            _ => FloatingException::Unknown,
        }
    }

    /// The bytes in the format of `FXSAVE`.
    pub fn bytes(&self) -> &[u8; 512] {
        &self.0
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8; 512] {
        &mut self.0
    }
}

/// The exception that last sent the thread a signal, as the frame of a handler shows it.
///
/// Linux: `cr2`, `trap_nr` and `error_code` of `thread_struct`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRecord {
    /// The address of the last page fault among them (CR2).
    pub address: u64,
    /// The vector.
    pub vector: u64,
    /// The error code.
    pub error: u64,
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
}

impl UserContext {
    /// Creates the context of a thread that starts at `pc` with its stack at `sp`.
    pub fn new(pc: VirtAddr, sp: VirtAddr) -> Self {
        let registers = Registers { rip: pc.raw(), rsp: sp.raw(), rflags: FLAGS, ..Registers::default() };
        Self { registers, floating: FpState::new(), fault: FaultRecord::default(), thread_pointer: 0 }
    }

    /// The number and the arguments of the system call.
    pub fn syscall(&self) -> (u64, [u64; 6]) {
        let r = &self.registers;
        (r.rax, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// Sets the result of the system call.
    pub fn set_syscall_result(&mut self, value: u64) {
        self.registers.rax = value;
    }

    /// Restarts the system call `number`.
    pub fn restart_syscall(&mut self, number: u64, _first: u64) {
        self.registers.rax = number;
        // SYSCALL is two bytes long.
        self.registers.rip -= 2;
    }

    /// The program counter.
    pub fn pc(&self) -> VirtAddr {
        VirtAddr::new(self.registers.rip)
    }

    /// The stack pointer.
    pub fn sp(&self) -> VirtAddr {
        VirtAddr::new(self.registers.rsp)
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: VirtAddr) {
        self.registers.rsp = sp.raw();
    }

    /// The thread pointer (`FS` base).
    pub fn thread_pointer(&self) -> u64 {
        self.thread_pointer
    }

    /// Sets the thread pointer, in the context and in this CPU, which has it loaded.
    pub fn set_thread_pointer(&mut self, value: u64) {
        self.thread_pointer = value;
        FsBase::write(x86_64::VirtAddr::new_truncate(value));
    }

    /// Sets the thread pointer of a context that no CPU has loaded.
    pub fn set_thread_pointer_unloaded(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    /// Loads the floating-point registers and the thread pointer into this CPU.
    pub fn load(&mut self) {
        FsBase::write(x86_64::VirtAddr::new_truncate(self.thread_pointer));
        // Reserved bits of MXCSR fault when loaded; a signal handler may have set them.
        self.floating.0[26] = 0;
        self.floating.0[27] = 0;
        // SAFETY: the area is aligned, and without reserved bits of MXCSR every value is valid.
        unsafe { asm!("fxrstor64 [{}]", in(reg) &raw const self.floating, options(nostack)) };
    }

    /// Resets the floating-point registers of the running thread.
    pub fn reset_floating(&mut self) {
        self.floating = FpState::new();
        self.load();
    }

    /// Saves the floating-point registers of this CPU.
    pub fn save(&mut self) {
        // SAFETY: the area is aligned and borrowed mutably.
        unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut self.floating, options(nostack)) };
    }

    /// Records the page fault that the last trap was, which sends a signal (`set_signal_archinfo`).
    ///
    /// As in Linux, a program learns nothing about the kernel's half: each access there is reported
    /// as a violation.
    pub fn record_fault(&mut self, address: VirtAddr) {
        let is_kernel = address >= mmu::Isa::USER_END;
        let error = self.registers.error | USER_ACCESS | if is_kernel { PRESENT } else { 0 };
        self.fault = FaultRecord { address: address.raw(), vector: PAGE_FAULT, error };
    }

    /// Records the exception that the last trap was, which sends a signal (`do_trap_no_signal`).
    pub fn record_exception(&mut self, _exception: Exception) {
        (self.fault.vector, self.fault.error) = (self.registers.vector, self.registers.error);
    }

    /// Runs user mode until the next trap.
    ///
    /// This CPU must run the thread's space and have called [`UserContext::load`].
    // Each trap passes here, and the only caller is the loop of a CPU.
    #[inline(always)]
    pub fn run(&mut self) -> Trap {
        loop {
            let r = &mut self.registers;
            if r.rip >= mmu::Isa::USER_END.raw() {
                (r.vector, r.error) = (PAGE_FAULT, FETCH);
                return Trap::Fault { va: VirtAddr::new(r.rip), access: Access::Exec };
            }
            r.cs = USER_CODE;
            r.ss = USER_DATA;
            r.rflags = r.rflags & USER_FLAGS | FLAGS;
            interrupts::disable();
            if local().need_resched.take() {
                interrupts::enable();
                return Trap::Interrupt;
            }
            // SAFETY: the registers have user selectors, a user address, and interrupts enabled.
            unsafe { enter_user(r) };
            let (vector, error, address) = (r.vector, r.error, trap::fault_address());
            let interrupted = trap::handle_interrupt(vector, true);
            interrupts::enable();
            if !interrupted {
                return self.trap_of(vector, error, address);
            }
        }
    }

    // Each trap passes here.
    #[inline(always)]
    fn trap_of(&mut self, vector: u64, error: u64, address: u64) -> Trap {
        match vector {
            SYSCALL => Trap::Syscall,
            PAGE_FAULT => {
                let access = match (error & FETCH != 0, error & WRITE != 0) {
                    (true, _) => Access::Exec,
                    (false, true) => Access::Write,
                    (false, false) => Access::Read,
                };
                Trap::Fault { va: VirtAddr::new(address), access }
            }
            _ => Trap::Exception(self.exception_of(vector)),
        }
    }

    #[cold]
    fn exception_of(&mut self, vector: u64) -> Exception {
        match vector {
            0 => Exception::Division,
            1 => Exception::SingleStep,
            3 => Exception::Breakpoint,
            6 => Exception::Undefined,
            11 | 12 => Exception::Segment,
            16 | 19 => {
                self.save();
                Exception::FloatingPoint(self.floating.exception(vector))
            }
            // The CPU does not report the address.
            17 => Exception::Misaligned(VirtAddr::ZERO),
            _ => Exception::Protection,
        }
    }
}

/// EDX of `CPUID` leaf 1.
pub(crate) fn hardware_capabilities() -> u64 {
    u64::from(core::arch::x86_64::__cpuid(1).edx)
}
