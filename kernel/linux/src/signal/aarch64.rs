//! The frame of a signal handler on arm64 (`struct rt_sigframe`).
//!
//! Its layout is that of `arch/arm64/kernel/signal.c`:
//!
//! ```text
//!   sp      siginfo (128 bytes)                ← stack pointer of the handler
//!   +128    ucontext: flags, stack, mask; at +176 the sigcontext: address, x0 to x30, sp, pc, pstate; at +464 the records
//!           (FPSIMD, the syndrome of a fault, end), 4096 bytes
//!   +4688   a frame record: x29, x30
//! ```

use super::{SigAction, SigInfo, SignalSet, alternate_stack_top, get, put};
use crate::errno::Errno;
use crate::task::Thread;
use linux_raw_sys::general as linux;
use pagewright_types::VirtAddr;

/// The code that returns from a handler: `mov x8, #139; svc #0`.
///
/// C libraries use the kernel's, in the vDSO.
pub(crate) const TRAMPOLINE: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

const UCONTEXT: usize = 128;
const STACK: usize = UCONTEXT + 16;
const MASK: usize = UCONTEXT + 40;
const SIGCONTEXT: usize = UCONTEXT + 176;
const REGISTERS: usize = SIGCONTEXT + 8;
const RECORDS: usize = SIGCONTEXT + 288;
const SIZE: usize = RECORDS + 4096;
/// The FPSIMD record (head, status, control, 32 registers), that of a fault, and the end record.
const USED: usize = FPSIMD_SIZE as usize + FAULT_SIZE as usize + 16;
const FPSIMD_MAGIC: u32 = 0x4650_8001;
const FPSIMD_SIZE: u32 = 528;
/// `ESR_MAGIC`, of `struct esr_context`.
const FAULT_MAGIC: u32 = 0x4553_5201;
const FAULT_SIZE: u32 = 16;

/// Pushes the frame of a handler, which runs next.
pub(super) fn push_frame(thread: &mut Thread, info: SigInfo, action: &SigAction, mask: SignalSet) -> Result<(), Errno> {
    thread.context.save();
    let (r, fault) = (thread.context.registers, thread.context.fault);
    let (start, len) = thread.signal_stack;
    let top = alternate_stack_top(thread, action).unwrap_or(r.sp);
    let link = (top & !15).wrapping_sub(16);
    let frame = link.wrapping_sub(SIZE as u64);
    let mut bytes = [0; RECORDS + USED];
    bytes[..128].copy_from_slice(&info.bytes());
    put(&mut bytes, STACK, start);
    put(&mut bytes, STACK + 8, u64::from(if len == 0 { linux::SS_DISABLE } else { 0 }));
    put(&mut bytes, STACK + 16, len);
    put(&mut bytes, MASK, mask.0);
    put(&mut bytes, SIGCONTEXT, fault.address);
    for (index, value) in r.x.into_iter().chain([r.sp, r.pc, r.pstate]).enumerate() {
        put(&mut bytes, REGISTERS + index * 8, value);
    }
    let head = |magic: u32, size: u32| u64::from(size) << 32 | u64::from(magic);
    put(&mut bytes, RECORDS, head(FPSIMD_MAGIC, FPSIMD_SIZE));
    let floating = &thread.context.floating;
    put(&mut bytes, RECORDS + 8, floating.control << 32 | floating.status & 0xffff_ffff);
    bytes[RECORDS + 16..RECORDS + 528].copy_from_slice(&floating.registers);
    if fault.syndrome != 0 {
        put(&mut bytes, RECORDS + FPSIMD_SIZE as usize, head(FAULT_MAGIC, FAULT_SIZE));
        put(&mut bytes, RECORDS + FPSIMD_SIZE as usize + 8, fault.syndrome);
    }
    thread.space.write(VirtAddr::new(frame), &bytes)?;
    thread.space.write_u64(VirtAddr::new(link), r.x[29])?;
    thread.space.write_u64(VirtAddr::new(link + 8), r.x[30])?;
    let restorer = if action.flags & u64::from(linux::SA_RESTORER) != 0 {
        action.restorer
    } else {
        thread.actions.lock().trampoline.raw()
    };
    let r = &mut thread.context.registers;
    r.x[0] = u64::from(info.signal);
    r.x[1] = frame;
    r.x[2] = frame + UCONTEXT as u64;
    r.x[29] = link;
    r.x[30] = restorer;
    r.sp = frame;
    r.pc = action.handler;
    Ok(())
}

/// Restores the registers that the handler interrupted (`rt_sigreturn`).
pub(crate) fn pop_frame(thread: &mut Thread) -> Result<(), Errno> {
    let bytes: [u8; RECORDS + USED] = thread.space.read_array(thread.context.sp())?;
    if get(&bytes, RECORDS) as u32 == FPSIMD_MAGIC {
        let words = get(&bytes, RECORDS + 8);
        let floating = &mut thread.context.floating;
        (floating.status, floating.control) = (words & 0xffff_ffff, words >> 32);
        floating.registers.copy_from_slice(&bytes[RECORDS + 16..RECORDS + 528]);
        thread.context.load_keeping_thread_pointer();
    }
    let r = &mut thread.context.registers;
    for (index, value) in r.x.iter_mut().enumerate() {
        *value = get(&bytes, REGISTERS + index * 8);
    }
    r.sp = get(&bytes, REGISTERS + 31 * 8);
    r.pc = get(&bytes, REGISTERS + 32 * 8);
    r.pstate = get(&bytes, REGISTERS + 33 * 8);
    thread.blocked = SignalSet(get(&bytes, MASK)).blockable();
    Ok(())
}
