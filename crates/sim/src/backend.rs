//! What a lock asks of the simulated machine: which CPU runs on this host thread, and which ranks
//! it holds.
//!
//! A lock has no handle to a machine, so the running CPU stands in a thread-local that
//! [`crate::Sim::run_on`] sets. Several machines may live on one host thread: each enters with
//! `run_on` and leaves what it found.

use crate::explore::{StopPoint, coroutine};
use pagewright_sync::{Backend, RankSet};
use pagewright_types::CpuId;
use std::cell::Cell;

/// What runs on a host thread.
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
/// In fast mode an operation of the memory manager is atomic, so a lock is never waited for:
/// [`Backend::pause`] is a deadlock, and says so. While schedules are explored, a CPU can be
/// stopped before each lock, and waits where one is held.
pub struct SimLocks;

impl Backend for SimLocks {
    /// # Panics
    /// In fast mode: whoever holds the lock is this host thread itself.
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
