//! Advice about the file of a mapping.
//!
//! As in Linux, the space's `map` lock is released while the call acts on the file.

use super::{Advice, Walk};
use crate::error::MmError;
use crate::fault::NewPages;
use crate::file::FileObject;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_sync::{Arc, Platform};
use pagewright_types::PageRange;

/// The pages of a file in a part of a mapping.
struct FilePages<P: Platform> {
    file: Arc<FileObject<P>>,
    first: u64,
    pages: u64,
}

impl<P: Platform> Mm<P> {
    /// Does `act` to each file of a range: to so many of its pages, from the first on.
    pub(super) fn advise_file(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
        act: impl Fn(&FileObject<P>, u64, u64) -> Result<(), MmError>,
    ) -> Result<(), MmError> {
        let mut walk = Walk::over(range);
        while let Some(part) = walk.next_unlocked(space, advice, |vma, start, part| {
            let first = vma.pgoff() + (part.start().page_index() - start);
            vma.file().map(|file| FilePages { file: file.clone(), first, pages: part.pages() })
        })? {
            let Some(FilePages { file, first, pages }) = part else { continue };
            act(&file, first, pages)?;
        }
        walk.finish()
    }

    /// Reads pages of a file into its cache (`force_page_cache_readahead`).
    ///
    /// Of shared memory, it reads only pages in swap (`shmem_swapin_range`); pages that were never
    /// accessed have no contents. It ends at the first error, which an access will meet again.
    pub(super) fn read_ahead(&self, file: &FileObject<P>, first: u64, pages: u64) {
        let end = (first + pages).min(file.pages());
        let mut at = first;
        while let Some(index) =
            if file.is_shmem() { file.next_swapped(at, end, |_| true) } else { (at < end).then_some(at) }
        {
            at = index + 1;
            match file.find_or_read(self, index, NewPages::default()) {
                Ok(found) => self.put_folio(found.folio),
                Err(_) => return,
            }
        }
    }
}
