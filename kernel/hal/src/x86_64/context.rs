//! User mode as a call.
//!
//! [`UserContext::run`] loads the registers, leaves the kernel, and returns with the registers as
//! they were at the next trap. Shootdowns that come meanwhile are served here. An interrupt that
//! wants more, and has come in the kernel, ends it before it begins (Linux's `TIF_NEED_RESCHED`).
//!
//! Floating-point registers are not touched by the kernel, which is compiled without; so they are
//! loaded and saved only where a CPU changes from one context to another ([`UserContext::load`],
//! [`UserContext::save`]), and with them the thread pointer.

use super::trap::{self, PAGE_FAULT, SYSCALL};
use super::{interrupts, local, mmu};
use crate::kernel::{Exception, Trap};
use core::arch::asm;
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};
use x86_64::registers::model_specific::FsBase;

/// General registers, in the order in which `trap.s` pushes them.
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
/// Interrupts open, and the bit that is always set.
const FLAGS: u64 = 1 << 9 | 1 << 1;
/// What user mode may choose of the flags: condition codes, direction, trap, alignment check.
const USER_FLAGS: u64 = 0x24_0dd5;

/// What `FXSAVE` stores.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Floating([u8; 512]);

impl Floating {
    /// As after a reset, with every exception masked.
    const fn new() -> Self {
        let mut area = [0; 512];
        // FCW 0x37f, MXCSR 0x1f80.
        (area[0], area[1]) = (0x7f, 0x03);
        (area[24], area[25]) = (0x80, 0x1f);
        Self(area)
    }

    /// The bytes, as `FXSAVE` has them.
    pub fn bytes(&self) -> &[u8; 512] {
        &self.0
    }

    /// The bytes, to be stored to.
    pub fn bytes_mut(&mut self) -> &mut [u8; 512] {
        &mut self.0
    }
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
}

impl UserContext {
    /// A thread that starts at `pc` with its stack at `sp`.
    pub fn new(pc: VirtAddr, sp: VirtAddr) -> Self {
        let registers = Registers { rip: pc.raw(), rsp: sp.raw(), rflags: FLAGS, ..Registers::default() };
        Self { registers, floating: Floating::new(), thread_pointer: 0 }
    }

    /// The system call asked for, and its arguments.
    pub fn syscall(&self) -> (u64, [u64; 6]) {
        let r = &self.registers;
        (r.rax, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// Sets what the system call answers.
    pub fn set_result(&mut self, value: u64) {
        self.registers.rax = value;
    }

    /// Goes back to before the system call `number`, so that it is made again.
    pub fn repeat(&mut self, number: u64, _first: u64) {
        self.registers.rax = number;
        // SYSCALL is two bytes long.
        self.registers.rip -= 2;
    }

    /// Where it goes on.
    pub fn pc(&self) -> VirtAddr {
        VirtAddr::new(self.registers.rip)
    }

    /// Its stack.
    pub fn sp(&self) -> VirtAddr {
        VirtAddr::new(self.registers.rsp)
    }

    /// Changes its stack.
    pub fn set_sp(&mut self, sp: VirtAddr) {
        self.registers.rsp = sp.raw();
    }

    /// The thread pointer (`FS` base).
    pub fn thread_pointer(&self) -> u64 {
        self.thread_pointer
    }

    /// Changes the thread pointer, also of the CPU that runs it.
    pub fn set_thread_pointer(&mut self, value: u64) {
        self.thread_pointer = value;
        FsBase::write(x86_64::VirtAddr::new_truncate(value));
    }

    /// The same for a thread that no CPU has loaded.
    pub fn set_thread_pointer_unloaded(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    /// Puts into this CPU what it keeps between traps.
    pub fn load(&mut self) {
        FsBase::write(x86_64::VirtAddr::new_truncate(self.thread_pointer));
        // MXCSR's reserved bits fault; a signal handler may have set them.
        self.floating.0[26] = 0;
        self.floating.0[27] = 0;
        // SAFETY: the area is aligned, and every value of it that passes the line above can be
        // loaded.
        unsafe { asm!("fxrstor64 [{}]", in(reg) &raw const self.floating, options(nostack)) };
    }

    /// Gives a running thread the floating-point registers that it began with.
    pub fn reset_floating(&mut self) {
        self.floating = Floating::new();
        self.load();
    }

    /// Takes it out again.
    pub fn save(&mut self) {
        // SAFETY: the area is aligned and ours.
        unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut self.floating, options(nostack)) };
    }

    /// Runs user mode until something traps.
    ///
    /// The space that this CPU runs is the thread's, and [`UserContext::load`] was called here.
    pub fn run(&mut self) -> Trap {
        loop {
            let r = &mut self.registers;
            if r.rip >= mmu::Isa::USER_END.raw() {
                return Trap::Fault { va: VirtAddr::new(r.rip), access: Access::Exec };
            }
            r.cs = USER_CODE;
            r.ss = USER_DATA;
            r.rflags = r.rflags & USER_FLAGS | FLAGS;
            interrupts::close();
            if local().attention.take() {
                interrupts::open();
                return Trap::Interrupt;
            }
            // SAFETY: the registers are user mode's: its selectors, an address of its own,
            // interrupts open.
            unsafe { enter_user(r) };
            let (vector, error, address) = (r.vector, r.error, trap::fault_address());
            let interrupted = trap::serve_interrupt(vector);
            interrupts::open();
            if !interrupted {
                return trap_of(vector, error, address);
            }
        }
    }
}

fn trap_of(vector: u64, error: u64, address: u64) -> Trap {
    match vector {
        SYSCALL => Trap::Syscall,
        PAGE_FAULT => {
            let access = match (error & 1 << 4 != 0, error & 1 << 1 != 0) {
                (true, _) => Access::Exec,
                (false, true) => Access::Write,
                (false, false) => Access::Read,
            };
            Trap::Fault { va: VirtAddr::new(address), access }
        }
        0 | 16 | 19 => Trap::Exception(Exception::Arithmetic),
        1 | 3 => Trap::Exception(Exception::Breakpoint),
        6 => Trap::Exception(Exception::Illegal),
        17 => Trap::Exception(Exception::Misaligned),
        _ => Trap::Exception(Exception::Protection),
    }
}

/// `CPUID` leaf 1, `EDX`.
pub(crate) fn hardware_capabilities() -> u64 {
    u64::from(core::arch::x86_64::__cpuid(1).edx)
}
