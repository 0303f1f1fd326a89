//! Flushes that one operation defers for many pages in many spaces.
//!
//! | file | what it does |
//! | --- | --- |
//! | `batch` | defers: a batch collects debts of many entries |
//! | `pay` | pays: a batch settles, or another operation that finds a deferred entry first flushes it |

mod batch;
mod pay;

pub use batch::Batch;
