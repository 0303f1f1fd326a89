//! Edits of the page-table entries of a range: populate, zap, move, clear references.
//!
//! What other spaces share of its tables is broken first (`break_tables`).

mod break_tables;
mod clear_refs;
mod hooks;
mod move_tables;
mod populate;
pub(crate) mod zap;

pub use clear_refs::ClearRefs;
pub(crate) use hooks::MmHooks;
pub(in crate::space) use move_tables::EntryMove;
