//! A set of frames, one bit each, that CPUs shrink without a lock.
//!
//! Key type: [`FrameSet`]. A machine that accesses frames by their physical addresses keeps the
//! frames there that the allocator may use, and checks each address against it. A frame that
//! becomes memory of another kind, such as the kernel's heap, leaves the set for ever.
//!
//! Not guaranteed: that a frame is still in the set when the answer is used, unless the caller owns
//! the frame.

use crate::atomic::{AtomicU64, Ordering};
use crate::boxed::{AllocError, try_boxed};
use alloc::boxed::Box;
use pagewright_types::{FrameRange, Order, Pfn};

/// The frames of a word.
const PER_WORD: u32 = u64::BITS;

/// A set of frames.
#[derive(Debug)]
pub struct FrameSet {
    /// The first frame of the first word, a multiple of the frames of a word.
    first: u32,
    words: Box<[AtomicU64]>,
}

impl FrameSet {
    /// The set of all frames in `ranges`.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn try_new(ranges: &[FrameRange]) -> Result<Self, AllocError> {
        let first = ranges.iter().map(|range| range.start().raw()).min().unwrap_or(0) / PER_WORD * PER_WORD;
        let end = ranges.iter().map(|range| range.end().raw()).max().unwrap_or(first);
        let len = (end.max(first) - first).div_ceil(PER_WORD) as usize;
        let set = Self { first, words: try_boxed(len, (0..len).map(|_| AtomicU64::new(0)))? };
        for range in ranges {
            let mut at = range.start().raw();
            while at < range.end().raw() {
                let next = (at / PER_WORD + 1) * PER_WORD;
                let count = next.min(range.end().raw()) - at;
                set.words[((at - first) / PER_WORD) as usize].fetch_or(bits(at, count), Ordering::Relaxed);
                at += count;
            }
        }
        Ok(set)
    }

    /// The words of a naturally aligned block, and the bits of its frames in each.
    fn block(&self, pfn: Pfn, order: Order) -> Option<(&[AtomicU64], u64)> {
        let (at, frames) = (pfn.raw().checked_sub(self.first)?, order.frames());
        if !pfn.raw().is_multiple_of(frames) {
            return None;
        }
        let word = (at / PER_WORD) as usize;
        let words = self.words.get(word..word + frames.div_ceil(PER_WORD) as usize)?;
        Some((words, bits(pfn.raw(), frames.min(PER_WORD))))
    }

    /// Whether the set has a frame.
    #[inline]
    pub fn contains_frame(&self, pfn: Pfn) -> bool {
        // A frame before the first one wraps round to a word that does not exist.
        let at = pfn.raw().wrapping_sub(self.first);
        let word = self.words.get((at / PER_WORD) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (at % PER_WORD) & 1 != 0)
    }

    /// Whether the set has all frames of a naturally aligned block.
    #[inline]
    pub fn contains(&self, pfn: Pfn, order: Order) -> bool {
        let has_all =
            |(words, bits): (&[AtomicU64], u64)| words.iter().all(|word| word.load(Ordering::Relaxed) & bits == bits);
        self.block(pfn, order).is_some_and(has_all)
    }

    /// Removes all frames of a naturally aligned block; returns whether the set had them all.
    ///
    /// If it lacks one, nothing changes. Of calls for overlapping blocks at the same time, at most
    /// one succeeds.
    pub fn remove(&self, pfn: Pfn, order: Order) -> bool {
        let Some((words, bits)) = self.block(pfn, order) else { return false };
        for (index, word) in words.iter().enumerate() {
            let removed = word.fetch_and(!bits, Ordering::Relaxed) & bits;
            if removed != bits {
                word.fetch_or(removed, Ordering::Relaxed);
                for word in &words[..index] {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
                return false;
            }
        }
        true
    }
}

/// The bits of `count` frames from `at` on, in the word of `at`.
const fn bits(at: u32, count: u32) -> u64 {
    (u64::MAX >> (PER_WORD - count)) << (at % PER_WORD)
}
