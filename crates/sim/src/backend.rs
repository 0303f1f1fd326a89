//! The lock backend of the simulated machine: the running CPU, and the lock ranks that it holds.
//!
//! A lock has no handle to a machine, so the running CPU is in a thread-local, which
//! [`crate::Sim::run_on`] sets and restores. So one host thread can run several machines.

use crate::explore::{StopPoint, coroutine};
use crate::lines::{self, SimLine};
use pagewright_sync::{Backend, LineRef, LineUse, RankSet};
use pagewright_types::CpuId;
use std::cell::Cell;

/// The CPU that runs on a host thread, and the ranks that it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) cpu: CpuId,
    pub(crate) held: RankSet,
}

thread_local! {
    static RUNNING: Cell<Running> = const { Cell::new(Running { cpu: CpuId::new(0), held: RankSet::EMPTY }) };
}

/// Makes `next` run on this host thread and returns what ran before.
pub(crate) fn switch(next: Running) -> Running {
    RUNNING.replace(next)
}

/// What runs on this host thread.
pub(crate) fn running() -> Running {
    RUNNING.get()
}

/// The locks of a simulated machine.
///
/// In fast mode an operation of the memory manager is atomic, so a contended lock is a deadlock,
/// and [`Backend::pause`] panics. In explore mode a CPU stops before each lock, and waits for a
/// lock that is held.
pub struct SimLocks;

impl Backend for SimLocks {
    type Line = SimLine;

    /// # Panics
    /// In fast mode, because only this host thread can hold the lock.
    fn pause() {
        if coroutine::inside() {
            coroutine::stop_at(StopPoint::Wait);
            return;
        }
        let Running { cpu, held } = running();
        panic!("deadlock in fast mode: CPU {cpu} waits for a lock while operations are atomic; it holds {held:?}");
    }

    #[inline]
    fn point() {
        if coroutine::inside() {
            coroutine::stop_at(StopPoint::Lock);
        }
    }

    #[inline]
    fn line(line: LineRef<'_, SimLine>, name: &'static str, used: LineUse) {
        lines::report(RUNNING.get().cpu, line, name, used);
    }

    fn cpu() -> CpuId {
        RUNNING.get().cpu
    }

    fn held() -> RankSet {
        RUNNING.get().held
    }

    fn set_held(held: RankSet) {
        RUNNING.set(Running { held, ..RUNNING.get() });
    }
}
