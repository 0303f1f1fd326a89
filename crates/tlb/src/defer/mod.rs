//! Flushes that one operation defers for many pages in many spaces.
//!
//! | file | what it does |
//! | --- | --- |
//! | `batch` | defers: a batch collects debts of many entries |
//! | `cover` | says what each operation must flush |
//! | `linger` | defers past the return: which translations may stay in TLBs, and until when |
//! | `key` | encodes the keys in the record of a table, and says whether one is settled |
//! | `table_key` | records: which entries of a table owe a flush since when, and what an install there flushes |
//! | `settle` | settles: a batch flushes, or another operation that finds a deferred entry flushes it first |

mod batch;
pub(crate) mod cover;
pub(crate) mod key;
mod linger;
mod settle;
mod table_key;

pub use batch::Batch;
pub use linger::LazyBatch;
