//! What the benches of the memory manager stand on: a machine that is nothing but host memory, and a table of medians.
//!
//! - [`machine`] – one CPU, entries and contents in host memory, no TLBs and no clock: what is left is the memory manager's own time.
//! - [`table`] – each scenario's median beside criterion's figures, as ratios to an atomic increment of the same run.

pub(crate) mod machine;
pub(crate) mod table;
