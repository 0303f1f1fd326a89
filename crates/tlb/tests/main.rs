//! The tests of debts, ledger, batches and engines.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

#[path = "support/bare.rs"]
mod bare;
mod batch_costs;
mod batch_races;
mod host;
mod ledger_races;
#[path = "../../sync/tests/support/refusing_heap.rs"]
mod refusing_heap;
mod scheduling_points;
mod support;
mod walker_races;

#[global_allocator]
static HEAP: refusing_heap::RefusingHeap = refusing_heap::RefusingHeap;
