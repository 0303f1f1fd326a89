//! Time since boot, and the timer tick that preempts programs.

use crate::arch::{local, timer};

/// Timer ticks per second on each CPU.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// Nanoseconds between two ticks, the time slice of a program.
pub const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_SECOND;

/// Nanoseconds since boot, the same on all CPUs.
pub fn now_ns() -> u64 {
    timer::now_ns()
}

/// Nanoseconds since power-on, firmware included.
///
/// Under QEMU's `-icount shift=0`, every instruction takes one.
pub fn since_power_on_ns() -> u64 {
    timer::since_power_on_ns()
}

/// Seconds from 1970 to boot by the machine's clock; 0 without one.
pub fn boot_seconds() -> u64 {
    timer::boot_seconds()
}

/// Counts a tick of this CPU.
pub(crate) fn count_tick(in_user_mode: bool) {
    let (user, kernel) = local().ticks.get();
    local().ticks.set(if in_user_mode { (user + 1, kernel) } else { (user, kernel + 1) });
}

/// Takes the ticks that met user mode and the kernel on this CPU since they were last taken.
///
/// A tick between the two accesses is lost, as a sample may be.
pub fn take_ticks() -> (u64, u64) {
    local().ticks.replace((0, 0))
}

pub(crate) fn start_ticking() {
    timer::start_ticking(TICKS_PER_SECOND);
}
