//! What was worked out for the last leaf of a run, for the leaves that differ in their frame alone.
//!
//! Key type: [`LastLeaf`]. Neighbouring leaves mostly differ in their frame alone, so one
//! comparison replaces decoding.
//!
//! Not guaranteed: anything about the frame, or about leaves of another level.

use pagewright_arch::{Isa, Pte};

/// All bits but the frame of the last leaf, and what follows from them.
pub(super) struct LastLeaf<T> {
    bits: u64,
    of: T,
}

impl<T: Default> Default for LastLeaf<T> {
    /// No leaf yet: no entry has these bits, since the bits of the frame are left out.
    #[inline]
    fn default() -> Self {
        Self { bits: u64::MAX, of: T::default() }
    }
}

impl<T> LastLeaf<T> {
    /// What follows from the bits of `pte`, by `work_out` if they are not those of the last leaf.
    ///
    /// `None` if `work_out` gives nothing, because `pte` is no leaf that the run edits.
    #[inline]
    pub(super) fn of<I: Isa>(&mut self, pte: Pte, work_out: impl FnOnce() -> Option<T>) -> Option<&T> {
        let bits = pte.raw() & !I::FRAME;
        if bits != self.bits {
            self.of = work_out()?;
            self.bits = bits;
        }
        Some(&self.of)
    }
}
