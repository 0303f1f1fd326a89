//! Kernel memory: the global allocator.
//!
//! The heap starts with a region reserved at boot for the memmap and for allocations before there
//! are frames. When it is full, it gets blocks of frames from the kernel and keeps them.
//!
//! The lock is held with interrupts disabled, because a shootdown handler may drop the last
//! reference to a context. The heap releases the lock before it grows, because the memory manager
//! may have to wait for other CPUs.
//!
//! Not guaranteed: that the heap ever returns memory to the memory manager.

use crate::kernel::kernel;
use crate::machine::without_interrupts;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use spin::Mutex;
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

/// The heap grows by this many bytes if such a block is free.
const STEP: usize = 2 << 20;
/// Upper bound of the allocator's overhead in new memory, in bytes.
const OWN: usize = 1 << 10;

struct Heap(Mutex<Talc<Manual, DefaultBinning>>);

#[global_allocator]
static HEAP: Heap = Heap(Mutex::new(Talc::new(Manual)));

/// Adds `memory` to the heap for good.
pub fn grow(memory: &'static mut [u8]) {
    // SAFETY: the slice is exclusive and has a static lifetime.
    let _heap_end = without_interrupts(|| unsafe { HEAP.0.lock().claim(memory.as_mut_ptr(), memory.len()) });
}

/// Whether `bytes` contiguous bytes can be allocated; grows the heap if necessary.
pub fn can_allocate(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes, align_of::<usize>()) else { return false };
    if bytes == 0 {
        return true;
    }
    // SAFETY: the size is above 0, and the block is freed with its layout.
    unsafe {
        let block = HEAP.alloc(layout);
        if !block.is_null() {
            HEAP.dealloc(block, layout);
        }
        !block.is_null()
    }
}

impl Heap {
    fn try_allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: `GlobalAlloc::alloc` is called with a size above 0.
        without_interrupts(|| unsafe { self.0.lock().allocate(layout) })
    }
}

// SAFETY: Talc returns disjoint blocks of the memory that it owns, and the lock serialises callers.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        loop {
            if let Some(block) = self.try_allocate(layout) {
                return block.as_ptr();
            }
            // At least the size with the allocator's overhead, where memory is fragmented.
            let least = layout.size() + layout.align() + OWN;
            let Some(more) = kernel().more_memory(least.max(STEP)).or_else(|| kernel().more_memory(least)) else {
                return null_mut();
            };
            grow(more);
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block was allocated here with this layout.
        without_interrupts(|| unsafe { self.0.lock().deallocate(block, layout) });
    }
}
