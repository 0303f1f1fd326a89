//! How locks wait here: they spin, with interrupts as they are.
//!
//! Not guaranteed: progress when interrupts are closed and the holder waits for this CPU. Locks
//! that are held across a shootdown are taken only with interrupts open (INV-TLB-WAIT).

use crate::arch;
use pagewright_sync::{Backend, RankSet};
use pagewright_types::CpuId;

/// The locks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct KernelLocks;

impl Backend for KernelLocks {
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
