//! Locks of the kernel, which spin and leave interrupts as they are.
//!
//! Not guaranteed: progress with interrupts disabled while the holder waits for this CPU. A lock
//! that is held across a shootdown is acquired only with interrupts enabled (INV-TLB-WAIT).

use crate::arch;
use pagewright_sync::{Backend, RankSet};
use pagewright_types::CpuId;

/// The locks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct KernelLocks;

impl Backend for KernelLocks {
    type Line = ();

    #[inline]
    fn pause() {
        arch::pause();
    }

    #[inline]
    fn cpu() -> CpuId {
        arch::cpu()
    }

    fn held() -> RankSet {
        arch::local().held.get()
    }

    fn set_held(held: RankSet) {
        arch::local().held.set(held);
    }
}
