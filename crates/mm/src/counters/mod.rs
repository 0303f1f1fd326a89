//! Gauges of the whole machine.
//!
//! Gauges rise and fall. Values that only rise are [`Counter`](pagewright_types::Counter)s. Both
//! are declared in `types`, because the layers below count, too. The resident set of a space is in
//! `table`, which counts where it edits entries.
//!
//! **INV-MM-GAUGE** A gauge is the number of what it counts, in all spaces and tables.
//!
//! CPUs keep parts of it, so a read beside edits may be off by the pages that move meanwhile.

pub use pagewright_table::Rss;
pub use pagewright_tlb::frames::RssKind;
pub use pagewright_types::Gauge;
