//! User memory as the kernel uses it: copies, words, strings, other processes' memory, futex keys;
//! and what `/proc` tells of its pages.
//!
//! Not covered: races (`gup_races.rs`).

#[path = "user_memory/copies.rs"]
mod copies;
#[path = "user_memory/futex.rs"]
mod futex;
#[path = "user_memory/remote.rs"]
mod remote;
#[path = "user_memory/soft_dirty.rs"]
mod soft_dirty;
