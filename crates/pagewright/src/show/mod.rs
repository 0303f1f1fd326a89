//! Tables: one replay as `perf stat` and `/proc/vmstat` show it, two beside each other with the
//! change, and both beside Linux.

mod compare;
mod images;
mod number;
mod single;
pub(crate) mod tour;

pub(crate) use compare::comparison;
pub(crate) use single::report;
