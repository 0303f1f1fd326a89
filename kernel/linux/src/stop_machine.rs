//! Stops all CPUs but one, outside the memory manager (Linux's `stop_machine`).
//!
//! The recount of page counts needs it, and `membarrier` uses it.
//!
//! Protocol: the initiator holds `INITIATOR`, sets `REQUESTED`, kicks the other CPUs, and runs when
//! `STOPPED` has counted all of them. A CPU stops between two traps of its threads, or where its
//! thread holds no lock. It waits with interrupts enabled, so it answers kicks. The initiator
//! clears `REQUESTED` and releases `INITIATOR` when `STOPPED` is 0 again: no CPU that is about to
//! continue is counted for the next request.
//!
//! Not guaranteed: latency. A CPU in user mode is kicked, a CPU in a system call finishes it first.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use spin::Mutex;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicU32 = AtomicU32::new(0);
static INITIATOR: Mutex<()> = Mutex::new(());

/// Whether this CPU must call [`wait`].
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Acquire)
}

/// Waits until the initiator is done.
///
/// The caller holds no lock, and is not inside the memory manager.
pub(crate) fn wait() {
    STOPPED.fetch_add(1, Ordering::AcqRel);
    while is_requested() {
        pagewright_hal::idle(|| !is_requested());
    }
    STOPPED.fetch_sub(1, Ordering::AcqRel);
}

/// Runs `body` while all other CPUs wait.
///
/// The caller holds no lock. Initiators run one at a time, in no particular order; the others
/// wait like any CPU.
pub(crate) fn run<T>(body: impl FnOnce() -> T) -> T {
    let initiator = loop {
        match INITIATOR.try_lock() {
            Some(initiator) => break initiator,
            None if is_requested() => wait(),
            None => Machine.relax(),
        }
    };
    REQUESTED.store(true, Ordering::Release);
    kick_others();
    let others = Machine.online().count() - 1;
    while STOPPED.load(Ordering::Acquire) < others {
        Machine.relax();
    }
    let result = body();
    REQUESTED.store(false, Ordering::Release);
    kick_others();
    while STOPPED.load(Ordering::Acquire) > 0 {
        Machine.relax();
    }
    drop(initiator);
    result
}

/// Makes the other CPUs leave user mode, or wake up.
fn kick_others() {
    let this = Machine.cpu();
    Machine.online().iter().filter(|cpu| *cpu != this).for_each(pagewright_hal::kick);
}
