//! Reads and writes through the page cache (`filemap_read`, `generic_perform_write`).
//!
//! A kernel's `read` and `write` call these with the bytes in kernel memory.
//!
//! Not guaranteed: atomicity. A read may see a part of a concurrent write.

use super::object::FileObject;
use super::seals::Seals;
use crate::error::MmError;
use crate::fault::NewPages;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::PAGE_SIZE;

impl<P: Platform> Mm<P> {
    /// Reads bytes of a file from `offset` up to its end, and returns their number.
    ///
    /// # Errors
    /// [`MmError`] if nothing could be read: [`MmError::BadFileRange`] for an offset above
    /// `i64::MAX`, [`MmError::Device`], or out of memory.
    pub fn read_at(&self, file: &FileObject<P>, offset: u64, bytes: &mut [u8]) -> Result<usize, MmError> {
        if offset > i64::MAX as u64 {
            return Err(MmError::BadFileRange { offset, len: bytes.len() as u64 });
        }
        let left = file.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < left {
            let at = offset + done as u64;
            let piece = piece(at, left - done);
            match self.read_piece(file, at, &mut bytes[done..done + piece]) {
                Ok(()) => done += piece,
                // A concurrent truncation has moved the end here.
                Err(_) if at >= file.size() => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Reads bytes of one page.
    fn read_piece(&self, file: &FileObject<P>, at: u64, bytes: &mut [u8]) -> Result<(), MmError> {
        let index = at / PAGE_SIZE;
        // A read of missing shared memory returns zeroes and allocates no page.
        let folio = match file.find(self, index, MemPolicy::DEFAULT)? {
            Some(found) => found.folio,
            None if file.is_shmem() => {
                bytes.fill(0);
                return Ok(());
            }
            None => file.find_or_read(self, index, NewPages::default())?.folio,
        };
        self.fx().read(folio.pfn().base().add(at % PAGE_SIZE), bytes);
        self.mark_accessed(self.frames().folio_of(&folio));
        self.put_folio(folio);
        Ok(())
    }

    /// Writes bytes to a file at `offset`, growing it as needed, and returns their number.
    ///
    /// The caller has checked that the descriptor is writable (`EBADF`).
    ///
    /// # Errors
    /// [`MmError`] if nothing could be written: [`MmError::BadFileRange`], [`MmError::FileSealed`],
    /// [`MmError::FileTooLarge`], [`MmError::Device`], or out of memory.
    pub fn write_at(&self, file: &FileObject<P>, offset: u64, bytes: &[u8]) -> Result<usize, MmError> {
        if offset > i64::MAX as u64 {
            return Err(MmError::BadFileRange { offset, len: bytes.len() as u64 });
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = offset + bytes.len() as u64;
        if end > FileObject::<P>::MAX_BYTES {
            return Err(MmError::FileTooLarge { bytes: end });
        }
        file.note_writer();
        let _resize = file.resize.write();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let piece = piece(at, bytes.len() - done);
            match self.write_piece(file, at, &bytes[done..done + piece]) {
                Ok(()) => done += piece,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Notes that the kernel has stored bytes in a page of a file.
    ///
    /// A writeback that cleared the dirty flag before them may miss them, and the flag set here
    /// makes it write the page again. Instruction fetches may not see them (`flush_dcache_folio`).
    pub(super) fn note_stored(&self, folio: Folio<'_>) {
        folio.set_flags(FolioFlags::DIRTY);
        if folio.flags().contains(FolioFlags::CODE_VISIBLE) {
            folio.clear_flags(FolioFlags::CODE_VISIBLE);
        }
    }

    /// Writes bytes to one page (`shmem_write_begin`).
    fn write_piece(&self, file: &FileObject<P>, at: u64, bytes: &[u8]) -> Result<(), MmError> {
        file.check_unsealed(Seals::ANY_WRITE)?;
        let end = at + bytes.len() as u64;
        if end > file.size() {
            file.check_unsealed(Seals::GROW)?;
        }
        let folio = file.find_or_create(self, at / PAGE_SIZE, true, NewPages::default())?.folio;
        self.tlb.settle_folio(self.frames().folio_of(&folio));
        self.fx().write(folio.pfn().base().add(at % PAGE_SIZE), bytes);
        self.note_stored(self.frames().folio_of(&folio));
        self.put_folio(folio);
        if end > file.size() {
            file.set_size(end);
        }
        Ok(())
    }
}

/// How many of the `left` bytes at offset `at` lie in the page of `at`.
fn piece(at: u64, left: usize) -> usize {
    left.min((PAGE_SIZE - at % PAGE_SIZE) as usize)
}
