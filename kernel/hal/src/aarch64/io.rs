//! The PL011 serial port, semihosting as the channel to the host, and power-off.

use super::mmu::LINEAR;
use arm_pl011_uart::{DataBits, LineConfig, PL011Registers, Parity, StopBits, Uart, UniqueMmioPointer};
use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use smccc::{Hvc, psci};
use spin::Mutex;

static UART: Mutex<Option<Uart<'static>>> = Mutex::new(None);
static REPORT: AtomicU64 = AtomicU64::new(NO_FILE);
const NO_FILE: u64 = u64::MAX;

/// Semihosting calls (Arm, Semihosting for AArch32 and AArch64, 2.0).
const SYS_OPEN: u64 = 0x01;
const SYS_WRITE: u64 = 0x05;
const SYS_EXIT_EXTENDED: u64 = 0x20;
const OPEN_WRITE_BINARY: u64 = 5;
const APPLICATION_EXIT: u64 = 0x2_0026;

const BAUD: u32 = 115_200;
const CLOCK: u32 = 24_000_000;

/// Initialises the serial port.
pub(super) fn start(address: u64) {
    let registers = core::ptr::with_exposed_provenance_mut::<PL011Registers>((LINEAR + address) as usize);
    let Some(registers) = NonNull::new(registers) else { return };
    // SAFETY: the device tree names the port; it is mapped as a device and has no other user.
    let mut uart = Uart::new(unsafe { UniqueMmioPointer::new(registers) });
    let line = LineConfig { data_bits: DataBits::Bits8, parity: Parity::None, stop_bits: StopBits::One };
    if uart.enable(line, BAUD, CLOCK).is_ok() {
        *UART.lock() = Some(uart);
    }
}

/// Sends bytes over the serial line.
pub(crate) fn send(bytes: &[u8]) {
    if let Some(uart) = UART.lock().as_mut() {
        for byte in bytes {
            while uart.is_tx_fifo_full() {
                core::hint::spin_loop();
            }
            uart.write_word(*byte);
        }
    }
}

/// Takes a byte that has arrived on the serial line.
pub(crate) fn receive() -> Option<u8> {
    UART.lock().as_mut()?.read_word().ok().flatten()
}

fn semihosting(call: u64, block: &[u64]) -> u64 {
    let result;
    // SAFETY: a machine that is started with a report has semihosting; the block has the form that
    // the call requires.
    unsafe { asm!("hlt #0xf000", inout("x0") call => result, in("x1") block.as_ptr(), options(nostack)) };
    result
}

/// Opens the report file.
pub(super) fn open_report(name: &core::ffi::CStr) {
    let bytes = name.to_bytes();
    let file = semihosting(SYS_OPEN, &[bytes.as_ptr() as u64, OPEN_WRITE_BINARY, bytes.len() as u64]);
    REPORT.store(file, Ordering::Relaxed);
}

/// Sends bytes to the host.
pub(crate) fn report(bytes: &[u8]) {
    let file = REPORT.load(Ordering::Relaxed);
    if file != NO_FILE {
        semihosting(SYS_WRITE, &[file, bytes.as_ptr() as u64, bytes.len() as u64]);
    }
}

/// Ends QEMU with `status` through semihosting if it is on, else powers the machine off.
pub(crate) fn power_off(status: u8) -> ! {
    if REPORT.load(Ordering::Relaxed) != NO_FILE {
        semihosting(SYS_EXIT_EXTENDED, &[APPLICATION_EXIT, u64::from(status)]);
    }
    let _ = psci::system_off::<Hvc>();
    loop {
        core::hint::spin_loop();
    }
}
