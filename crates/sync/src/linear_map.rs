//! Where a machine's memory is mapped, for code that stores to whole frames.
//!
//! Key type: [`LinearMap`], frames at consecutive addresses (Linux's direct map). An embedder
//! supplies it by [`Platform::memory`](crate::Platform::memory). The simulated machine has none and
//! clears its frames itself.
//!
//! INV-LINEAR-MAP: each frame of the map that the allocator was given is ordinary write-back memory
//! (no device), and stays mapped for reading and writing.
//!
//! Not guaranteed: that the caller owns the frame whose address it gets. The allocator ensures
//! that.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn};

/// Frames at consecutive addresses.
#[derive(Clone, Copy, Debug)]
pub struct LinearMap {
    first: NonNull<u8>,
    frames: FrameRange,
}

// SAFETY: INV-LINEAR-MAP – the mapping is permanent and the same on every CPU, and no safe method
// accesses the memory.
unsafe impl Send for LinearMap {}
// SAFETY: INV-LINEAR-MAP – as above.
unsafe impl Sync for LinearMap {}

impl LinearMap {
    /// The map of `frames`, the first of them at the address `first`.
    ///
    /// # Safety
    /// INV-LINEAR-MAP holds for `frames` at `first`, and `first` is aligned to the page size.
    pub const unsafe fn new(first: NonNull<u8>, frames: FrameRange) -> Self {
        Self { first, frames }
    }

    /// The map of host memory, whose first page becomes the frame `first`.
    ///
    /// `None` if `memory` is not a whole number of aligned pages, or has more than frame numbers
    /// can name.
    pub fn over(memory: &'static [AtomicU64], first: Pfn) -> Option<Self> {
        let bytes = size_of_val(memory) as u64;
        let start = NonNull::from_ref(memory).cast::<u8>();
        let whole = bytes.is_multiple_of(PAGE_SIZE) && (start.addr().get() as u64).is_multiple_of(PAGE_SIZE);
        let frames = u32::try_from(bytes / PAGE_SIZE).ok()?;
        let end = first.raw().checked_add(frames)?;
        whole.then(|| Self { first: start, frames: FrameRange::new(first, Pfn::new(end)) })
    }

    /// Turns bytes into words that threads can share.
    ///
    /// The bytes before the first aligned word and after the last whole one are left out.
    pub fn words(memory: &'static mut [u8]) -> &'static [AtomicU64] {
        // SAFETY: INV-LINEAR-MAP – any eight bytes are a valid word, and the unique reference is
        // consumed, so only the shared one remains.
        let (_, words, _) = unsafe { memory.align_to_mut::<AtomicU64>() };
        words
    }

    /// The address of a block of frames, if the map contains the whole block.
    #[inline]
    pub fn block(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        let end = pfn.raw().checked_add(order.frames())?;
        let inside = self.frames.start() <= pfn && end <= self.frames.end().raw();
        let offset = (pfn.raw() - self.frames.start().raw().min(pfn.raw())) as usize * PAGE_SIZE as usize;
        // SAFETY: INV-LINEAR-MAP – the map contains the frame at this offset.
        inside.then(|| unsafe { self.first.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    /// INV-LINEAR-MAP.
    #[test]
    fn a_block_has_an_address_exactly_if_the_map_contains_it() {
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
