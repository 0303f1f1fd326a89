//! One file, or one piece of shared memory.

use crate::error::MmError;
use crate::file::cache::Cached;
use crate::mm::Mm;
use crate::tree::{Item, Tree};
use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{Platform, SpinLock, rank};
use pagewright_types::{Errno, FileId, PAGE_SIZE, SpaceId};

/// What an embedder supplies for a file. Any CPU may fault on it, so it is shared among them.
pub trait FileOps: Send + Sync {
    /// Whether page `index` can be filled without waiting for a device: a fault that needs it is minor, and fault-around takes it
    /// along.
    fn is_resident(&self, index: u64) -> bool;

    /// Hands the bytes of page `index` to `put`, piece by piece, each with its offset in the page. What is not handed over is zero.
    ///
    /// # Errors
    /// [`Errno`] when the device fails; the access gets `SIGBUS`.
    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;
}

/// What is behind an object.
pub enum Kind {
    /// A file of the embedder's.
    File(Box<dyn FileOps>),
    /// Memory that starts as zeroes (`shmem`): a shared anonymous mapping.
    Shmem,
}

/// How many mappings of the object one space has.
pub(crate) struct Mapper {
    pub(crate) mappings: u64,
}

impl Item for Mapper {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// A file with its page cache.
pub struct FileObject<P: Platform> {
    id: FileId,
    name: String,
    kind: Kind,
    size: AtomicU64,
    /// Pages that were promised to whoever made it (`shmem_acct_size`).
    charged: AtomicU64,
    pub(super) pages: SpinLock<Tree<Cached>, rank::Cache, P::Locks>,
    /// Spaces that map it. May name one that has just stopped.
    mappers: SpinLock<Tree<Mapper>, rank::Mappers, P::Locks>,
}

impl<P: Platform> FileObject<P> {
    pub(super) fn new(id: FileId, name: String, kind: Kind, size: u64) -> Self {
        Self {
            id,
            name,
            kind,
            size: AtomicU64::new(size),
            charged: AtomicU64::new(0),
            pages: SpinLock::new(Tree::new()),
            mappers: SpinLock::new(Tree::new()),
        }
    }

    /// How folios and mappers name it.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its path, as `/proc/PID/maps` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is behind it.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it is shared memory.
    pub fn is_shmem(&self) -> bool {
        matches!(self.kind, Kind::Shmem)
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Pages that exist: an access past them is `SIGBUS`.
    pub fn pages(&self) -> u64 {
        self.size().div_ceil(PAGE_SIZE)
    }

    /// Remembers a promise, and says what was remembered before.
    pub(crate) fn set_charged(&self, pages: u64) -> u64 {
        self.charged.swap(pages, Ordering::Relaxed)
    }

    /// Pages that were promised when it was made, and are until it is forgotten.
    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Counts a mapping that `space` is about to make. It may be counted before it exists: the reverse map looks at
    /// more spaces than map the file, never at fewer (INV-RMAP-SUPERSET).
    pub(crate) fn join(&self, mm: &Mm<P>, space: SpaceId) -> Result<(), MmError> {
        let mut mappers = self.mappers.lock();
        let key = u64::from(space.raw());
        if mappers.update(key, |mapper| mapper.mappings += 1).is_none() {
            mappers.try_reserve(1, || mm.permit())?;
            mappers.insert(key, Mapper { mappings: 1 });
        }
        Ok(())
    }

    /// Counts one more mapping of a space that has one already, as a split makes.
    pub(crate) fn join_again(&self, space: SpaceId) {
        let known = self.mappers.lock().update(u64::from(space.raw()), |mapper| mapper.mappings += 1);
        debug_assert!(known.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
    }

    /// Takes back one count; returns whether no space maps the object any more.
    pub(crate) fn leave(&self, space: SpaceId) -> bool {
        let mut mappers = self.mappers.lock();
        let key = u64::from(space.raw());
        let left = mappers.update(key, |mapper| {
            mapper.mappings -= 1;
            mapper.mappings
        });
        debug_assert!(left.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
        if left == Some(0) {
            mappers.remove(key);
        }
        mappers.is_empty()
    }

    /// The first space after `after` that maps the object.
    pub(crate) fn mapper_after(&self, after: Option<SpaceId>) -> Option<SpaceId> {
        let mappers = self.mappers.lock();
        let found = match after {
            None => mappers.first(),
            Some(space) => mappers.next(u64::from(space.raw())),
        };
        found.map(|(key, _)| SpaceId::new(key as u32))
    }
}
