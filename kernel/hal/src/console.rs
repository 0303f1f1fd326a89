//! The serial line: what programs print, and what the kernel says when something is wrong.

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

/// Sends bytes as they are.
pub fn write(bytes: &[u8]) {
    let _line = LINE.lock();
    io::send(bytes);
}

/// Sends a formatted text, in one piece.
pub fn print(text: fmt::Arguments<'_>) {
    let _line = LINE.lock();
    let _ = Serial.write_fmt(text);
}

/// The same for somebody who may have been interrupted while he printed.
pub(crate) fn print_anyway(text: fmt::Arguments<'_>) {
    let _line = LINE.try_lock();
    let _ = Serial.write_fmt(text);
}

/// Sends a line to the console.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::console::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    print_anyway(format_args!("\nkernel panic on CPU {}: {info}\n", crate::arch::cpu()));
    crate::arch::io::power_off(PANIC)
}

/// Exit status of a machine whose kernel has panicked.
const PANIC: u8 = 255;
