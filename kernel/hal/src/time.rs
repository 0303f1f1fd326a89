//! Time since boot, and the tick that takes a CPU from a program.

use crate::arch::timer;

/// How often a CPU is interrupted.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// Nanoseconds since boot.
///
/// The same on all CPUs.
pub fn now_ns() -> u64 {
    timer::now_ns()
}

/// Nanoseconds since the machine was switched on, firmware included.
///
/// Where QEMU counts instructions (`-icount shift=0`) each is one.
pub fn since_power_on_ns() -> u64 {
    timer::since_power_on_ns()
}

/// Seconds since 1970 at boot, as far as the machine knows.
pub fn boot_seconds() -> u64 {
    timer::boot_seconds()
}

pub(crate) fn start_ticking() {
    timer::start_ticking(TICKS_PER_SECOND);
}
