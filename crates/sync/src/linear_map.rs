//! Where a machine's memory is mapped, for whoever stores to whole frames.
//!
//! Key type: [`LinearMap`], frames at consecutive addresses (Linux's direct map). An embedder hands
//! it out by [`Platform::memory`](crate::Platform::memory); the simulated machine has none, and
//! clears its frames itself.
//!
//! INV-LINEAR-MAP: each frame of the map that the allocator was given is memory of the ordinary
//! sort (write-back, no device), mapped for reading and writing for good.
//!
//! Not guaranteed: that a frame belongs to who asks where it is. The allocator knows that.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn};

/// Frames at consecutive addresses.
#[derive(Clone, Copy, Debug)]
pub struct LinearMap {
    first: NonNull<u8>,
    frames: FrameRange,
}

// SAFETY: INV-LINEAR-MAP – the map is there for good and for every CPU, and a value of this type
// reaches no byte by itself.
unsafe impl Send for LinearMap {}
// SAFETY: INV-LINEAR-MAP – as above.
unsafe impl Sync for LinearMap {}

impl LinearMap {
    /// The map whose first frame lies at `first`.
    ///
    /// # Safety
    /// INV-LINEAR-MAP holds for `frames` at `first`; `first` is aligned to the page size.
    pub const unsafe fn new(first: NonNull<u8>, frames: FrameRange) -> Self {
        Self { first, frames }
    }

    /// The map of memory that is words of the host; the first page becomes the frame `first`.
    ///
    /// `None` if that is no whole number of pages, or not aligned to them.
    pub fn over(memory: &'static [AtomicU64], first: Pfn) -> Option<Self> {
        let bytes = size_of_val(memory) as u64;
        let start = NonNull::from_ref(memory).cast::<u8>();
        let whole = bytes.is_multiple_of(PAGE_SIZE) && (start.addr().get() as u64).is_multiple_of(PAGE_SIZE);
        let frames = u32::try_from(bytes / PAGE_SIZE).ok()?;
        let end = first.raw().checked_add(frames)?;
        whole.then(|| Self { first: start, frames: FrameRange::new(first, Pfn::new(end)) })
    }

    /// Bytes as words that several may store to.
    ///
    /// Bytes before the first that is aligned and after the last whole word are left out.
    pub fn words(memory: &'static mut [u8]) -> &'static [AtomicU64] {
        // SAFETY: INV-LINEAR-MAP – any bytes are a word, which is stored to through shared
        // references only from now on: the unique one is given up.
        let (_, words, _) = unsafe { memory.align_to_mut::<AtomicU64>() };
        words
    }

    /// Where a block of frames lies, if all of it is in the map.
    #[inline]
    pub fn block(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        let end = pfn.raw().checked_add(order.frames())?;
        let inside = self.frames.start() <= pfn && end <= self.frames.end().raw();
        let offset = (pfn.raw() - self.frames.start().raw().min(pfn.raw())) as usize * PAGE_SIZE as usize;
        // SAFETY: INV-LINEAR-MAP – the offset is that of a frame of the map.
        inside.then(|| unsafe { self.first.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    /// INV-LINEAR-MAP
    #[test]
    fn blocks_lie_where_their_frames_do_and_nowhere_else() {
        let words = || (0..4 * 512).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let memory: &'static [AtomicU64] = Box::leak(words().into_boxed_slice());
        let skip = memory.as_ptr().align_offset(PAGE_SIZE as usize);
        let memory = &memory[skip..skip + 3 * 512];
        let map = LinearMap::over(memory, Pfn::new(7)).expect("three whole pages");
        let at = |pfn, order| map.block(Pfn::new(pfn), Order::new(order)).map(|at| at.addr().get());
        let start = memory.as_ptr().addr();
        assert_eq!(at(7, 0), Some(start));
        assert_eq!(at(8, 1), Some(start + 4096));
        assert_eq!(at(9, 0), Some(start + 8192));
        for (pfn, order) in [(6, 0), (6, 1), (9, 1), (10, 0), (u32::MAX, 0)] {
            assert_eq!(at(pfn, order), None, "frame {pfn}, order {order}");
        }
        assert!(LinearMap::over(&memory[1..], Pfn::new(0)).is_none());
        assert!(LinearMap::over(memory, Pfn::new(u32::MAX)).is_none());
    }
}
