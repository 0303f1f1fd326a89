//! The tests of the memory manager on real memory.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod clear;
#[cfg(feature = "planted")]
mod planted_clear;
mod table_machine;
