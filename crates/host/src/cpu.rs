//! The CPUs of the host, and which of them a thread runs on ([`pin_to`]).
//!
//! Not guaranteed: that a thread that is not pinned stays on its host CPU. A migration by the host
//! orders the stores of the thread, as any context switch of Linux does, so it does not affect
//! coherence.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The CPUs of the host on which this process may run, by Linux's numbers.
pub fn real_cpus() -> Vec<usize> {
    let may = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::count()).filter(|cpu| may.is_set(*cpu).unwrap_or(false)).collect()
}

/// Pins the calling thread to a CPU of the host, by Linux's number.
///
/// Returns whether the host allowed it.
pub fn pin_to(real: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(real).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok()
}
