//! User memory as the kernel uses it: copies, words, strings, other processes' memory, futex keys;
//! and what `/proc` tells of its pages.
//!
//! Not covered: races (`gup_races.rs`).

#[path = "user_memory/copies.rs"]
mod copies;
#[path = "gup/device.rs"]
#[allow(dead_code, reason = "shared with the tests of pages that are taken")]
mod device;
#[path = "user_memory/futex.rs"]
mod futex;
#[path = "support/on_both.rs"]
mod on_both;
#[path = "user_memory/remote.rs"]
mod remote;
#[path = "user_memory/soft_dirty.rs"]
mod soft_dirty;
