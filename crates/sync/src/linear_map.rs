//! Where a machine's memory is mapped, for code that stores to whole frames.
//!
//! Key type: [`LinearMap`], frames at consecutive addresses (Linux's direct map). An embedder
//! supplies it by [`Platform::memory`](crate::Platform::memory). The simulated machine has none and
//! clears its frames itself.
//!
//! **INV-LINEAR-MAP** Each frame of a linear map is ordinary write-back memory, stays mapped for
//! reading and writing, and is accessed as atomic words or by assembly only. There is one map of a
//! piece of memory.
//!
//! Not guaranteed: that the caller owns the frame whose address it gets. The allocator ensures
//! that.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn};

/// Frames at consecutive addresses.
///
/// Neither `Copy` nor `Clone`, and safe code makes one only of memory that it gives up.
#[derive(Debug)]
pub struct LinearMap {
    first: NonNull<u8>,
    frames: FrameRange,
    /// Whether a block inside `frames` is memory, for a map with holes.
    has: fn(Pfn, Order) -> bool,
}

// SAFETY: INV-LINEAR-MAP – the mapping is permanent and the same on every CPU, and no safe method
// accesses the memory.
unsafe impl Send for LinearMap {}
// SAFETY: INV-LINEAR-MAP – as above.
unsafe impl Sync for LinearMap {}

impl LinearMap {
    /// The map of those blocks in `frames` for which `has` returns true.
    ///
    /// The first of `frames` is at the address `first`.
    ///
    /// # Safety
    /// INV-LINEAR-MAP holds for these blocks, and `first` is aligned to the page size.
    pub const unsafe fn new(first: NonNull<u8>, frames: FrameRange, has: fn(Pfn, Order) -> bool) -> Self {
        Self { first, frames, has }
    }

    /// The map of host memory, whose first page becomes the frame `first`, and its words.
    ///
    /// The machine accesses the contents of its frames through the words. `None` if `memory` is not
    /// a whole number of aligned pages, or has more than frame numbers can name.
    ///
    /// The memory is borrowed for ever, so there is no second map of it, and no other access:
    ///
    /// ```compile_fail
    /// use pagewright_sync::LinearMap;
    /// use pagewright_types::Pfn;
    ///
    /// let memory: &'static mut [u8] = Box::leak(vec![0; 8192].into_boxed_slice());
    /// let one = LinearMap::over(memory, Pfn::new(0));
    /// let other = LinearMap::over(memory, Pfn::new(0));
    /// drop((one, other));
    /// ```
    pub fn over(memory: &'static mut [u8], first: Pfn) -> Option<(Self, &'static [AtomicU64])> {
        let bytes = memory.len() as u64;
        let start = NonNull::from_mut(memory).cast::<u8>();
        let whole = bytes.is_multiple_of(PAGE_SIZE) && (start.addr().get() as u64).is_multiple_of(PAGE_SIZE);
        let frames = u32::try_from(bytes / PAGE_SIZE).ok()?;
        let end = first.raw().checked_add(frames)?;
        if !whole {
            return None;
        }
        let words = start.cast::<AtomicU64>().as_ptr();
        // SAFETY: INV-LINEAR-MAP – any eight bytes are a valid word, pages are aligned, and the
        // unique reference is consumed, so the words and the map are the only ways to the memory.
        let words = unsafe { core::slice::from_raw_parts(words, bytes as usize / size_of::<AtomicU64>()) };
        Some((Self { first: start, frames: FrameRange::new(first, Pfn::new(end)), has: |_, _| true }, words))
    }

    /// The address of a block of frames, if the map contains the whole block.
    #[inline]
    pub fn block(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        let end = pfn.raw().checked_add(order.frames())?;
        let inside = self.frames.start() <= pfn && end <= self.frames.end().raw();
        let offset = (pfn.raw() - self.frames.start().raw().min(pfn.raw())) as usize * PAGE_SIZE as usize;
        // SAFETY: INV-LINEAR-MAP – the map contains the frame at this offset.
        (inside && (self.has)(pfn, order)).then(|| unsafe { self.first.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use core::sync::atomic::Ordering;

    const PAGE: usize = PAGE_SIZE as usize;

    /// Pages, and `extra` bytes.
    fn pages(count: usize, extra: usize) -> &'static mut [u8] {
        let memory: &'static mut [u8] = Box::leak(vec![0; (count + 1) * PAGE + extra].into_boxed_slice());
        let skip = memory.as_ptr().align_offset(PAGE);
        &mut memory[skip..skip + count * PAGE + extra]
    }

    /// INV-LINEAR-MAP.
    #[test]
    fn a_block_has_an_address_exactly_if_the_map_contains_it() {
        let (map, words) = LinearMap::over(pages(3, 0), Pfn::new(7)).expect("three whole pages");
        let at = |pfn, order| map.block(Pfn::new(pfn), Order::new(order)).map(|at| at.addr().get());
        let start = words.as_ptr().addr();
        assert_eq!(words.len(), 3 * 512);
        assert_eq!(at(7, 0), Some(start));
        assert_eq!(at(8, 1), Some(start + 4096));
        assert_eq!(at(9, 0), Some(start + 8192));
        for (pfn, order) in [(6, 0), (6, 1), (9, 1), (10, 0), (u32::MAX, 0)] {
            assert_eq!(at(pfn, order), None, "frame {pfn}, order {order}");
        }
        assert!(LinearMap::over(pages(1, 8), Pfn::new(0)).is_none());
        assert!(LinearMap::over(&mut pages(2, 0)[8..8 + PAGE], Pfn::new(0)).is_none());
        assert!(LinearMap::over(pages(3, 0), Pfn::new(u32::MAX)).is_none());
    }

    /// INV-LINEAR-MAP: the address may be stored to while threads share the words.
    #[test]
    fn the_map_and_its_words_are_the_same_memory() {
        let (map, words) = LinearMap::over(pages(2, 0), Pfn::new(0)).expect("two whole pages");
        words[512].store(u64::MAX, Ordering::Relaxed);
        let at = map.block(Pfn::new(1), Order::new(0)).expect("the second page");
        // SAFETY: INV-LINEAR-MAP – the map contains the page, and no other thread uses it.
        let found = unsafe { at.cast::<u64>().replace(7) };
        assert_eq!((found, words[512].load(Ordering::Relaxed)), (u64::MAX, 7));
    }

    /// INV-LINEAR-MAP.
    #[test]
    fn a_hole_of_the_map_has_no_address() {
        let (first, frames) = (NonNull::dangling(), FrameRange::new(Pfn::new(0), Pfn::new(8)));
        // SAFETY: INV-LINEAR-MAP – it holds for the empty set of blocks, and no address is used.
        let map = unsafe { LinearMap::new(first, frames, |_, _| false) };
        assert_eq!(map.block(Pfn::new(0), Order::new(0)), None);
    }
}
