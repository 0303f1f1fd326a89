//! Host memory for the frames of a machine.
//!
//! Key type: [`HostMemory`]. An arena of 1 GiB or more is aligned to 1 GiB, a smaller one to 2 MiB.
//! It asks the host for huge pages, unless few of its frames will be touched. It is never unmapped
//! while the process lives, so that frames stay valid. Processes that this process forks do not get
//! it, so that it adds nothing to the cost of such a fork.
//!
//! Not guaranteed: huge pages, or that the host backs memory before it is touched.
//! [`HostMemory::touch`] touches all of it.

use memmap2::{Advice, MmapMut, MmapOptions};
use pagewright_sync::{FrameWords, LinearMap};
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The host has no memory for an arena.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {bytes} bytes of memory: {source}")]
pub struct HostMemoryError {
    /// The size of the arena, in bytes.
    pub bytes: u64,
    /// The error of the host.
    pub source: io::Error,
}

/// An arena of host memory; its first page is frame 0.
///
/// A copy is a reference to the same memory.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    words: FrameWords,
    map: &'static LinearMap,
}

const WORDS_PER_PAGE: usize = PAGE_SIZE as usize / 8;

impl HostMemory {
    /// Maps an arena of this many frames.
    ///
    /// # Errors
    /// [`HostMemoryError`] when the host cannot map it.
    pub fn try_new(frames: u32) -> Result<Self, HostMemoryError> {
        Self::map_arena(frames, Advice::HugePage)
    }

    /// Maps an arena of which few frames will be touched; it may exceed the memory of the host.
    ///
    /// # Errors
    /// [`HostMemoryError`] when the host cannot map it.
    pub fn try_new_sparse(frames: u32) -> Result<Self, HostMemoryError> {
        Self::map_arena(frames, Advice::NoHugePage)
    }

    fn map_arena(frames: u32, pages: Advice) -> Result<Self, HostMemoryError> {
        let bytes = u64::from(frames) * PAGE_SIZE;
        let align = if bytes >= Order::PUD.bytes() { Order::PUD.bytes() } else { Order::PMD.bytes() };
        let failed = |source| HostMemoryError { bytes, source };
        let mut options = MmapOptions::new();
        let options = options.len((bytes + align) as usize);
        let map = if pages == Advice::NoHugePage { options.no_reserve_swap() } else { options }.map_anon();
        let map = map.map_err(failed)?;
        map.advise(Advice::DontFork).map_err(failed)?;
        // The host refuses if it has no huge pages; the arena then has base pages.
        let _ = map.advise(pages);
        let whole: &'static mut MmapMut = Box::leak(Box::new(map));
        let skip = whole.as_ptr().align_offset(align as usize);
        let mapped = FrameWords::over(&mut whole[skip..skip + bytes as usize], Pfn::new(0));
        let (words, map) = mapped.expect("whole pages, no more than frame numbers");
        Ok(Self { words, map: Box::leak(Box::new(map)) })
    }

    /// The frames of the arena.
    pub fn frames(&self) -> FrameRange {
        self.words.frames()
    }

    /// The 64-bit words of a block.
    ///
    /// # Panics
    /// When the block is not inside the arena.
    pub fn block(&self, pfn: Pfn, order: Order) -> &'static [AtomicU64] {
        self.words.block(pfn, order)
    }

    /// Makes the host back every page, by a store to its first word.
    pub fn touch(&self) {
        self.words.words().iter().step_by(WORDS_PER_PAGE).for_each(|word| word.store(1, Ordering::Relaxed));
    }

    /// Fills a block with `value`.
    ///
    /// # Panics
    /// When the block is not inside the arena.
    pub fn fill(&self, pfn: Pfn, order: Order, value: u64) {
        self.words.fill(pfn, order, value);
    }

    /// Whether every word of a block is `value`.
    ///
    /// # Panics
    /// When the block is not inside the arena.
    pub fn holds(&self, pfn: Pfn, order: Order, value: u64) -> bool {
        self.block(pfn, order).iter().all(|word| word.load(Ordering::Relaxed) == value)
    }

    /// The words of all frames.
    pub(crate) fn words(&self) -> FrameWords {
        self.words
    }

    /// The linear map of the arena.
    pub(crate) fn map(&self) -> &'static LinearMap {
        self.map
    }
}
