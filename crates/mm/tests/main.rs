//! The tests of the memory manager, one room for each concept.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod counts;
mod fault;
mod file;
mod gup;
mod invariants;
mod migrate;
mod numa;
mod policy;
mod reclaim;
mod refused;
mod share;
mod space;
mod swap;
mod thp;
mod user;
