//! Whether interrupts reach this CPU.

use aarch64_cpu::registers::{DAIF, Readable};
use core::arch::asm;

#[inline]
pub(crate) fn are_open() -> bool {
    !DAIF.is_set(DAIF::I)
}

#[inline]
pub(crate) fn open() {
    // SAFETY: handlers are installed before anybody opens.
    unsafe { asm!("msr daifclr, #2", options(nostack)) }
}

#[inline]
pub(crate) fn close() {
    // SAFETY: it only delays.
    unsafe { asm!("msr daifset, #2", options(nostack)) }
}

/// Sleeps until an interrupt comes, and opens them: WFI ends although they are closed, so none is
/// missed.
pub(crate) fn wait() {
    // SAFETY: it only waits.
    unsafe { asm!("dsb sy", "wfi", options(nostack)) }
    open();
}
