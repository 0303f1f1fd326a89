//! `msync(2)`: what programs stored through shared mappings, back to the file.
//!
//! Not guaranteed: anything by `ASYNC`. As in Linux it only looks whether all is mapped; what is
//! dirty is known to be without it.

use crate::error::MmError;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::space::{Space, VmFlags};
use pagewright_sync::{Arc, Platform};
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

bitflags::bitflags! {
    /// `MS_*` with Linux's values (`include/uapi/asm-generic/mman-common.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncFlags: u32 {
        /// Begin to write, and don't wait.
        const ASYNC = 0x1;
        /// Other mappings shall see the new contents, which they do anyway; refused where memory is
        /// locked.
        const INVALIDATE = 0x2;
        /// Write and wait.
        const SYNC = 0x4;
    }
}

/// What a mapping asks of a call.
enum Step<P: Platform> {
    /// Nothing.
    Pass,
    /// Writing these pages of its file.
    Write(Arc<FileObject<P>>, u64, u64),
}

impl<P: Platform> Mm<P> {
    /// Writes the pages of files that `len` bytes at `addr` show through shared mappings.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, what lies beside a hole has been written when the call fails
    /// because of it – unless the flags are `ASYNC` alone – and so has what lies before locked
    /// memory, or before a page that can't be written.
    pub fn msync(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: SyncFlags) -> Result<(), MmError> {
        if !SyncFlags::all().contains(flags) || flags.contains(SyncFlags::ASYNC | SyncFlags::SYNC) {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        // A length that wraps when it is rounded is none, as in Linux.
        let len = len.wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
        let range = PageRange::from_len(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.call(|| self.sync_range(space, range, flags))
    }

    fn sync_range(&self, space: &Space<P>, range: PageRange, flags: SyncFlags) -> Result<(), MmError> {
        let (mut at, mut hole) = (range.start(), None);
        while at < range.end() {
            let map = space.map().read();
            let next = map.find_or_after(at).map(|(start, vma)| (start, vma, vma.range(start)));
            let Some((start, vma, mapped)) = next.filter(|(_, _, mapped)| mapped.start() < range.end()) else {
                hole = hole.or(Some(at));
                break;
            };
            if mapped.start() > at {
                hole = hole.or(Some(at));
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
                Some(_) | None => Step::Pass,
            };
            drop(map);
            match step {
                Step::Pass => {}
                // The space is let go meanwhile.
                Step::Write(file, first, end) => self.write_pages_back(&file, first, end)?,
            }
            at = end;
        }
        hole.map_or(Ok(()), |at| Err(MmError::NotMapped { at }))
    }
}
