//! Random numbers that are the same in every run.
//!
//! Key type: [`Random`].

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A sequence of random numbers.
pub(super) struct Random(Pcg64);

impl Random {
    pub(super) fn new() -> Self {
        Self(Pcg64::seed_from_u64(1))
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit.max(1)
    }

    /// Puts a list into random order (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}
