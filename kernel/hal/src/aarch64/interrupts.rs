//! Enabling and disabling interrupts on this CPU.

use aarch64_cpu::registers::{DAIF, Readable};
use core::arch::asm;

#[inline]
pub(crate) fn are_enabled() -> bool {
    !DAIF.is_set(DAIF::I)
}

#[inline]
pub(crate) fn enable() {
    // SAFETY: the handlers are installed before interrupts are first enabled.
    unsafe { asm!("msr daifclr, #2", options(nostack)) }
}

#[inline]
pub(crate) fn disable() {
    // SAFETY: disabling interrupts only delays them.
    unsafe { asm!("msr daifset, #2", options(nostack)) }
}

/// Sleeps until an interrupt is pending, then enables interrupts.
///
/// WFI ends even with interrupts disabled, so none is lost.
pub(crate) fn wait() {
    // SAFETY: WFI only waits.
    unsafe { asm!("dsb sy", "wfi", options(nostack)) }
    enable();
}
