//! Files that share a limit: a mounted tmpfs (`mount -t tmpfs -o size=`).
//!
//! Key type: [`Tmpfs`]. Neighbours: `object` takes a page from it for each that comes into a cache,
//! and gives it back with the page.
//!
//! Not guaranteed: limits of inodes, and of anything that is no page of a file's.

use super::object::{Birth, FileKind, FileObject};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{Arc, Platform};

/// What the files of one tmpfs may take together, and what they take (`struct shmem_sb_info`).
pub struct Tmpfs {
    most: u64,
    used: AtomicU64,
}

impl Tmpfs {
    /// One whose files may take `most` pages.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`].
    pub fn try_new(most: u64) -> Result<Arc<Self>, MmError> {
        Ok(Arc::try_new(Self { most, used: AtomicU64::new(0) })?)
    }

    /// Pages that its files take.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a page, if there is one left (`percpu_counter_limited_add`).
    pub(super) fn take(&self) -> Result<(), MmError> {
        let more = |used| (used < self.most).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| MmError::TmpfsFull { most: self.most })
    }

    /// Whether `pages` could be taken from it when it is empty.
    pub(super) fn could_have(&self, pages: u64) -> Result<(), MmError> {
        if pages > self.most { Err(MmError::TmpfsFull { most: self.most }) } else { Ok(()) }
    }

    /// Gives pages back.
    pub(super) fn give(&self, pages: u64) {
        let before = self.used.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-COMMITTED: more pages were given back to a tmpfs than taken");
    }
}

impl<P: Platform> Mm<P> {
    /// Makes a file of a tmpfs known, with its path and its size in bytes.
    ///
    /// A page that is too many is `SIGBUS` to who touches it and `ENOSPC` to who writes or
    /// allocates it.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn add_tmpfs_file(&self, tmpfs: &Arc<Tmpfs>, name: &str, size: u64) -> Result<Arc<FileObject<P>>, MmError> {
        let birth = Birth { seals: Seals::SEAL, executable: true, held: true, tmpfs: Some(tmpfs.clone()) };
        self.make_file(&[name], FileKind::Shmem, size, birth)
    }
}
