//! The tests of random programs, with and without planted bugs.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

#[cfg(feature = "planted")]
mod planted;
#[cfg(feature = "planted")]
mod planted_pins;
mod random;
mod random_calls;
