//! Enabling and disabling interrupts on this CPU.

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

/// Data ports of the two legacy interrupt controllers (8259 PICs).
const PICS: [u16; 2] = [0x21, 0xa1];

/// Masks the legacy interrupt controllers, whose vectors collide with exceptions.
pub(crate) fn mask_pics() {
    for port in PICS {
        // SAFETY: their interrupts are not used; without the device the port does nothing.
        unsafe { Port::<u8>::new(port).write(0xff) };
    }
}

#[inline]
pub(crate) fn are_enabled() -> bool {
    interrupts::are_enabled()
}

#[inline]
pub(crate) fn enable() {
    interrupts::enable();
}

#[inline]
pub(crate) fn disable() {
    interrupts::disable();
}

/// Enables interrupts and sleeps until one arrives.
///
/// STI takes effect after HLT has begun, so a pending interrupt ends the sleep at once.
pub(crate) fn wait() {
    interrupts::enable_and_hlt();
}
