//! `madvise(2)`.

use super::Space;
use crate::error::{MmError, bounded};
use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_types::{PageRange, VirtAddr, plant};

impl<P: Platform> Mm<P> {
    /// `MADV_DONTNEED`: drops the pages of `len` bytes at `addr`. Private memory reads as zeroes, or as its file, afterwards.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, pages beside a hole have been dropped when the call fails with `ENOMEM` because of it; for any
    /// other error nothing has changed.
    pub fn madvise_dontneed(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        let range = bounded(addr, len)?;
        self.call(|| self.drop_pages(space, range))
    }

    fn drop_pages(&self, space: &Space<P>, range: PageRange) -> Result<(), MmError> {
        // Reading suffices, as in Linux: no mapping changes, and faults lock the same tables.
        let map = space.map().read();
        let mut gather = Gather::new(&self.tlb, space.table().context());
        let mut hole = None;
        let mut at = range.start();
        for (start, vma) in map.overlapping(range) {
            let Some(part) = vma.range(start).intersect(range) else { continue };
            if part.start() > at {
                hole = hole.or(Some(at));
            }
            at = part.end();
            self.zap(space, part, &mut gather);
        }
        // INV-TLB-RACE: whoever finds an entry cleared after this lets go of the space finds it flushed, too.
        plant!(ZapFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        let hole = hole.or((at < range.end()).then_some(at));
        hole.map_or(Ok(()), |at| Err(MmError::NotMapped { at }))
    }
}
