//! The tests of the oracle that judges the memory manager.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod contention;
mod oracle_counts;
mod oracle_facts;
