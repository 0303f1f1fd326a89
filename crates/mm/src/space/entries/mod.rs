//! What calls do to the entries of page tables, range by range.

mod clear_refs;
mod move_tables;
mod populate;
pub(crate) mod zap;

pub use clear_refs::ClearRefs;
