//! All files, by id.

use super::object::{Birth, FileObject, Kind};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use crate::tree::{Item, Tree};
use alloc::string::String;
use core::sync::atomic::{AtomicU32, Ordering};
use pagewright_sync::{Arc, Platform, SpinLock, rank};
use pagewright_types::FileId;

struct Known<P: Platform>(Arc<FileObject<P>>);

impl<P: Platform> Item for Known<P> {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// The files that the memory manager knows. Each stays known until [`Mm::forget_file`].
pub struct Files<P: Platform> {
    next: AtomicU32,
    known: SpinLock<Tree<Known<P>>, rank::Family, P::Locks>,
}

impl<P: Platform> Files<P> {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU32::new(1), known: SpinLock::new(Tree::new()) }
    }

    /// The file with this id.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileObject<P>>> {
        self.known.lock().get(u64::from(id.raw())).map(|known| known.0.clone())
    }

    /// Calls `visit` for every file, by id, without holding the lock meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&FileObject<P>)) {
        let mut from = 0;
        loop {
            let next = self.known.lock().ceiling(from).map(|(key, known)| (key, known.0.clone()));
            let Some((key, file)) = next else { return };
            visit(&file);
            from = key + 1;
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Makes a file known, under the path that `/proc/PID/maps` will show, with its size in bytes.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`]; nothing is kept.
    pub fn add_file(&self, name: &str, kind: Kind, size: u64) -> Result<Arc<FileObject<P>>, MmError> {
        self.make_file(&[name], kind, size, Birth { seals: Seals::SEAL, executable: true, held: true, tmpfs: None })
    }

    /// The memory behind a shared anonymous mapping of `bytes` bytes. It goes with its last mapping.
    pub(crate) fn add_shared_memory(&self, bytes: u64) -> Result<Arc<FileObject<P>>, MmError> {
        let birth = Birth { seals: Seals::SEAL, executable: true, held: false, tmpfs: None };
        self.make_file(&["/dev/zero (deleted)"], Kind::Shmem, bytes, birth)
    }

    /// Makes an object known whose name is put together from `name`.
    pub(super) fn make_file(
        &self,
        name: &[&str],
        kind: Kind,
        size: u64,
        birth: Birth,
    ) -> Result<Arc<FileObject<P>>, MmError> {
        let mut whole = String::new();
        let wanted = name.iter().map(|part| part.len()).sum();
        if !self.permit() || whole.try_reserve_exact(wanted).is_err() {
            return Err(MmError::NoKernelMemory { wanted });
        }
        name.iter().for_each(|part| whole.push_str(part));
        let id = FileId::new(self.files.next.fetch_add(1, Ordering::Relaxed));
        let file = Arc::try_new(FileObject::new(id, whole, kind, size, birth))?;
        let mut known = self.files.known.lock();
        known.try_reserve(1, || self.permit())?;
        known.insert(u64::from(id.raw()), Known(file.clone()));
        Ok(file)
    }

    /// Says that no descriptor of a file is open any more and that it has no path: it goes with its last mapping, or now. What was not written
    /// back is lost.
    pub fn close_file(&self, file: &Arc<FileObject<P>>) {
        if file.close() {
            self.forget_file(file);
        }
    }

    /// Calls `visit` for every file and piece of shared memory, by id. `visit` runs without locks.
    pub fn for_each_file(&self, visit: impl FnMut(&FileObject<P>)) {
        self.files.for_each(visit);
    }

    /// Truncates a file to nothing and forgets it. Mappings of it stay, and every access to them is past its end.
    pub fn forget_file(&self, file: &Arc<FileObject<P>>) {
        self.call(|| self.drop_file(file));
    }

    /// The same, within a call.
    pub(crate) fn drop_file(&self, file: &Arc<FileObject<P>>) {
        self.cut_file(file, 0);
        file.uncharge(self);
        let forgotten = self.files.known.lock().remove(u64::from(file.id().raw()));
        drop(forgotten);
    }
}
