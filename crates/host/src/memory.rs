//! HostMemory of the host for the frames of a machine.
//!
//! Key type: [`HostMemory`]. It is aligned to 1 GiB if it is that large, and the host is asked for huge
//! pages. It is never given back while the process lives, so that frames stay what they are.
//!
//! Not guaranteed: huge pages, nor that the host has backed what nobody touched. [`HostMemory::touch`]
//! touches.

use memmap2::{Advice, MmapMut};
use pagewright_sync::LinearMap;
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The host has no room.
#[derive(Debug, thiserror::Error)]
#[error("{bytes} bytes of memory: {source}")]
pub struct HostMemoryError {
    /// What was asked for.
    pub bytes: u64,
    /// Why not.
    pub source: io::Error,
}

/// HostMemory whose first page is frame 0.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    words: &'static [AtomicU64],
}

const WORDS_PER_PAGE: usize = PAGE_SIZE as usize / 8;

impl HostMemory {
    /// An arena of this many frames.
    ///
    /// # Errors
    /// [`HostMemoryError`].
    pub fn try_new(frames: u32) -> Result<Self, HostMemoryError> {
        let bytes = u64::from(frames) * PAGE_SIZE;
        let align = if bytes >= Order::PUD.bytes() { Order::PUD.bytes() } else { Order::PMD.bytes() };
        let failed = |source| HostMemoryError { bytes, source };
        let map = MmapMut::map_anon((bytes + align) as usize).map_err(failed)?;
        // Refused where the host has no huge pages; then it is small ones.
        let _ = map.advise(Advice::HugePage);
        let whole: &'static mut MmapMut = Box::leak(Box::new(map));
        let skip = whole.as_ptr().align_offset(align as usize);
        let words = LinearMap::words(&mut whole[skip..skip + bytes as usize]);
        Ok(Self { words })
    }

    /// Its frames.
    pub fn frames(&self) -> FrameRange {
        FrameRange::new(Pfn::new(0), Pfn::new((self.words.len() / WORDS_PER_PAGE) as u32))
    }

    /// The words of a block.
    ///
    /// # Panics
    /// When it is not all in here.
    pub fn block(&self, pfn: Pfn, order: Order) -> &'static [AtomicU64] {
        &self.words[pfn.index() * WORDS_PER_PAGE..][..order.frames() as usize * WORDS_PER_PAGE]
    }

    /// Has the host back every page, by a store to each.
    pub fn touch(&self) {
        self.words.iter().step_by(WORDS_PER_PAGE).for_each(|word| word.store(1, Ordering::Relaxed));
    }

    /// Fills a block with `value`.
    pub fn fill(&self, pfn: Pfn, order: Order, value: u64) {
        self.block(pfn, order).iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    /// Whether every word of a block is `value`.
    pub fn holds(&self, pfn: Pfn, order: Order, value: u64) -> bool {
        self.block(pfn, order).iter().all(|word| word.load(Ordering::Relaxed) == value)
    }

    /// The map for who clears; `None` never, as the arena is whole pages.
    pub(crate) fn map(&self) -> Option<LinearMap> {
        LinearMap::over(self.words, Pfn::new(0))
    }
}
