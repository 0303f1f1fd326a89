//! Flushes that one operation defers for many pages in many spaces.
//!
//! | file | what it does |
//! | --- | --- |
//! | `batch` | defers: a batch collects debts, and one flush settles them |
//! | `pay` | pays early: an operation that finds a deferred entry first flushes it, or finds it paid |

mod batch;
mod pay;

pub use batch::Batch;
