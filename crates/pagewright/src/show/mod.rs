//! Prints tables of one replay or of two.
//!
//! One replay has the form of `perf stat` and `/proc/vmstat`, followed by Linux's own counts. Two
//! replays are compared, with the change in per cent.

mod compare;
mod images;
mod number;
mod single;
pub(crate) mod tour;

pub(crate) use compare::comparison;
pub(crate) use single::report;
