//! The tests of checks, searches and the corpus of named bugs.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod bugs;
mod check;
mod common;
// At the root, because its files name it `crate::corpus`.
#[path = "../examples/bugs/corpus.rs"]
mod corpus;
mod current;
mod deferred_flushes;
mod exhaustive;
mod five_levels;
mod freed_frames;
mod granules;
mod invalidations;
mod kernel_ranges;
mod minimise;
mod missing_steps;
mod pointer_stores;
mod processes;
mod published_crates;
mod raw_tables;
mod readme;
mod search;
mod shared_tables;
mod source_lines;
mod user_crate;
mod vacuity;
