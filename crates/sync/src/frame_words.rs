//! Frames that are memory of the embedder's, accessed as atomic words.
//!
//! Key type: [`FrameWords`]. [`entries_are_words!`](pagewright_arch::entries_are_words) and
//! [`pages_are_words!`](pagewright_arch::pages_are_words) make them the frames of a machine.
//!
//! Not guaranteed: that a frame is in use by one owner. The allocator ensures that.

use crate::linear_map::LinearMap;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::TableWords;
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn, PhysAddr};

const WORD: usize = size_of::<u64>();
const WORDS_PER_PAGE: usize = PAGE_SIZE as usize / WORD;

/// The words of consecutive frames.
///
/// A copy is a reference to the same memory.
#[derive(Clone, Copy, Debug)]
pub struct FrameWords {
    words: &'static [AtomicU64],
    first: Pfn,
}

impl FrameWords {
    /// The frames whose words are `words`, from the frame `first` on.
    ///
    /// # Panics
    /// When the words are no whole number of frames.
    pub const fn new(words: &'static [AtomicU64], first: Pfn) -> Self {
        assert!(words.len().is_multiple_of(WORDS_PER_PAGE), "a frame has 512 words");
        Self { words, first }
    }

    /// The frames in `memory`, and their map for [`Platform::memory`](crate::Platform::memory).
    ///
    /// `None` as [`LinearMap::over`].
    pub fn over(memory: &'static mut [u8], first: Pfn) -> Option<(Self, LinearMap)> {
        let (map, words) = LinearMap::over(memory, first)?;
        Some((Self { words, first }, map))
    }

    /// The frames.
    pub fn frames(&self) -> FrameRange {
        FrameRange::new(self.first, self.first.add((self.words.len() / WORDS_PER_PAGE) as u32))
    }

    /// All words, from the first frame on.
    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// The words of a block.
    ///
    /// # Panics
    /// When the block is not inside the frames.
    #[inline]
    pub fn block(&self, pfn: Pfn, order: Order) -> &'static [AtomicU64] {
        let index = pfn.raw().checked_sub(self.first.raw()).expect("a frame of this memory");
        let start = index as usize * WORDS_PER_PAGE;
        &self.words[start..][..order.frames() as usize * WORDS_PER_PAGE]
    }

    /// The words of a page table.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    #[inline]
    pub fn table(&self, table: Pfn) -> TableWords<'static> {
        let words = self.block(table, Order::ZERO);
        TableWords(words.first_chunk().expect("a frame has as many words as a table has entries"))
    }

    /// Fills a block with `value`.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    pub fn fill(&self, pfn: Pfn, order: Order, value: u64) {
        self.block(pfn, order).iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// Copies a block.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    pub fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        for (from, to) in self.block(from, order).iter().zip(self.block(to, order)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The word that contains the byte at `at`, and the index of that byte in it.
    fn word(&self, at: PhysAddr) -> (&'static AtomicU64, usize) {
        let page = self.block(Pfn::containing(at), Order::ZERO);
        (&page[at.page_offset() as usize / WORD], at.raw() as usize % WORD)
    }

    /// Reads bytes, each word by one load.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    pub fn read(&self, from: PhysAddr, to: &mut [u8]) {
        let (mut at, mut rest) = (from, to);
        while !rest.is_empty() {
            let (word, within) = self.word(at);
            let count = rest.len().min(WORD - within);
            let (part, after) = rest.split_at_mut(count);
            part.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[within..within + count]);
            (at, rest) = (at.add(count as u64), after);
        }
    }

    /// Writes bytes, each word by one store; other bytes of the word keep their values.
    ///
    /// # Panics
    /// As [`block`](Self::block).
    pub fn write(&self, to: PhysAddr, from: &[u8]) {
        let (mut at, mut rest) = (to, from);
        while !rest.is_empty() {
            let (word, within) = self.word(at);
            let (part, after) = rest.split_at(rest.len().min(WORD - within));
            let merged = |old: u64| {
                let mut bytes = old.to_ne_bytes();
                bytes[within..within + part.len()].copy_from_slice(part);
                Some(u64::from_ne_bytes(bytes))
            };
            // Not a load and a store: another CPU may write other bytes of the word meanwhile.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
            (at, rest) = (at.add(part.len() as u64), after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Three frames from number 7 on.
    fn frames() -> FrameWords {
        let words: Vec<_> = (0..3 * WORDS_PER_PAGE).map(|_| AtomicU64::new(0)).collect();
        FrameWords::new(words.leak(), Pfn::new(7))
    }

    #[test]
    fn bytes_are_read_as_they_were_written_and_others_are_kept() {
        let frames = frames();
        assert_eq!(frames.frames(), FrameRange::new(Pfn::new(7), Pfn::new(10)));
        frames.fill(Pfn::new(8), Order::ZERO, u64::MAX);
        let bytes: Vec<u8> = (1..=21).collect();
        for offset in 0..8 {
            let at = Pfn::new(8).base().add(offset);
            frames.write(at, &bytes);
            let mut read = [0; 22];
            frames.read(at, &mut read);
            assert_eq!((&read[..21], read[21]), (&bytes[..], u8::MAX), "offset {offset}");
            frames.fill(Pfn::new(8), Order::ZERO, u64::MAX);
        }
        assert!(frames.block(Pfn::new(7), Order::ZERO).iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_copy_has_the_words_of_its_source() {
        let frames = frames();
        frames.write(Pfn::new(7).base().add(4088), &7_u64.to_ne_bytes());
        frames.copy(Pfn::new(7), Pfn::new(9), Order::ZERO);
        let words = |pfn| frames.block(Pfn::new(pfn), Order::ZERO)[511].load(Ordering::Relaxed);
        assert_eq!([words(7), words(8), words(9)], [7, 0, 7]);
    }

    #[test]
    #[should_panic(expected = "a frame of this memory")]
    fn a_frame_before_the_first_is_refused() {
        let _ = frames().block(Pfn::new(6), Order::ZERO);
    }
}
