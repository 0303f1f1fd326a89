//! The PL011 serial port that the device tree names, semihosting as the channel to whoever started
//! the machine, and how it is switched off.

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

/// Starts using the port.
pub(super) fn start(address: u64) {
    let registers = core::ptr::with_exposed_provenance_mut::<PL011Registers>((LINEAR + address) as usize);
    let Some(registers) = NonNull::new(registers) else { return };
    // SAFETY: the device tree says that it is there; it is mapped as a device, and nobody else uses
    // it.
    let mut uart = Uart::new(unsafe { UniqueMmioPointer::new(registers) });
    let line = LineConfig { data_bits: DataBits::Bits8, parity: Parity::None, stop_bits: StopBits::One };
    if uart.enable(line, BAUD, CLOCK).is_ok() {
        *UART.lock() = Some(uart);
    }
}

/// Sends bytes down the line.
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

fn semihosting(call: u64, block: &[u64]) -> u64 {
    let result;
    // SAFETY: whoever starts the machine with a report also turns semihosting on; the block is what
    // the call wants.
    unsafe { asm!("hlt #0xf000", inout("x0") call => result, in("x1") block.as_ptr(), options(nostack)) };
    result
}

/// Opens the file for the report, whose name ends with a zero.
pub(super) fn open_report(name: &core::ffi::CStr) {
    let bytes = name.to_bytes();
    let file = semihosting(SYS_OPEN, &[bytes.as_ptr() as u64, OPEN_WRITE_BINARY, bytes.len() as u64]);
    REPORT.store(file, Ordering::Relaxed);
}

/// Sends bytes to whoever started the machine.
pub(crate) fn report(bytes: &[u8]) {
    let file = REPORT.load(Ordering::Relaxed);
    if file != NO_FILE {
        semihosting(SYS_WRITE, &[file, bytes.as_ptr() as u64, bytes.len() as u64]);
    }
}

/// Ends QEMU with the status where there is semihosting, else the machine without.
pub(crate) fn power_off(status: u8) -> ! {
    if REPORT.load(Ordering::Relaxed) != NO_FILE {
        semihosting(SYS_EXIT_EXTENDED, &[APPLICATION_EXIT, u64::from(status)]);
    }
    let _ = psci::system_off::<Hvc>();
    loop {
        core::hint::spin_loop();
    }
}
