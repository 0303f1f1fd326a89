//! A mounted tmpfs: files that share a limit (`mount -t tmpfs -o size=`).
//!
//! Key type: [`Tmpfs`]. Neighbours: `object` charges each page that enters a cache, and uncharges
//! it when it leaves.
//!
//! Not guaranteed: a limit of inodes, or of memory other than file pages.

use super::object::{FileKind, FileObject, ObjectOptions, TmpfsFile, TmpfsFileOps};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{Arc, Platform};

/// The limit of one tmpfs and its use, in pages (`struct shmem_sb_info`).
pub struct Tmpfs {
    max_pages: u64,
    executable: bool,
    used: AtomicU64,
}

impl Tmpfs {
    /// Makes a tmpfs whose files may have `max_pages` pages together.
    ///
    /// Unless it is `executable`, no mapping of its files can be executed (`MS_NOEXEC`).
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`].
    pub fn try_new(max_pages: u64, executable: bool) -> Result<Arc<Self>, MmError> {
        Ok(Arc::try_new(Self { max_pages, executable, used: AtomicU64::new(0) })?)
    }

    /// Whether its files may be mapped with the right to execute.
    pub(super) const fn is_executable(&self) -> bool {
        self.executable
    }

    /// The most pages that its files may use.
    pub const fn limit(&self) -> u64 {
        self.max_pages
    }

    /// Pages that its files use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges a page, unless the limit is reached (`percpu_counter_limited_add`).
    pub(super) fn charge(&self) -> Result<(), MmError> {
        let more = |used| (used < self.max_pages).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| MmError::TmpfsFull { limit: self.max_pages })
    }

    /// Fails if the limit is below `pages`, whatever is used now.
    pub(super) fn check_limit(&self, pages: u64) -> Result<(), MmError> {
        if pages > self.max_pages { Err(MmError::TmpfsFull { limit: self.max_pages }) } else { Ok(()) }
    }

    /// Uncharges pages.
    pub(super) fn uncharge(&self, pages: u64) {
        let before = self.used.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-COMMITTED: a tmpfs with {before} pages charged was uncharged {pages}");
    }
}

impl<P: Platform> Mm<P> {
    /// Registers a file of a tmpfs, with its path and its size in bytes.
    ///
    /// `ops` says what the running program may do with it. Beyond the limit, an access to a missing
    /// page raises `SIGBUS`, and a write or `fallocate` fails with `ENOSPC`.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn add_tmpfs_file(
        &self,
        tmpfs: &Arc<Tmpfs>,
        name: &str,
        size: u64,
        ops: Box<dyn TmpfsFileOps>,
    ) -> Result<Arc<FileObject<P>>, MmError> {
        let tmpfs = Some(TmpfsFile { tmpfs: tmpfs.clone(), ops });
        let options = ObjectOptions { seals: Seals::SEAL, executable: true, open: true, tmpfs };
        self.make_file(&[name], FileKind::Shmem, size, options)
    }
}
