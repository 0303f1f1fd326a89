//! Rest: all CPUs but one do nothing, and no call of the memory manager is under way, so that its
//! counts can be counted again.
//!
//! Protocol: who wants rest has the turn, asks for it and waits until every other CPU has come. A
//! CPU comes between two traps of its threads, or where a thread holds nothing; it waits with
//! interrupts open, so it answers IPIs. It leaves when rest is no longer wanted, and only when all
//! have left the next may want it: a CPU that is about to leave can't be taken for one that has
//! come.
//!
//! Not guaranteed: that it comes soon. A CPU in user mode is poked; one in a long system call ends
//! that first.

#[cfg(feature = "oracle")]
mod want;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(feature = "oracle")]
pub(crate) use want::of_others;

static WANTED: AtomicBool = AtomicBool::new(false);
static RESTING: AtomicU32 = AtomicU32::new(0);

/// Whether this CPU shall [`rest`].
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Acquire)
}

/// This CPU does nothing until rest is no longer wanted.
///
/// The caller holds no lock, and is not inside the memory manager.
pub(crate) fn rest() {
    RESTING.fetch_add(1, Ordering::AcqRel);
    while is_wanted() {
        pagewright_hal::idle(|| !is_wanted());
    }
    RESTING.fetch_sub(1, Ordering::AcqRel);
}
