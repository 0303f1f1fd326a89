//! User mode as a call.
//!
//! [`UserContext::run`] loads the registers, leaves the kernel, and returns with the registers as
//! they were at the next trap. Shootdowns that come meanwhile are served here. An interrupt that
//! wants more, and has come in the kernel, ends it before it begins (Linux's `TIF_NEED_RESCHED`).
//!
//! Floating-point registers are not touched by the kernel, which is compiled without; so they are
//! loaded and saved only where a CPU changes from one context to another ([`UserContext::load`],
//! [`UserContext::save`]), and with them the thread pointer, which user mode sets by itself.

use super::{interrupts, local, mmu, trap};
use crate::kernel::{Exception, Trap};
use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable, TPIDR_EL0, Writeable};
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};

/// General registers, as `trap.s` stores them.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are the registers'")]
pub struct Registers {
    pub x: [u64; 31],
    pub sp: u64,
    pub pc: u64,
    pub pstate: u64,
    pub(super) kind: u64,
}

const _: () = assert!(size_of::<Registers>() == 288);

/// Kinds of traps, by the vector.
pub(super) const SYNCHRONOUS: u64 = 0;
pub(super) const INTERRUPT: u64 = 1;

/// What user mode may choose of PSTATE: the condition flags.
const USER_FLAGS: u64 = 0xf << 28;

/// FPSIMD registers.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Floating {
    /// V0 to V31.
    pub registers: [u8; 512],
    /// FPSR.
    pub status: u64,
    /// FPCR.
    pub control: u64,
}

/// A thread's registers.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct UserContext {
    /// General registers.
    ///
    /// What user mode may not choose is put right before it is entered.
    pub registers: Registers,
    /// Floating-point registers, while they are not in a CPU.
    pub floating: Floating,
    thread_pointer: u64,
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers);
    fn save_floating(to: *mut Floating);
    fn load_floating(from: *const Floating);
}

impl UserContext {
    /// A thread that starts at `pc` with its stack at `sp`.
    pub fn new(pc: VirtAddr, sp: VirtAddr) -> Self {
        let registers = Registers { x: [0; 31], sp: sp.raw(), pc: pc.raw(), pstate: 0, kind: 0 };
        Self { registers, floating: Floating { registers: [0; 512], status: 0, control: 0 }, thread_pointer: 0 }
    }

    /// The system call asked for, and its arguments.
    pub fn syscall(&self) -> (u64, [u64; 6]) {
        let x = &self.registers.x;
        (x[8], [x[0], x[1], x[2], x[3], x[4], x[5]])
    }

    /// Sets what the system call answers.
    pub fn set_result(&mut self, value: u64) {
        self.registers.x[0] = value;
    }

    /// Goes back to before the system call `number` with its first argument, so that it is made
    /// again.
    pub fn repeat(&mut self, number: u64, first: u64) {
        self.registers.x[8] = number;
        self.registers.x[0] = first;
        // SVC is four bytes long.
        self.registers.pc -= 4;
    }

    /// Where it goes on.
    pub fn pc(&self) -> VirtAddr {
        VirtAddr::new(self.registers.pc)
    }

    /// Its stack.
    pub fn sp(&self) -> VirtAddr {
        VirtAddr::new(self.registers.sp)
    }

    /// Changes its stack.
    pub fn set_sp(&mut self, sp: VirtAddr) {
        self.registers.sp = sp.raw();
    }

    /// Sets the thread pointer (`TPIDR_EL0`) of a thread that no CPU has loaded.
    pub fn set_thread_pointer_unloaded(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    /// Puts into this CPU what it keeps between traps.
    pub fn load(&mut self) {
        TPIDR_EL0.set(self.thread_pointer);
        // SAFETY: the area is ours, and every value of it can be loaded.
        unsafe { load_floating(&raw const self.floating) };
    }

    /// Takes it out again.
    pub fn save(&mut self) {
        self.thread_pointer = TPIDR_EL0.get();
        // SAFETY: the area is ours.
        unsafe { save_floating(&raw mut self.floating) };
    }

    /// Runs user mode until something traps.
    ///
    /// The space that this CPU runs is the thread's, and [`UserContext::load`] was called here.
    pub fn run(&mut self) -> Trap {
        loop {
            let r = &mut self.registers;
            if r.pc >= mmu::Isa::USER_END.raw() {
                return Trap::Fault { va: VirtAddr::new(r.pc), access: Access::Exec };
            }
            // EL0 in AArch64 state, nothing masked.
            r.pstate &= USER_FLAGS;
            interrupts::close();
            if local().attention.take() {
                interrupts::open();
                return Trap::Interrupt;
            }
            // SAFETY: the registers are user mode's: its level, an address of its own, interrupts
            // open.
            unsafe { enter_user(r) };
            let (kind, syndrome, address) = (r.kind, ESR_EL1.get(), FAR_EL1.get());
            if kind == INTERRUPT {
                trap::serve_interrupt();
            }
            interrupts::open();
            match kind {
                INTERRUPT => {}
                SYNCHRONOUS => return trap_of(syndrome, address),
                _ => panic!(
                    "trap {kind} in user mode, syndrome {syndrome:#x}, address {address:#x}: {:#x?}",
                    self.registers
                ),
            }
        }
    }
}

/// By the exception class (Arm ARM D17.2.37).
fn trap_of(syndrome: u64, address: u64) -> Trap {
    const WRITE: u64 = 1 << 6;
    const CACHE_MAINTENANCE: u64 = 1 << 8;
    const STATUS: u64 = 0x3f;
    const ALIGNMENT: u64 = 0x21;
    let va = VirtAddr::new(address);
    match syndrome >> 26 {
        0x15 => Trap::Syscall,
        0x20 => Trap::Fault { va, access: Access::Exec },
        0x24 if syndrome & STATUS == ALIGNMENT => Trap::Exception(Exception::Misaligned),
        0x24 => {
            // Cache maintenance is told as a store and needs only to be able to read.
            let write = syndrome & WRITE != 0 && syndrome & CACHE_MAINTENANCE == 0;
            Trap::Fault { va, access: if write { Access::Write } else { Access::Read } }
        }
        0x22 | 0x26 => Trap::Exception(Exception::Misaligned),
        0x2c => Trap::Exception(Exception::Arithmetic),
        0x30..=0x3c => Trap::Exception(Exception::Breakpoint),
        _ => Trap::Exception(Exception::Illegal),
    }
}

/// `HWCAP_FP`, `HWCAP_ASIMD`: what every CPU has.
pub(crate) fn hardware_capabilities() -> u64 {
    0b11
}
