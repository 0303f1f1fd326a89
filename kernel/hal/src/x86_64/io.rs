//! The first serial port, QEMU's debug console, and power-off.

use spin::LazyLock;
use spin::Mutex;
use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};
use x86_64::instructions::port::Port;

const COM1: u16 = 0x3f8;
/// QEMU's `isa-debugcon`.
const DEBUG_CONSOLE: u16 = 0xe9;
/// QEMU's `isa-debug-exit`, as the boot command places it.
const DEBUG_EXIT: u16 = 0x501;

static UART: LazyLock<Mutex<Option<Uart16550<PioBackend>>>> = LazyLock::new(|| {
    // SAFETY: COM1 is a serial port on every PC, and has no other user.
    let uart = unsafe { Uart16550::new_port(COM1) }.ok();
    // Output to a missing port is dropped.
    Mutex::new(uart.and_then(|mut uart| uart.init(Config::default()).is_ok().then_some(uart)))
});

/// Sends bytes over the serial line.
///
/// Line feeds get no carriage return, because the host's end is a file or a pipe.
pub(crate) fn send(bytes: &[u8]) {
    if let Some(uart) = UART.lock().as_mut() {
        uart.send_bytes_exact(bytes);
    }
}

/// Takes a byte that has arrived on the serial line.
pub(crate) fn receive() -> Option<u8> {
    UART.lock().as_mut()?.try_receive_byte().ok()
}

/// Sends bytes to the host.
pub(crate) fn report(bytes: &[u8]) {
    for byte in bytes {
        // SAFETY: without the device the port does nothing.
        unsafe { Port::new(DEBUG_CONSOLE).write(*byte) };
    }
}

/// Ends QEMU, whose exit status becomes 2·`status` + 1.
///
/// The report has the status itself.
pub(crate) fn power_off(status: u8) -> ! {
    // SAFETY: without the device the port does nothing.
    unsafe { Port::new(DEBUG_EXIT).write(u32::from(status)) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
