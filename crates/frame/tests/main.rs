//! The tests of frames, folios and clearing, on host threads.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod batches;
mod buddy;
mod cells;
mod clear;
mod debts;
mod folio;
mod linear;
mod lines;
mod lru;
mod mapcount;
mod measure;
mod parked;
mod support;
mod table_page;
mod threads;
