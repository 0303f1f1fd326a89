//! Files that are shown a mapping at a time, as they are read (`struct seq_file`).
//!
//! [`RecordWriter`] takes the text of one mapping after the other, and says when it has enough. The
//! caller keeps the address at which the next read begins.
//!
//! Neighbours: `maps` and `smaps` write the records.
//!
//! Not guaranteed: that the records of two calls are of one moment.

use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use core::fmt::{self, Write};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::MmapRead;
use pagewright_types::VirtAddr;

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
    /// Returns the first mapping that was not written. INV-VIEW-RESUME: a call that begins there
    /// continues the text.
    ///
    /// Linux: `m_start`, `m_next`, whose position is the address of the next mapping.
    pub(super) fn show_records(
        &self,
        space: &Space<P>,
        from: VirtAddr,
        out: &mut dyn RecordWriter,
        record: impl Fn(&MmapRead<'_, P, AddressMap<P>>, u64, &Vma<P>, &mut dyn Write) -> fmt::Result,
    ) -> Option<VirtAddr> {
        let map = space.map().read();
        let mut is_wanted = true;
        for (start, vma) in map.iter_from(from) {
            if !is_wanted {
                return Some(VirtAddr::from_page_index(start));
            }
            if record(&map, start, vma, out).is_err() {
                let refused = VirtAddr::from_page_index(start);
                return Some(plant!(RefusedRecordLost; VirtAddr::from_page_index(vma.end()), refused));
            }
            is_wanted = out.end_record();
        }
        None
    }
}
