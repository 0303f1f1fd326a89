//! The tests of captures, workloads, recording and replays.
//!
//! One binary: each would compile the generic code of the crates below again, and link it.

mod captures;
mod determinism;
mod format;
mod import;
mod native;
mod nodes;
mod page_out;
mod record;
mod replay_order;
