//! The signal handlers, and the thunk to which they redirect the code that trapped.
//!
//! **INV-TRAP-RESUME** Code that traps at a privileged instruction goes on behind it, with all
//! registers, flags, vectors and its red zone as they were, except what the instruction writes,
//! also if other CPUs run meanwhile.
//!
//! ```text
//!   handler: RSP − 128 − 8 ◀─ RIP of the instruction;   RIP ◀─ thunk
//!   thunk:   pushes RFLAGS and the general registers; XSAVE of all vector state
//!            calls `service` with the pushed registers, where other CPUs may run
//!            XRSTOR; pops all;   ret 128 ─▶ RIP, and RSP as it was
//! ```
//!
//! - The 128 bytes below RSP are the red zone of the code (System V ABI, AMD64 §3.2.2), which
//!   nothing here writes.
//! - Everything is on the stack of the code, so a coroutine that is switched away in `service` has
//!   its own, and a nested trap has another frame.
//! - Redirected are only: a general-protection fault at an instruction that is decoded, while a
//!   check of an x86-64 machine runs on this thread; and what [`crate::stores`] names. Such a fault
//!   has changed no register. So code that is interrupted anywhere else is not resumed at a wrong
//!   place.
//! - `service` does not unwind: a panic becomes a finding. The thunk has unwind information all the
//!   same: the check looks for the caller of the code that trapped, to name it (INV-CHECK-USER).
//!
//! Not guaranteed: shadow stacks (CET), with which `ret` to a pushed address faults.

use crate::decode::{GeneralRegisters, decode};
use crate::execute::execute;
use crate::stores::{self, Redirected};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIGSEGV, SIGTRAP, SIGVTALRM};
use libc::{c_int, c_void, greg_t, sigaction, siginfo_t, ucontext_t};
use pagewright_check::{Cpu, X86_64, current, try_current};
use std::arch::{global_asm, x86_64::__cpuid_count};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handlers that were installed before, of the signals of [`install`].
static PREVIOUS: OnceLock<[sigaction; 3]> = OnceLock::new();
const SIGNALS: [c_int; 3] = [SIGSEGV, SIGTRAP, SIGVTALRM];

/// The size of the XSAVE area, in bytes; the thunk reads it.
#[unsafe(no_mangle)]
static PAGEWRIGHT_TRAP_XSAVE_BYTES: AtomicU64 = AtomicU64::new(0);

/// The size of the red zone.
const RED_ZONE: u64 = 128;

/// What the thunk pushes, in the order of addresses.
#[repr(C)]
pub(crate) struct Pushed {
    general: GeneralRegisters,
    pub(crate) flags: u64,
    /// The address of the instruction, and then of the next one.
    pub(crate) rip: u64,
}

const RSP: usize = 4;

unsafe extern "C" {
    fn pagewright_trap_thunk();
}

global_asm!(
    ".globl pagewright_trap_thunk",
    "pagewright_trap_thunk:",
    "pushfq",
    "push r15", "push r14", "push r13", "push r12", "push r11", "push r10", "push r9", "push r8",
    "push rdi", "push rsi", "push rbp", "push rsp", "push rbx", "push rdx", "push rcx", "push rax",
    "mov rbx, rsp",
    // How an unwinder gets from here to the code that trapped, whose RSP is above the red zone.
    ".cfi_startproc",
    ".cfi_signal_frame",
    ".cfi_def_cfa rbx, 272",
    ".cfi_offset rax, -272", ".cfi_offset rcx, -264", ".cfi_offset rdx, -256", ".cfi_offset rbx, -248",
    ".cfi_offset rbp, -232", ".cfi_offset rsi, -224", ".cfi_offset rdi, -216", ".cfi_offset r8, -208",
    ".cfi_offset r9, -200", ".cfi_offset r10, -192", ".cfi_offset r11, -184", ".cfi_offset r12, -176",
    ".cfi_offset r13, -168", ".cfi_offset r14, -160", ".cfi_offset r15, -152", ".cfi_offset rip, -136",
    "cld",
    "sub rsp, qword ptr [rip + PAGEWRIGHT_TRAP_XSAVE_BYTES]",
    "and rsp, -64",
    "mov r12, rsp",
    // XRSTOR requires the rest of the XSAVE header to be zero.
    "xor eax, eax",
    "lea rdi, [rsp + 512]",
    "mov ecx, 8",
    "rep stosq",
    "mov eax, -1",
    "mov edx, -1",
    "xsave64 [rsp]",
    "mov rdi, rbx",
    "call {service}",
    "mov rsp, r12",
    "mov eax, -1",
    "mov edx, -1",
    "xrstor64 [rsp]",
    "mov rsp, rbx",
    ".cfi_endproc",
    "pop rax", "pop rcx", "pop rdx", "pop rbx", "add rsp, 8", "pop rbp", "pop rsi", "pop rdi",
    "pop r8", "pop r9", "pop r10", "pop r11", "pop r12", "pop r13", "pop r14", "pop r15",
    "popfq",
    "ret 128",
    service = sym service,
);

/// Does what the handler has redirected the code for.
///
/// # Safety
/// `pushed` is what the thunk has pushed, at a trap that [`on_signal`] has redirected.
unsafe extern "C" fn service(pushed: *mut Pushed) {
    // SAFETY: INV-TRAP-RESUME: the thunk has pushed it on this stack, and uses it after the call.
    let pushed = unsafe { &mut *pushed };
    match stores::redirected_for() {
        Redirected::Privileged => execute_privileged(pushed),
        Redirected::Store(at) => stores::begin(pushed, at),
        Redirected::Stored => stores::end(),
        Redirected::Spin => stores::spin(),
    }
}

/// Executes the trapped instruction on the machine, and moves RIP behind it.
fn execute_privileged(pushed: &mut Pushed) {
    let code = pushed.rip as *const u8;
    // SAFETY: INV-TRAP-RESUME: the handler has decoded the instruction, whose bytes were executed.
    let byte = |at: usize| unsafe { code.wrapping_add(at).read() };
    let Some((instruction, length)) = decode(byte) else { return };
    pushed.general[RSP] = ptr::from_ref(&pushed.rip) as u64 + 8 + RED_ZONE;
    let cpu = current::<X86_64>();
    // SAFETY: the instruction reads its descriptor from that address, which the code vouches for.
    let read = |at: u64| unsafe { (at as *const [u64; 2]).read_unaligned() };
    let (general, next) = (&mut pushed.general, pushed.rip + length as u64);
    let execute = |cpu: &Cpu<X86_64>| execute(cpu, instruction, general, next, read);
    let executed = catch_unwind(AssertUnwindSafe(|| cpu.execute_trapped(code as usize, execute)));
    pushed.rip = next;
    if let Err(panic) = executed {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        cpu.report(format_args!("{instruction:?} cannot be executed: {}", text.unwrap_or("a panic")));
    }
}

/// Redirects the code to the thunk if it has trapped at an instruction that is routed.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    /// The `si_code` of a general-protection fault (Linux, `exc_general_protection`).
    const SI_KERNEL: c_int = 128;
    // SAFETY: the kernel passes it to a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // SAFETY: as above, and nothing else refers to it until the handler returns.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let rip = registers[libc::REG_RIP as usize] as u64;
    if code == SI_KERNEL && try_current::<X86_64>().is_some() {
        // SAFETY: the CPU has fetched the bytes of the instruction at RIP; no more are read.
        let byte = |at: usize| unsafe { (rip as *const u8).wrapping_add(at).read() };
        if decode(byte).is_some() {
            // SAFETY: the code has trapped, and its stack is the one that it runs on.
            unsafe { redirect(registers) };
            return;
        }
    }
    // SAFETY: the kernel passes it to a handler with SA_SIGINFO.
    let fault = unsafe { &*info };
    // SAFETY: SIGSEGV has an address.
    let address = unsafe { fault.si_addr() } as usize;
    match stores::on_fault(address, registers) {
        stores::Handled::Redirect => {
            // SAFETY: as above.
            unsafe { redirect(registers) };
            return;
        }
        stores::Handled::Resume => return,
        stores::Handled::No => {}
    }
    // SAFETY: the same signal, with what the kernel has passed.
    unsafe { chain(signal, info, ptr::from_mut(context).cast()) };
}

/// Redirects the code to the thunk.
///
/// # Safety
/// The registers are those of code that may be interrupted where it is, on its own stack.
unsafe fn redirect(registers: &mut [greg_t]) {
    let rip = registers[libc::REG_RIP as usize] as u64;
    let top = registers[libc::REG_RSP as usize] as u64 - RED_ZONE - 8;
    // SAFETY: INV-TRAP-RESUME: it is below the red zone, on the stack of the code.
    unsafe { (top as *mut u64).write(rip) };
    registers[libc::REG_RSP as usize] = top as greg_t;
    registers[libc::REG_RIP as usize] = pagewright_trap_thunk as *const () as greg_t;
}

/// Handles SIGTRAP after a stepped instruction, and SIGVTALRM of the timer.
unsafe extern "C" fn on_step_or_tick(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes it to a handler with SA_SIGINFO, and nothing else refers to it.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let handled = if signal == SIGTRAP { stores::on_step(registers) } else { stores::on_tick(registers) };
    match handled {
        // SAFETY: the stepped instruction is complete, or the code is in a spin loop.
        stores::Handled::Redirect => unsafe { redirect(registers) },
        stores::Handled::Resume => {}
        // SAFETY: the same signal, with what the kernel has passed.
        stores::Handled::No => unsafe { chain(signal, info, context) },
    }
}

/// Calls the handler that was there before.
///
/// # Safety
/// The arguments are those of a signal.
unsafe fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let index = SIGNALS.iter().position(|other| *other == signal);
    let Some(previous) = PREVIOUS.get().zip(index).map(|(previous, index)| &previous[index]) else { return };
    match previous.sa_sigaction {
        // The default action ends the process when the instruction faults again.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action is valid for every signal.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & SA_SIGINFO != 0 => {
            // SAFETY: it was installed with SA_SIGINFO, so it is a function of this type.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was installed without SA_SIGINFO, so it is a function of this type.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Installs the handler in front of the one that is there.
///
/// # Panics
/// When the kernel refuses it.
pub(crate) fn install() {
    // CPUID leaf 0xd: the size of the area for the features that are on (SDM vol. 1 §13.2).
    PAGEWRIGHT_TRAP_XSAVE_BYTES.store(u64::from(__cpuid_count(0xd, 0).ebx), Ordering::Relaxed);
    PREVIOUS.get_or_init(|| {
        SIGNALS.map(|signal| {
            let mut previous = MaybeUninit::<sigaction>::uninit();
            // SAFETY: the call writes the handler that is installed.
            let asked = unsafe { libc::sigaction(signal, ptr::null(), previous.as_mut_ptr()) };
            assert_eq!(asked, 0, "the handler of signal {signal} cannot be read");
            // SAFETY: the call has written it.
            unsafe { previous.assume_init() }
        })
    });
    for signal in SIGNALS {
        // SAFETY: zero is a valid value of every field: no flags, an empty mask.
        let mut action: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        let handler = if signal == SIGSEGV { on_signal } else { on_step_or_tick };
        action.sa_sigaction = handler as *const () as usize;
        // The mask is not restored where a coroutine is switched, so the signal is not blocked.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        // SAFETY: INV-TRAP-RESUME: the handler acts on nothing but what the kernel passes to it.
        let installed = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        assert_eq!(installed, 0, "the handler of signal {signal} cannot be installed");
    }
}
