//! Threads as CPUs.
//!
//! A thread says which CPU of the machine it is ([`run_as`]), and may be kept on a real one
//! ([`pin_to`]).
//!
//! Not guaranteed: that a thread which was not pinned stays where it is. The host's own switch
//! orders its stores when it is moved, as any switch of CPUs by Linux does, so that is no matter of
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

/// Makes the calling thread a CPU of whatever machine it works on.
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

/// The real CPUs on which this process may run, by Linux's numbers.
pub fn real_cpus() -> Vec<usize> {
    let may = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::count()).filter(|cpu| may.is_set(*cpu).unwrap_or(false)).collect()
}

/// Keeps the calling thread on a real CPU.
///
/// Returns whether that was allowed.
pub fn pin_to(real: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(real).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok()
}
