//! The serial line: the output and the input of programs, and the kernel's messages.

use crate::arch::io;
use core::fmt::{self, Write};
use spin::Mutex;

static LINE: Mutex<()> = Mutex::new(());

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        io::send(text.as_bytes());
        Ok(())
    }
}

/// Writes raw bytes.
pub fn write(bytes: &[u8]) {
    let _line = LINE.lock();
    io::send(bytes);
}

/// Takes a byte that has arrived on the serial line.
pub fn receive() -> Option<u8> {
    io::receive()
}

/// Writes a formatted text that no other CPU interleaves.
pub fn print(text: fmt::Arguments<'_>) {
    let _line = LINE.lock();
    let _ = Serial.write_fmt(text);
}

/// Writes a formatted text even if the lock is taken, possibly by the code that panicked.
pub(crate) fn print_unlocked(text: fmt::Arguments<'_>) {
    let _line = LINE.try_lock();
    let _ = Serial.write_fmt(text);
}

/// Writes a line to the console.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::console::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    print_unlocked(format_args!("\nkernel panic on CPU {}: {info}\n", crate::arch::cpu()));
    crate::arch::io::power_off(PANIC)
}

/// Exit status of a machine whose kernel panicked.
const PANIC: u8 = 255;
