//! Reads and writes through the cache (`filemap_read`, `generic_perform_write`): what a kernel's
//! `read` and `write` come to, once it has the bytes.
//!
//! Not guaranteed: that a read sees the whole of a write that runs beside it, or none.

use super::object::FileObject;
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::PAGE_SIZE;

impl<P: Platform> Mm<P> {
    /// Reads bytes of a file from `offset` on, up to its end, and returns how many.
    ///
    /// # Errors
    /// [`MmError`] when nothing could be read: [`MmError::Device`], or want of memory.
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
                // The end has come here meanwhile.
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
        // What nobody wrote to shared memory reads as zeroes and takes no page.
        let folio = match file.find(self, index)? {
            Some(found) => found.folio,
            None if file.is_shmem() => {
                bytes.fill(0);
                return Ok(());
            }
            None => file.find_or_read(self, index)?.folio,
        };
        self.fx().read(folio.pfn().base().add(at % PAGE_SIZE), bytes);
        self.mark_accessed(self.frames().folio_of(&folio));
        self.put_folio(folio);
        Ok(())
    }

    /// Writes bytes to a file from `offset` on, which grows if need be, and returns how many.
    ///
    /// The descriptor can write (`EBADF`).
    ///
    /// # Errors
    /// [`MmError`] when nothing could be written: [`MmError::FileSealed`],
    /// [`MmError::FileTooLarge`], [`MmError::Device`], or want of memory.
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

    /// Writes bytes to one page (`shmem_write_begin`).
    fn write_piece(&self, file: &FileObject<P>, at: u64, bytes: &[u8]) -> Result<(), MmError> {
        file.unsealed(Seals::ANY_WRITE)?;
        let end = at + bytes.len() as u64;
        if end > file.size() {
            file.unsealed(Seals::GROW)?;
        }
        let folio = file.find_or_make(self, at / PAGE_SIZE)?.folio;
        self.fx().write(folio.pfn().base().add(at % PAGE_SIZE), bytes);
        // Marked after the bytes are there: whoever takes the mark away before writes the page back
        // without them, and again later.
        self.frames().folio_of(&folio).set_flags(FolioFlags::DIRTY);
        self.put_folio(folio);
        if end > file.size() {
            file.set_size(end);
        }
        Ok(())
    }
}

/// How many of `left` bytes from `at` on lie in its page.
fn piece(at: u64, left: usize) -> usize {
    left.min((PAGE_SIZE - at % PAGE_SIZE) as usize)
}
