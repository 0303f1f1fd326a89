//! The tests of the oracle and of the reference memory.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod counts;
mod deferred;
mod memory;
mod moved_again;
mod paths;
mod released;
mod replaced;
mod shared;
mod support;
mod translations;
mod walkers;
mod windows;
