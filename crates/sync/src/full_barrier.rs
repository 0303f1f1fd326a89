//! A full barrier between a store and a load, against the same of another CPU.
//!
//! ```text
//!   fork        weaken the entry ─▶ full barrier ─▶ load the pins
//!   gup_fast    store the pin    ─▶ full barrier ─▶ load the entry again
//! ```
//!
//! **INV-FULL-BARRIER** Of two CPUs that each store, execute a full barrier and then load what the
//! other stores, at least one loads the other's store. Fork, page-out and `clear_refs` meet
//! lockless pins so. The load takes the barrier as a value, so a caller cannot leave it out.
//!
//! Without the barrier of either side, each CPU may load before the other sees its store, on
//! x86-64, too (Intel SDM vol. 3A §9.2.3.4), and both go on.
//!
//! A [`FullBarrier`] is the proof that its CPU has executed one. The load takes it, so a caller
//! that leaves the barrier out does not compile.
//!
//! Not guaranteed: that the store precedes the barrier in the program.

use crate::atomic::{Ordering, fence};

/// The proof of a full barrier, for the load that must not precede it.
#[must_use = "the load that the barrier orders takes it"]
#[derive(Clone, Copy, Debug)]
pub struct FullBarrier(());

impl FullBarrier {
    /// Executes a full barrier (`smp_mb`).
    #[inline]
    pub fn execute() -> Self {
        fence(Ordering::SeqCst);
        Self(())
    }
}
