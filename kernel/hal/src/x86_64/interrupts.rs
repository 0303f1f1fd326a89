//! Whether interrupts reach this CPU.

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

/// Data ports of the two old interrupt controllers.
const PICS: [u16; 2] = [0x21, 0xa1];

/// Silences the old interrupt controllers, which firmware may have left open: their vectors are
/// exceptions'.
pub(crate) fn mask_pics() {
    for port in PICS {
        // SAFETY: nobody wants interrupts of theirs; without the device the port does nothing.
        unsafe { Port::<u8>::new(port).write(0xff) };
    }
}

#[inline]
pub(crate) fn are_open() -> bool {
    interrupts::are_enabled()
}

#[inline]
pub(crate) fn open() {
    interrupts::enable();
}

#[inline]
pub(crate) fn close() {
    interrupts::disable();
}

/// Opens them and sleeps until one comes; one that was waiting ends the sleep at once (STI takes
/// effect after HLT has begun).
pub(crate) fn wait() {
    interrupts::enable_and_hlt();
}
