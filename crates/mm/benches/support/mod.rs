//! What the benches of the memory manager stand on: a machine that is nothing but host memory, and
//! a table of ratios.
//!
//! - [`machine`] – one CPU, entries and contents in host memory, no TLBs and no clock: what is left
//!   is the memory manager's own time.
//! - [`table`] – each scenario beside criterion's figures, as a ratio to an atomic increment of the
//!   same moment; the benches of Linux share it.

pub(crate) mod machine;
pub(crate) mod table;
