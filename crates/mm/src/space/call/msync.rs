//! `msync(2)`: writes dirty pages of shared mappings back to their files.
//!
//! Not guaranteed: any write by `ASYNC`. As in Linux, it only checks that the range is mapped; the
//! dirty pages are known without it.

use crate::error::MmError;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::space::{Space, SyncFlags, VmFlags};
use pagewright_sync::{Arc, Platform};
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

/// What to do for the part of a mapping in the range.
enum Step<P: Platform> {
    /// Nothing.
    Skip,
    /// Write these pages of its file, from the first to before the second.
    Write(Arc<FileObject<P>>, u64, u64),
}

impl<P: Platform> Mm<P> {
    /// Writes back the file pages that `len` bytes at `addr` map through shared mappings.
    ///
    /// # Errors
    /// [`MmError::BadFlags`] and [`MmError::Range`] have no effect. As in Linux, the other errors
    /// leave pages written. After [`MmError::NotMapped`], all mapped parts of the range are
    /// written, unless the flags are `ASYNC` alone. [`MmError::MemoryLocked`] and the error of a
    /// device end the call where they occur.
    pub fn msync(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: SyncFlags) -> Result<(), MmError> {
        if !SyncFlags::all().contains(flags) || flags.contains(SyncFlags::ASYNC | SyncFlags::SYNC) {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        // As in Linux, rounding up may wrap to a length of 0.
        let len = len.wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
        let range = PageRange::from_len(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.declare_return_of(|| self.sync_range(space, range, flags))
    }

    fn sync_range(&self, space: &Space<P>, range: PageRange, flags: SyncFlags) -> Result<(), MmError> {
        let (mut at, mut unmapped) = (range.start(), None);
        while at < range.end() {
            let map = space.map().read();
            let next = map.find_or_after(at).map(|(start, vma)| (start, vma, vma.range(start)));
            let Some((start, vma, mapped)) = next.filter(|(_, _, mapped)| mapped.start() < range.end()) else {
                unmapped = unmapped.or(Some(at));
                break;
            };
            if mapped.start() > at {
                unmapped = unmapped.or(Some(at));
                if flags == SyncFlags::ASYNC {
                    break;
                }
                at = mapped.start();
            }
            if flags.contains(SyncFlags::INVALIDATE) && vma.flags().contains(VmFlags::LOCKED) {
                return Err(MmError::MemoryLocked { at });
            }
            let end = mapped.end().min(range.end());
            let page = |va: VirtAddr| vma.pgoff() + (va.page_index() - start);
            let step = match vma.file() {
                Some(file) if flags.contains(SyncFlags::SYNC) && vma.may_store_to_file() => {
                    Step::Write(file.clone(), page(at), page(end))
                }
                Some(_) | None => Step::Skip,
            };
            // Writeback acquires the `map` lock of each space that maps the file.
            drop(map);
            match step {
                Step::Skip => {}
                Step::Write(file, first, end) => self.write_pages_back(&file, first, end)?,
            }
            at = end;
        }
        unmapped.map_or(Ok(()), |at| Err(MmError::NotMapped { at }))
    }
}
