//! The frame of a signal handler on x86-64 (`struct rt_sigframe`).
//!
//! Its layout is that of `arch/x86/include/asm/sigframe.h`:
//!
//! ```text
//!   sp     return address: the restorer       ← stack pointer of the handler
//!   +8     ucontext (304 bytes)
//!   +312   siginfo (128 bytes)
//!   …      FXSAVE area (512 bytes), aligned to 64
//! ```

use super::{SigAction, SigInfo, SignalSet, alternate_stack_top, get, put};
use crate::errno::Errno;
use crate::task::Thread;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// Empty: programs have the code that returns from a handler (`SA_RESTORER`).
pub(crate) const TRAMPOLINE: &[u8] = &[];

/// Bits of `rflags` that are clear when a handler starts.
const DIRECTION: u64 = 1 << 10;
const SINGLE_STEP: u64 = 1 << 8;
const RED_ZONE: u64 = 128;
const UCONTEXT: u64 = 304;
const FRAME: u64 = 8 + UCONTEXT + 128;
const FLOATING: u64 = 512;
/// Offsets in the `ucontext`.
const REGISTERS: usize = 40;
const FLOATING_POINTER: usize = REGISTERS + 184;
const MASK: usize = 296;

/// Pushes the frame of a handler, which runs next.
pub(super) fn push_frame(thread: &mut Thread, info: SigInfo, action: &SigAction, mask: SignalSet) -> Result<(), Errno> {
    thread.context.save();
    let (r, fault) = (thread.context.registers, thread.context.fault);
    let (start, len) = thread.signal_stack;
    let top = alternate_stack_top(thread, action).unwrap_or(r.rsp.wrapping_sub(RED_ZONE));
    let floating = top.wrapping_sub(FLOATING) & !63;
    let frame = (floating.wrapping_sub(FRAME) & !15).wrapping_sub(8);
    let mut bytes = [0; FRAME as usize];
    put(&mut bytes, 0, action.restorer);
    let context = &mut bytes[8..8 + UCONTEXT as usize];
    put(context, 16, start);
    put(context, 24, u64::from(if len == 0 { linux::SS_DISABLE } else { 0 }));
    put(context, 32, len);
    let saved = [
        r.r8,
        r.r9,
        r.r10,
        r.r11,
        r.r12,
        r.r13,
        r.r14,
        r.r15,
        r.rdi,
        r.rsi,
        r.rbp,
        r.rbx,
        r.rdx,
        r.rax,
        r.rcx,
        r.rsp,
        r.rip,
        r.rflags,
        0x2b_0000_0000_0033,
        fault.error,
        fault.vector,
        mask.0,
        fault.address,
        floating,
    ];
    for (index, value) in saved.into_iter().enumerate() {
        put(context, REGISTERS + index * 8, value);
    }
    put(context, MASK, mask.0);
    bytes[8 + UCONTEXT as usize..].copy_from_slice(&info.bytes());
    let area = *thread.context.floating.bytes();
    thread.space.write(VirtAddr::new(floating), &area)?;
    thread.space.write(VirtAddr::new(frame), &bytes)?;
    // A handler starts like any function, with the direction flag clear and default floating-point
    // modes, whatever the interrupted code chose (`handle_signal`).
    thread.context.reset_floating();
    let r = &mut thread.context.registers;
    r.rflags &= !(DIRECTION | SINGLE_STEP);
    r.rsp = frame;
    r.rip = action.handler;
    r.rdi = u64::from(info.signal);
    r.rsi = frame + 8 + UCONTEXT;
    r.rdx = frame + 8;
    r.rax = 0;
    Ok(())
}

/// Restores the registers that the handler interrupted (`rt_sigreturn`).
pub(crate) fn pop_frame(thread: &mut Thread) -> Result<(), Errno> {
    let context: [u8; UCONTEXT as usize] = thread.space.read_array(thread.context.sp())?;
    let at = |index: usize| get(&context, REGISTERS + index * 8);
    let floating = get(&context, FLOATING_POINTER);
    if floating != 0 {
        let area: [u8; FLOATING as usize] = thread.space.read_array(VirtAddr::new(floating))?;
        *thread.context.floating.bytes_mut() = area;
        thread.context.load();
    }
    let r = &mut thread.context.registers;
    (r.r8, r.r9, r.r10, r.r11) = (at(0), at(1), at(2), at(3));
    (r.r12, r.r13, r.r14, r.r15) = (at(4), at(5), at(6), at(7));
    (r.rdi, r.rsi, r.rbp, r.rbx) = (at(8), at(9), at(10), at(11));
    (r.rdx, r.rax, r.rcx, r.rsp) = (at(12), at(13), at(14), at(15));
    (r.rip, r.rflags) = (at(16), at(17));
    thread.blocked = SignalSet(get(&context, MASK)).blockable();
    Ok(())
}
