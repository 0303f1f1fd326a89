//! The registry of file objects, by id.
//!
//! **INV-FILE-ID** No two files that are known or mapped have the same id, and there are no more
//! ids than the reverse map can distinguish. Otherwise truncating one file would remove pages from
//! mappings of another.
//!
//! An id is reused only after its file was forgotten and its last mapping is gone.

use super::object::{FILE_IDS, FileKind, FileObject, ObjectOptions};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use alloc::string::String;
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::FileId;

struct RegisteredFile<P: Platform> {
    file: Arc<FileObject<P>>,
    /// Whether it is no longer found by id, and only keeps the id for its remaining mappings.
    forgotten: bool,
}

impl<P: Platform> TreeItem for RegisteredFile<P> {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

struct Registry<P: Platform> {
    files: BPlusTree<RegisteredFile<P>>,
    /// The id that was assigned last.
    last: u32,
}

/// All registered file objects; each stays registered until [`Mm::forget_file`].
pub struct Files<P: Platform> {
    registry: SpinLock<Registry<P>, rank::ForkTreeRank, P::Locks>,
}

impl<P: Platform> Files<P> {
    pub(crate) const fn new() -> Self {
        Self { registry: SpinLock::new(Registry { files: BPlusTree::new(), last: 0 }) }
    }

    /// The file with this id, unless it was forgotten.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileObject<P>>> {
        let registry = self.registry.lock();
        let known = registry.files.get(u64::from(id.raw())).filter(|known| !known.forgotten);
        known.map(|known| known.file.clone())
    }

    /// Calls `visit` for every file in the order of ids, without holding the lock.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&FileObject<P>)) {
        let mut from = 0;
        loop {
            let next = {
                let registry = self.registry.lock();
                let next = registry.files.iter_from(from).find(|(_, known)| !known.forgotten);
                next.map(|(key, known)| (key, known.file.clone()))
            };
            let Some((key, file)) = next else { return };
            visit(&file);
            from = key + 1;
        }
    }

    /// Unregisters a file; it keeps its id while it is `mapped`.
    ///
    /// If another file has the id by now, that one stays.
    fn forget(&self, file: &Arc<FileObject<P>>, mapped: bool) {
        let key = u64::from(file.id().raw());
        let mut registry = self.registry.lock();
        let is_same = registry.files.get(key).is_some_and(|known| Arc::ptr_eq(&known.file, file));
        if is_same && mapped {
            registry.files.update(key, |known| known.forgotten = true);
        } else if is_same {
            // The caller holds another handle, so the object is not dropped under the lock.
            registry.files.remove(key);
        }
    }
}

/// The first free id after `last`; ids wrap, and 0 is never free.
fn next_id(last: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    let after = |id: u32| id % (FILE_IDS - 1) + 1;
    let mut id = after(last);
    while is_taken(id) {
        id = after(id);
    }
    id
}

impl<P: Platform> Mm<P> {
    /// Registers a file with the path that `/proc/PID/maps` shows and its size in bytes.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn add_file(&self, name: &str, kind: FileKind, size: u64) -> Result<Arc<FileObject<P>>, MmError> {
        let options = ObjectOptions { seals: Seals::SEAL, executable: true, open: true, tmpfs: None };
        self.make_file(&[name], kind, size, options)
    }

    /// Makes the object of a shared anonymous mapping of `bytes` bytes (`shmem_zero_setup`).
    ///
    /// It is freed with its last mapping.
    pub(crate) fn add_shared_memory(&self, bytes: u64) -> Result<Arc<FileObject<P>>, MmError> {
        let options = ObjectOptions { seals: Seals::SEAL, executable: true, open: false, tmpfs: None };
        self.make_file(&["/dev/zero (deleted)"], FileKind::Shmem, bytes, options)
    }

    /// Registers an object whose name is the concatenation of `name`.
    pub(super) fn make_file(
        &self,
        name: &[&str],
        kind: FileKind,
        size: u64,
        options: ObjectOptions,
    ) -> Result<Arc<FileObject<P>>, MmError> {
        let mut whole = String::new();
        let wanted = name.iter().map(|part| part.len()).sum();
        if !self.permit() || whole.try_reserve_exact(wanted).is_err() {
            return Err(MmError::NoKernelMemory { wanted });
        }
        name.iter().for_each(|part| whole.push_str(part));
        let room = Arc::reserve()?;
        let mut registry = self.files.registry.lock();
        if registry.files.len() >= FILE_IDS as usize - 1 {
            return Err(MmError::NoKernelMemory { wanted });
        }
        registry.files.try_reserve(1, || self.permit())?;
        let id = next_id(registry.last, |id| registry.files.contains_key(u64::from(id)));
        registry.last = id;
        let file = room.fill(FileObject::new(FileId::new(id), whole, kind, size, options));
        registry.files.insert(u64::from(id), RegisteredFile { file: file.clone(), forgotten: false });
        Ok(file)
    }

    /// Closes a file that has no open descriptor and no path any more.
    ///
    /// It is freed now or with its last mapping. Dirty pages that were not written back are lost.
    pub fn close_file(&self, file: &Arc<FileObject<P>>) {
        if file.close() {
            self.forget_file(file);
        }
    }

    /// Calls `visit` for every file object in the order of ids; `visit` runs without locks.
    pub fn for_each_file(&self, visit: impl FnMut(&FileObject<P>)) {
        self.files.for_each(visit);
    }

    /// Truncates a file to zero and unregisters it.
    ///
    /// Its mappings stay, and every access through them raises `SIGBUS`.
    pub fn forget_file(&self, file: &Arc<FileObject<P>>) {
        self.declare_return_of(|| self.drop_file(file));
    }

    /// As [`Mm::forget_file`], within a call.
    pub(crate) fn drop_file(&self, file: &Arc<FileObject<P>>) {
        self.truncate_file(file, 0);
        file.uncharge(self);
        // Closed last: from here on, the removal of the last mapping calls this function again.
        let mapped = !file.close();
        self.files.forget(file, mapped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-FILE-ID.
    #[test]
    fn ids_wrap_around_and_skip_those_in_use() {
        assert_eq!((next_id(0, |_| false), next_id(1, |_| false)), (1, 2), "id 0 is never assigned");
        assert_eq!(next_id(FILE_IDS - 2, |_| false), FILE_IDS - 1);
        assert_eq!(next_id(FILE_IDS - 1, |id| id < 7), 7, "wraps to the first free id");
        assert_eq!(next_id(7, |id| id != 6), 6);
    }
}
