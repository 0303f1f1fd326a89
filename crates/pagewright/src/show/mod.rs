//! Prints tables of one replay, of several, and of a capture's contents.
//!
//! One replay has the form of `perf stat` and `/proc/vmstat`, followed by Linux's own counts.
//! Several are compared, with the change in per cent. Counts, modelled times and measured times
//! never share a table.

mod compare;
mod contents;
mod faults;
mod forks;
mod images;
mod number;
mod page;
mod single;

pub(crate) use compare::{ComparedColumn, ComparedRows, comparison};
pub(crate) use contents::contents;
pub(crate) use number::{change, counted, cpus, grouped, size};
pub(crate) use page::page;
pub(crate) use single::report;
