//! Support for the memory manager's benches: a machine on host memory, and a table of ratios.
//!
//! - [`machine`] – one CPU, with entries and contents in host memory and without TLBs or a clock,
//!   so that only the memory manager's own time is measured.
//! - [`table`] – each scenario beside criterion's figures, as a ratio to an atomic increment
//!   measured at the same time; the benches of Linux share it.

pub(crate) mod machine;
pub(crate) mod table;
