//! Kernel memory: the global allocator.
//!
//! It starts with one region, set aside at boot for the memmap and what is needed before there are
//! frames; when it is full it asks the kernel for blocks of frames, which it keeps.
//!
//! The lock is held with interrupts closed, because a shootdown handler may drop the last reference
//! to a context. More memory is asked for without it: the memory manager may have to wait for other
//! CPUs.
//!
//! Not guaranteed: that memory goes back to the memory manager.

use crate::kernel::kernel;
use crate::machine::without_interrupts;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use spin::Mutex;
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

/// What is asked for at once if it can be had: a block of 2 MiB.
const STEP: usize = 2 << 20;
/// What the allocator keeps for itself of what it gets.
const OWN: usize = 1 << 10;

struct Heap(Mutex<Talc<Manual, DefaultBinning>>);

#[global_allocator]
static HEAP: Heap = Heap(Mutex::new(Talc::new(Manual)));

/// Gives `memory` to the heap for good.
pub fn grow(memory: &'static mut [u8]) {
    // SAFETY: the slice is exclusive and lives for ever.
    let _heap_end = without_interrupts(|| unsafe { HEAP.0.lock().claim(memory.as_mut_ptr(), memory.len()) });
}

/// Whether so many bytes can be had in one piece; the heap grows for that, if it can.
pub fn has_room(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes, align_of::<usize>()) else { return false };
    // SAFETY: the size is not 0 if the caller asks for anything, and what was got goes back with
    // its layout.
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

// SAFETY: Talc gives out disjoint blocks of what it was given, and the lock makes it one caller at
// a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        loop {
            if let Some(block) = self.try_allocate(layout) {
                return block.as_ptr();
            }
            // Some more than asked for, for the allocator's own words; no more than that where
            // memory is in pieces.
            let least = layout.size() + layout.align() + OWN;
            let Some(more) = kernel().more_memory(least.max(STEP)).or_else(|| kernel().more_memory(least)) else {
                return null_mut();
            };
            grow(more);
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller got the block here, with this layout.
        without_interrupts(|| unsafe { self.0.lock().deallocate(block, layout) });
    }
}
