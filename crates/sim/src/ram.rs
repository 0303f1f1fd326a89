//! Physical memory: one zeroed host mapping of atomic words.
//!
//! The host backs it on demand, so a machine with 64 GiB costs only the pages that its programs
//! touch, and the holes between nodes cost nothing. All accesses are to words: walkers read raw
//! words, the kernel uses [`pagewright_arch::Effects`], and other code may use the slice
//! [`Ram::words`] directly.
//!
//! Not guaranteed: any order between CPUs. In fast mode there is one host thread.

use pagewright_types::{Order, PAGE_SIZE, Pfn, PhysAddr};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// 8-byte words in a base page.
const WORDS_PER_PAGE: usize = PAGE_SIZE as usize / 8;

/// The least number of words that is requested from the host.
///
/// glibc may serve a block below its largest `M_MMAP_THRESHOLD`, 32 MiB, from freed memory, which
/// is then cleared whole for each new machine. A larger block is mapped: it is zero already, and
/// costs only the pages that are touched.
const LEAST_WORDS: usize = (33 << 20) / 8;

/// The most words of a memory whose block is kept for the next machine.
///
/// A search makes a machine for each schedule. To clear this much costs less than to map memory
/// and to fault on each of its pages.
const KEPT_WORDS: usize = (256 << 10) / 8;

thread_local! {
    /// Zeroed blocks of machines that were dropped on this host thread.
    static KEPT: RefCell<Vec<Box<[AtomicU64]>>> = const { RefCell::new(Vec::new()) };
}

/// The most blocks that are kept.
const KEPT_BLOCKS: usize = 4;

/// The memory of one machine, from physical address 0 to the end of the last node.
///
/// Frames are aligned to 4096 bytes on the host, as the page-table types of other crates require.
pub(crate) struct Ram {
    host: Box<[AtomicU64]>,
    /// The words of `host` before the first aligned one.
    skip: usize,
    /// The words of memory.
    len: usize,
    /// Whether the block is kept for the next machine.
    is_kept: bool,
}

/// The host cannot allocate the memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoHostMemory;

fn zeroed_block(words: usize) -> Result<Box<[AtomicU64]>, NoHostMemory> {
    bytemuck::try_zeroed_slice_box(words).map_err(|()| NoHostMemory)
}

/// A kept block of this many words, or a new one.
fn kept_block(words: usize) -> Result<Box<[AtomicU64]>, NoHostMemory> {
    let kept = KEPT.with_borrow_mut(|kept| {
        let same = kept.iter().position(|block| block.len() == words)?;
        Some(kept.swap_remove(same))
    });
    kept.map_or_else(|| zeroed_block(words), Ok)
}

impl Drop for Ram {
    fn drop(&mut self) {
        if !self.is_kept {
            return;
        }
        let mut block = std::mem::take(&mut self.host);
        bytemuck::fill_zeroes(&mut block);
        // A machine that is dropped when its host thread ends finds no list.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_BLOCKS {
                kept.push(block);
            }
        });
    }
}

impl Ram {
    /// Allocates `bytes` of zeroed memory, in whole pages.
    ///
    /// # Errors
    /// [`NoHostMemory`].
    pub(crate) fn try_new(bytes: u64) -> Result<Self, NoHostMemory> {
        let words = usize::try_from(bytes / 8).map_err(|_| NoHostMemory)?;
        if words > KEPT_WORDS {
            return Self::try_mapped(bytes);
        }
        Ok(Self::in_block(kept_block(words + WORDS_PER_PAGE)?, words, true))
    }

    /// Allocates `bytes` in a block that the host allocator maps for it alone, and unmaps.
    ///
    /// # Errors
    /// [`NoHostMemory`].
    pub(crate) fn try_mapped(bytes: u64) -> Result<Self, NoHostMemory> {
        let words = usize::try_from(bytes / 8).map_err(|_| NoHostMemory)?;
        let host = zeroed_block((words + WORDS_PER_PAGE).max(LEAST_WORDS))?;
        Ok(Self::in_block(host, words, false))
    }

    fn in_block(host: Box<[AtomicU64]>, len: usize, is_kept: bool) -> Self {
        let skip = host.as_ptr().align_offset(PAGE_SIZE as usize).min(WORDS_PER_PAGE);
        Self { host, skip, len, is_kept }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.host[self.skip..self.skip + self.len]
    }

    /// Whether there is memory at `addr`.
    #[inline]
    pub(crate) fn has(&self, addr: PhysAddr) -> bool {
        addr.raw() / 8 < self.len as u64
    }

    /// The word at `addr`, which must be a multiple of 8.
    ///
    /// # Panics
    /// When `addr` is past the end of memory, which is a machine check on hardware.
    #[inline]
    pub(crate) fn word(&self, addr: PhysAddr) -> &AtomicU64 {
        debug_assert!(addr.is_aligned(8), "misaligned word at {addr}");
        match self.words().get((addr.raw() / 8) as usize) {
            Some(word) => word,
            None => panic!("machine check: no memory at physical address {addr}"),
        }
    }

    fn block(&self, pfn: Pfn, order: Order) -> &[AtomicU64] {
        let start = pfn.index() * WORDS_PER_PAGE;
        let words = order.frames() as usize * WORDS_PER_PAGE;
        match self.words().get(start..start + words) {
            Some(block) => block,
            None => panic!("machine check: no memory at frame {pfn}, order {order}"),
        }
    }

    /// Takes the first page of a block for writing before it is read, if the memory is small.
    ///
    /// Most blocks are one page. Of a larger one only what is stored to shall be backed.
    ///
    /// A host that reads an untouched page maps its zero page. The first store to it then costs
    /// another fault, and a TLB shootdown on every CPU that runs a thread of the process.
    fn back(&self, block: &[AtomicU64]) {
        if self.len < LEAST_WORDS
            && let Some(first) = block.first()
        {
            // This takes the page for writing even if it changes nothing; the compiler makes a load
            // of `fetch_or(0)`.
            let _ = first.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Clears a block.
    ///
    /// Words that are zero are only read, so that the host does not back untouched memory, except
    /// as [`Self::back`] says.
    pub(crate) fn zero(&self, pfn: Pfn, order: Order) {
        let block = self.block(pfn, order);
        self.back(block);
        for word in block {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Copies a block; words that are equal are only read, except as [`Self::back`] says.
    pub(crate) fn copy(&self, from: Pfn, to: Pfn, order: Order) {
        let (from, to) = (self.block(from, order), self.block(to, order));
        self.back(to);
        for (from, to) in from.iter().zip(to) {
            let value = from.load(Ordering::Relaxed);
            if to.load(Ordering::Relaxed) != value {
                to.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Reads bytes within one frame.
    pub(crate) fn read(&self, from: PhysAddr, to: &mut [u8]) {
        within_a_frame(from, to.len());
        for (addr, skip, part) in Words::of(from, to.len()) {
            let word = self.word(addr).load(Ordering::Relaxed).to_le_bytes();
            let len = part.len();
            to[part].copy_from_slice(&word[skip..skip + len]);
        }
    }

    /// Writes bytes within one frame.
    pub(crate) fn write(&self, to: PhysAddr, from: &[u8]) {
        within_a_frame(to, from.len());
        for (addr, skip, part) in Words::of(to, from.len()) {
            let word = self.word(addr);
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            let len = part.len();
            bytes[skip..skip + len].copy_from_slice(&from[part]);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
}

fn within_a_frame(start: PhysAddr, len: usize) {
    assert!(start.page_offset() + len as u64 <= PAGE_SIZE, "{len} bytes at {start} cross the end of their frame");
}

/// Splits a range of bytes at word boundaries.
///
/// Each item is the address of a word, the bytes of the word to skip, and the part of the range in
/// the word.
struct Words {
    start: PhysAddr,
    done: usize,
    len: usize,
}

impl Words {
    fn of(start: PhysAddr, len: usize) -> Self {
        Self { start, done: 0, len }
    }
}

impl Iterator for Words {
    type Item = (PhysAddr, usize, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let addr = self.start.add(self.done as u64);
        let skip = (addr.raw() % 8) as usize;
        let piece = (8 - skip).min(self.len - self.done);
        let part = self.done..self.done + piece;
        self.done += piece;
        (piece > 0).then_some((addr.align_down(8), skip, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_bytes_read_back_and_others_are_unchanged(
            start in 0u64..4096, bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let bytes = &bytes[..bytes.len().min((PAGE_SIZE - start) as usize)];
            let ram = Ram::try_new(2 * PAGE_SIZE).expect("two pages");
            let background: Vec<u8> = (0..PAGE_SIZE).map(|i| i as u8 | 1).collect();
            ram.write(Pfn::new(1).base(), &background);
            ram.write(Pfn::new(1).base().add(start), bytes);
            let mut expected = background;
            expected[start as usize..start as usize + bytes.len()].copy_from_slice(bytes);
            let mut page = vec![0; PAGE_SIZE as usize];
            ram.read(Pfn::new(1).base(), &mut page);
            prop_assert_eq!(page, expected);
            ram.copy(Pfn::new(1), Pfn::new(0), Order::ZERO);
            ram.zero(Pfn::new(1), Order::ZERO);
            prop_assert!(ram.block(Pfn::new(1), Order::ZERO).iter().all(|word| word.load(Ordering::Relaxed) == 0));
            let mut part = vec![0; bytes.len()];
            ram.read(PhysAddr::new(start), &mut part);
            prop_assert_eq!(&part[..], bytes);
        }
    }

    #[test]
    fn memory_of_a_dropped_machine_is_zero_in_the_next() {
        for _ in 0..2 {
            let ram = Ram::try_new(3 * PAGE_SIZE).expect("three pages");
            assert!(ram.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
            ram.words().iter().for_each(|word| word.store(1, Ordering::Relaxed));
        }
        assert!(KEPT.with_borrow(|kept| kept.len()) == 1, "the second machine has the block of the first");
    }

    #[test]
    fn frames_are_aligned_on_the_host() {
        let ram = Ram::try_new(3 * PAGE_SIZE).expect("three pages");
        assert_eq!((ram.words().as_ptr().align_offset(PAGE_SIZE as usize), ram.words().len()), (0, 3 * WORDS_PER_PAGE));
    }

    #[test]
    #[should_panic(expected = "no memory at physical address 0x1000")]
    fn an_address_past_the_end_is_a_machine_check() {
        Ram::try_new(PAGE_SIZE).expect("one page").word(PhysAddr::new(PAGE_SIZE));
    }
}
