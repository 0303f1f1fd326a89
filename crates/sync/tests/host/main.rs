//! The locks and containers under threads of the host, which yield to its scheduler.
//!
//! These tests see only the memory orders that the host's CPU produces. The `loom` tests explore
//! the others.
#![cfg(not(loom))]

mod arc;
mod auto_traits;
mod backend;
mod boxed;
mod cpumask;
mod frame_set;
mod lines;
mod mailbox;
mod mutual_exclusion;
mod order;
mod percpu;
#[path = "../support/refusing_heap.rs"]
mod refusing_heap;
mod writer;
mod wrong_backend;

#[global_allocator]
static HEAP: refusing_heap::RefusingHeap = refusing_heap::RefusingHeap;
