//! Files that are shown a mapping at a time, as they are read (`struct seq_file`).
//!
//! [`RecordWriter`] takes the text of one mapping after the other, and says when it has enough. The
//! caller keeps the address at which the next read begins.
//!
//! **INV-VIEW-RESUME** The parts of `maps` or `smaps` that a reader gets one after the other are
//! whole records in the order of their addresses, and show each mapping that exists during all
//! parts. Without changes in between, they make the whole text.
//!
//! Neighbours: `maps` and `smaps` write the records.
//!
//! Not guaranteed: that two records are of one moment.

use super::mem_size_stats::first_mapping;
use crate::mm::Mm;
use crate::space::Space;
use core::fmt::{self, Write};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{PageRange, VirtAddr};

/// A writer of whole records.
///
/// It may refuse a part of a record. It then drops what it has of the record, which the next call
/// writes again.
pub trait RecordWriter: Write {
    /// Ends a record, and returns whether the next one is wanted.
    fn end_record(&mut self) -> bool;
}

impl<P: Platform> Mm<P> {
    /// Writes a record for each mapping that ends after `from`, while `out` accepts more.
    ///
    /// `record` writes that of the first mapping that ends after an address, and returns its range;
    /// it holds no lock when it is called.
    ///
    /// Returns the first mapping that was not written. INV-VIEW-RESUME: a call that begins there
    /// continues the text.
    ///
    /// Linux: `m_start`, `m_next`, whose position is the address of the next mapping.
    pub(super) fn show_records(
        &self,
        space: &Space<P>,
        from: VirtAddr,
        out: &mut dyn RecordWriter,
        record: impl Fn(VirtAddr, &mut dyn Write) -> Option<(PageRange, fmt::Result)>,
    ) -> Option<VirtAddr> {
        let (mut at, mut is_wanted) = (from, true);
        while is_wanted {
            let (range, written) = record(at, out)?;
            if written.is_err() {
                return Some(plant!(RefusedRecordLost; range.end(), range.start()));
            }
            at = range.end();
            is_wanted = out.end_record();
        }
        first_mapping(space, at).map(PageRange::start)
    }
}
