//! User memory as the kernel uses it: copies, words, strings, other processes' memory, futex keys.
//!
//! The tests also compare what `/proc` tells of its pages.
//!
//! Not covered: races (`gup_races.rs`).

mod copies;
mod futex;
mod remote;
mod soft_dirty;
