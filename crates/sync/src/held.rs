//! The ranks that a CPU holds, in an atomic, and the locks of a machine with one CPU.
//!
//! Key types: [`HeldRanks`], with which [`Backend::held`] is one line, and [`OneCpuLocks`], a whole
//! [`Backend`].
//!
//! Not guaranteed: that only its CPU uses a [`HeldRanks`]. If two CPUs share one, debug builds
//! panic, with a message that names [`Backend::held`].

use crate::backend::Backend;
use crate::rank::RankSet;
// Not a model checker's atomic, which a static cannot hold.
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_types::CpuId;

/// The ranks of the locks that one CPU holds, for a static or for the memory of a CPU.
///
/// Only its CPU uses it, so it orders nothing.
/// The example of the crate has one for each CPU.
#[derive(Debug, Default)]
pub struct HeldRanks(AtomicU64);

impl HeldRanks {
    /// The ranks of a CPU that holds no lock.
    pub const fn new() -> Self {
        Self(AtomicU64::new(RankSet::EMPTY.to_bits()))
    }

    /// What [`set`](Self::set) stored last, for [`Backend::held`].
    #[inline]
    pub fn get(&self) -> RankSet {
        RankSet::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Stores the ranks, for [`Backend::set_held`].
    #[inline]
    pub fn set(&self, held: RankSet) {
        self.0.store(held.to_bits(), Ordering::Relaxed);
    }
}

/// The locks of a program with one machine that has one CPU, on which a lock is never contended.
///
/// On a host, that CPU is one thread.
#[derive(Debug)]
pub struct OneCpuLocks;

static HELD: HeldRanks = HeldRanks::new();

impl Backend for OneCpuLocks {
    type Line = ();

    fn pause() {
        unreachable!("a lock is never contended on one CPU")
    }

    #[inline]
    fn cpu() -> CpuId {
        CpuId::new(0)
    }

    fn held() -> RankSet {
        HELD.get()
    }

    fn set_held(held: RankSet) {
        HELD.set(held);
    }
}
