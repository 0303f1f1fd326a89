//! All files, by id.
//!
//! INV-FILE-ID: no two files that are known or mapped have one id, and there are no more ids than
//! the reverse map can tell apart. An id is given out again when its file was forgotten and its
//! last mapping is gone.

use super::object::{Birth, FILE_IDS, FileKind, FileObject};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use alloc::string::String;
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::FileId;

struct Known<P: Platform> {
    file: Arc<FileObject<P>>,
    /// Nobody finds it any more; it keeps its id for the mappings that it has left.
    forgotten: bool,
}

impl<P: Platform> TreeItem for Known<P> {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

struct Registry<P: Platform> {
    known: BPlusTree<Known<P>>,
    /// The id that was given out last.
    last: u32,
}

/// The files that the memory manager knows.
///
/// Each stays known until [`Mm::forget_file`].
pub struct Files<P: Platform> {
    registry: SpinLock<Registry<P>, rank::ForkTreeRank, P::Locks>,
}

impl<P: Platform> Files<P> {
    pub(crate) const fn new() -> Self {
        Self { registry: SpinLock::new(Registry { known: BPlusTree::new(), last: 0 }) }
    }

    /// The file with this id.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileObject<P>>> {
        let registry = self.registry.lock();
        let known = registry.known.get(u64::from(id.raw())).filter(|known| !known.forgotten);
        known.map(|known| known.file.clone())
    }

    /// Calls `visit` for every file, by id, without holding the lock meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&FileObject<P>)) {
        let mut from = 0;
        loop {
            let next = {
                let registry = self.registry.lock();
                let next = registry.known.iter_from(from).find(|(_, known)| !known.forgotten);
                next.map(|(key, known)| (key, known.file.clone()))
            };
            let Some((key, file)) = next else { return };
            visit(&file);
            from = key + 1;
        }
    }

    /// Forgets a file; its id, only if nobody maps it any more.
    ///
    /// Another file may have the id by now.
    fn forget(&self, file: &Arc<FileObject<P>>, mapped: bool) {
        let key = u64::from(file.id().raw());
        let mut registry = self.registry.lock();
        let it = registry.known.get(key).is_some_and(|known| Arc::ptr_eq(&known.file, file));
        if it && mapped {
            registry.known.update(key, |known| known.forgotten = true);
        } else if it {
            // The caller's handle is another one, so nothing ends here.
            registry.known.remove(key);
        }
    }
}

/// The first id after `last` that nobody has.
fn next_id(last: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    let after = |id: u32| id % (FILE_IDS - 1) + 1;
    let mut id = after(last);
    while is_taken(id) {
        id = after(id);
    }
    id
}

impl<P: Platform> Mm<P> {
    /// Makes a file known, under the path that `/proc/PID/maps` will show, with its size in bytes.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn add_file(&self, name: &str, kind: FileKind, size: u64) -> Result<Arc<FileObject<P>>, MmError> {
        self.make_file(&[name], kind, size, Birth { seals: Seals::SEAL, executable: true, held: true, tmpfs: None })
    }

    /// The memory behind a shared anonymous mapping of `bytes` bytes.
    ///
    /// It goes with its last mapping.
    pub(crate) fn add_shared_memory(&self, bytes: u64) -> Result<Arc<FileObject<P>>, MmError> {
        let birth = Birth { seals: Seals::SEAL, executable: true, held: false, tmpfs: None };
        self.make_file(&["/dev/zero (deleted)"], FileKind::Shmem, bytes, birth)
    }

    /// Makes an object known whose name is put together from `name`.
    pub(super) fn make_file(
        &self,
        name: &[&str],
        kind: FileKind,
        size: u64,
        birth: Birth,
    ) -> Result<Arc<FileObject<P>>, MmError> {
        let mut whole = String::new();
        let wanted = name.iter().map(|part| part.len()).sum();
        if !self.permit() || whole.try_reserve_exact(wanted).is_err() {
            return Err(MmError::NoKernelMemory { wanted });
        }
        name.iter().for_each(|part| whole.push_str(part));
        let room = Arc::reserve()?;
        let mut registry = self.files.registry.lock();
        if registry.known.len() >= FILE_IDS as usize - 1 {
            return Err(MmError::NoKernelMemory { wanted });
        }
        registry.known.try_reserve(1, || self.permit())?;
        let id = next_id(registry.last, |id| registry.known.contains_key(u64::from(id)));
        registry.last = id;
        let file = room.fill(FileObject::new(FileId::new(id), whole, kind, size, birth));
        registry.known.insert(u64::from(id), Known { file: file.clone(), forgotten: false });
        Ok(file)
    }

    /// Says that no descriptor of a file is open any more and that it has no path: it goes with its
    /// last mapping, or now. What was not written back is lost.
    pub fn close_file(&self, file: &Arc<FileObject<P>>) {
        if file.close() {
            self.forget_file(file);
        }
    }

    /// Calls `visit` for every file and piece of shared memory, by id.
    ///
    /// `visit` runs without locks.
    pub fn for_each_file(&self, visit: impl FnMut(&FileObject<P>)) {
        self.files.for_each(visit);
    }

    /// Truncates a file to nothing and forgets it.
    ///
    /// Mappings of it stay, and every access to them is past its end.
    pub fn forget_file(&self, file: &Arc<FileObject<P>>) {
        self.call(|| self.drop_file(file));
    }

    /// The same, within a call.
    pub(crate) fn drop_file(&self, file: &Arc<FileObject<P>>) {
        self.cut_file(file, 0);
        file.uncharge(self);
        // Not before: from here on the last mapping that goes does all this once more.
        let mapped = !file.close();
        self.files.forget(file, mapped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-FILE-ID
    #[test]
    fn an_id_is_given_out_again_when_nobody_has_it() {
        assert_eq!((next_id(0, |_| false), next_id(1, |_| false)), (1, 2), "0 is nobody's");
        assert_eq!(next_id(FILE_IDS - 2, |_| false), FILE_IDS - 1);
        assert_eq!(next_id(FILE_IDS - 1, |id| id < 7), 7, "from the beginning, but for those that somebody has");
        assert_eq!(next_id(7, |id| id != 6), 6);
    }
}
