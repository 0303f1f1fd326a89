//! A heap of which one allocation can be refused.
//!
//! Shared by the tests of several crates. It is no part of a library, whose code may itself
//! allocate where it is instrumented.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What becomes of the allocations of a thread.
#[derive(Clone, Copy)]
enum Refusal {
    None,
    /// The allocation after so many others is refused.
    After(u64),
    /// An allocation of so many bytes was refused.
    Done(usize),
}

thread_local! {
    static REFUSAL: Cell<Refusal> = const { Cell::new(Refusal::None) };
}

/// The heap of the host, which refuses one allocation in [`refusing`].
///
/// A test program makes it its `#[global_allocator]`.
pub(crate) struct RefusingHeap;

impl RefusingHeap {
    fn refuses(bytes: usize) -> bool {
        let (refuses, next) = match REFUSAL.get() {
            Refusal::After(0) => (true, Refusal::Done(bytes)),
            Refusal::After(others) => (false, Refusal::After(others - 1)),
            other => (false, other),
        };
        REFUSAL.set(next);
        refuses
    }
}

// SAFETY: the heap of the system gives out and takes back the memory.
unsafe impl GlobalAlloc for RefusingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above. Untouched pages stay unbacked.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `body`, of which the allocation after `others` others is refused.
///
/// Returns the size of the refused allocation, too; `None` if there were not so many. Works in
/// programs with a [`RefusingHeap`].
pub(crate) fn refusing<T>(others: u64, body: impl FnOnce() -> T) -> (T, Option<usize>) {
    REFUSAL.set(Refusal::After(others));
    let result = body();
    match REFUSAL.replace(Refusal::None) {
        Refusal::Done(bytes) => (result, Some(bytes)),
        Refusal::After(_) | Refusal::None => (result, None),
    }
}
