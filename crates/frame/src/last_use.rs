//! What was noted about the last use of a folio (`folio_xchg_last_cpupid`, `…_access_time`).
//!
//! The note is the upper half of the word of the owner, so a new folio has none and a change of the
//! owner forgets it. `mm` decides what it means: a CPU, or a time.
//!
//! Not guaranteed: that a note is found again. It is a hint, and losing it changes one decision.

use crate::folio::Folio;
use core::sync::atomic::Ordering;

/// The lowest bit of a note, above those of the owner.
const SHIFT: u32 = 34;
/// Set while there is a note.
const NOTED: u64 = 1 << 63;

/// A note about the use of a folio: a number of 29 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastUse(u32);

impl LastUse {
    /// The bits of a note.
    pub const BITS: u32 = NOTED.trailing_zeros() - SHIFT;

    /// The note of `value`, of which bits above the lowest [`BITS`](Self::BITS) are cut off.
    pub const fn new(value: u64) -> Self {
        Self((value & ((1 << Self::BITS) - 1)) as u32)
    }

    /// The number.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// How far this note, of a time, is after an earlier one; times wrap around.
    pub const fn since(self, earlier: Self) -> u32 {
        Self::new((self.0 as u64).wrapping_sub(earlier.0 as u64)).0
    }

    const fn pack(note: Option<Self>) -> u64 {
        match note {
            Some(Self(value)) => NOTED | (value as u64) << SHIFT,
            None => 0,
        }
    }

    const fn unpack(word: u64) -> Option<Self> {
        if word & NOTED == 0 { None } else { Some(Self::new(word >> SHIFT)) }
    }
}

impl Folio<'_> {
    /// The note about the last use.
    pub fn last_use(self) -> Option<LastUse> {
        LastUse::unpack(self.record().owner_or_space.load(Ordering::Relaxed))
    }

    /// Replaces the note about the last use, and returns the one before.
    ///
    /// The caller holds a reference, or a lock that keeps one alive.
    pub fn exchange_last_use(self, note: Option<LastUse>) -> Option<LastUse> {
        let owner = (1 << SHIFT) - 1;
        let noted = |word: u64| Some(word & owner | LastUse::pack(note));
        let word = self.record().owner_or_space.fetch_update(Ordering::Relaxed, Ordering::Relaxed, noted);
        word.map_or(None, LastUse::unpack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_leaves_the_owner() {
        for value in [0, 1, (1 << LastUse::BITS) - 1] {
            let packed = LastUse::pack(Some(LastUse::new(value)));
            assert_eq!(packed & ((1 << SHIFT) - 1), 0, "{value:#x} lies in the bits of the owner");
            assert_eq!(LastUse::unpack(packed | 3 << 32 | 7), Some(LastUse::new(value)));
        }
        assert_eq!(LastUse::unpack(3 << 32 | 7), None);
    }

    #[test]
    fn times_wrap_around() {
        let [before, after] = [(1 << LastUse::BITS) - 2, 1 << LastUse::BITS].map(LastUse::new);
        assert_eq!((after.since(before), before.since(before)), (2, 0));
    }
}
