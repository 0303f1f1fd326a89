//! Files of the initramfs.
//!
//! An [`ArchiveFile`] is read from the archive until it is mapped or changed, and then through its
//! object, whose pages the memory manager reads from the archive. So `read`, `write` and mappings
//! agree.
//!
//! Not guaranteed: that a page of a changed file leaves memory. Its writeback goes to kernel
//! memory.

use crate::errno::Errno;
use crate::inode::{HeldObject, SharedAttributes, zeroes};
use crate::memory::{FileObject, mm};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pagewright_mm::file::{FileKind, FileOps, TmpfsFileOps};
use pagewright_types::PAGE_SIZE;
use spin::Mutex;

/// The contents of a file of the initramfs.
struct ArchiveBytes {
    archive: &'static [u8],
    /// Pages that were written back.
    written: BTreeMap<u64, Vec<u8>>,
}

impl ArchiveBytes {
    /// The bytes of a page; fewer than a page at the end.
    fn page(&self, index: u64) -> &[u8] {
        if let Some(page) = self.written.get(&index) {
            return page;
        }
        let rest = usize::try_from(index * PAGE_SIZE).ok().and_then(|start| self.archive.get(start..));
        let rest = rest.unwrap_or_default();
        &rest[..rest.len().min(PAGE_SIZE as usize)]
    }

    /// Removes the bytes from `size` on.
    fn cut(&mut self, size: u64) {
        self.archive = &self.archive[..self.archive.len().min(size as usize)];
        let removed = self.written.split_off(&size.div_ceil(PAGE_SIZE));
        drop(removed);
    }
}

/// The pages of a file of the initramfs, as the memory manager reads and writes them back.
#[derive(Clone)]
struct ArchivePages(Arc<Mutex<ArchiveBytes>>);

/// What the memory manager does with a file of the initramfs.
struct ArchiveOps {
    pages: ArchivePages,
    access: SharedAttributes,
}

impl FileOps for ArchiveOps {
    fn could_be_written(&self) -> bool {
        self.access.could_be_written()
    }

    fn is_resident(&self, _index: u64) -> bool {
        true
    }

    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), pagewright_types::Errno> {
        put(0, self.pages.0.lock().page(index));
        Ok(())
    }

    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), pagewright_types::Errno> {
        let mut page = zeroes(PAGE_SIZE as usize).map_err(|_| pagewright_types::Errno::ENOMEM)?;
        get(0, &mut page);
        self.pages.0.lock().written.insert(index, page);
        Ok(())
    }
}

/// A file of the initramfs.
pub(crate) struct ArchiveFile {
    pages: ArchivePages,
    /// The object of a file that was ever mapped or changed.
    object: Mutex<Option<HeldObject>>,
}

impl ArchiveFile {
    pub(crate) fn new(archive: &'static [u8]) -> Self {
        let bytes = ArchiveBytes { archive, written: BTreeMap::new() };
        Self { pages: ArchivePages(Arc::new(Mutex::new(bytes))), object: Mutex::new(None) }
    }

    /// The object, if there is one.
    pub(crate) fn known_object(&self) -> Option<pagewright_sync::Arc<FileObject>> {
        self.object.lock().as_ref().map(|object| object.0.clone())
    }

    /// The bytes of a file that was never mapped or changed.
    pub(crate) fn archive(&self) -> &'static [u8] {
        self.pages.0.lock().archive
    }

    /// The object, which is made if there is none.
    pub(crate) fn object(
        &self,
        path: &str,
        access: &SharedAttributes,
    ) -> Result<pagewright_sync::Arc<FileObject>, Errno> {
        let mut object = self.object.lock();
        if let Some(object) = &*object {
            return Ok(object.0.clone());
        }
        let kind = FileKind::File(Box::new(ArchiveOps { pages: self.pages.clone(), access: access.clone() }));
        let made = mm().add_file(path, kind, self.archive().len() as u64)?;
        *object = Some(HeldObject(made.clone()));
        Ok(made)
    }

    /// Calls `look` with the first `len` bytes, without dirty pages after them.
    pub(crate) fn look_at_start<T>(&self, len: u64, look: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        let Some(object) = self.known_object() else {
            let archive = self.archive();
            return Ok(look(&archive[..archive.len().min(len as usize)]));
        };
        let len = len.min(object.size());
        // A large program has many pages to search for dirty ones; its headers are in the first.
        mm().write_back(&object, 0, len)?;
        let mut start = zeroes(len as usize)?;
        let bytes = self.pages.0.lock();
        for (index, part) in start.chunks_mut(PAGE_SIZE as usize).enumerate() {
            let page = bytes.page(index as u64);
            let there = part.len().min(page.len());
            part[..there].copy_from_slice(&page[..there]);
        }
        drop(bytes);
        Ok(look(&start))
    }
    /// Removes the bytes from `size` on.
    pub(crate) fn cut(&self, size: u64) {
        self.pages.0.lock().cut(size);
    }
}
