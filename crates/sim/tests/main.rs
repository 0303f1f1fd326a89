//! The tests of the simulated machine.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod common;
mod explore;
mod invalidation;
mod judge;
mod litmus;
mod machine;
mod nodes;
mod translation;
