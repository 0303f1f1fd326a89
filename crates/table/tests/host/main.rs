//! Page-table trees on a machine of host threads, both instruction sets.

mod edits;
mod folios;
mod for_all;
mod locks;
mod model;
mod path;
mod pending;
mod publish;
mod runs;
mod sharing;
mod soft;
mod space;
#[path = "../../../tlb/tests/support/mod.rs"]
mod support;
