//! The tests of the memory manager on real memory.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod clear;
mod heap;
#[cfg(feature = "planted")]
mod planted_clear;
#[path = "../../sync/tests/support/refusing_heap.rs"]
mod refusing_heap;
mod table_machine;

#[global_allocator]
static HEAP: refusing_heap::RefusingHeap = refusing_heap::RefusingHeap;
