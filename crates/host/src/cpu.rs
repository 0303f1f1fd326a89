//! Threads as CPUs.
//!
//! [`run_as`] makes a thread a CPU of the machine; [`pin_to`] pins it to a CPU of the host.
//!
//! Not guaranteed: that a thread that is not pinned stays on its host CPU. A migration by the host
//! orders the stores of the thread, as any context switch of Linux does, so it does not affect
//! coherence.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pagewright_sync::RankSet;
use pagewright_types::CpuId;
use std::cell::Cell;

thread_local! {
    static CPU: Cell<CpuId> = const { Cell::new(CpuId::new(0)) };
    static HELD: Cell<RankSet> = const { Cell::new(RankSet::EMPTY) };
}

/// Makes the calling thread this CPU of the machine that it works on.
pub fn run_as(cpu: CpuId) {
    CPU.set(cpu);
}

pub(crate) fn current() -> CpuId {
    CPU.get()
}

pub(crate) fn held() -> RankSet {
    HELD.get()
}

pub(crate) fn set_held(held: RankSet) {
    HELD.set(held);
}

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
