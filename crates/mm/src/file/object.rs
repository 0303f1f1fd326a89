//! One file, or one piece of shared memory.

use crate::error::MmError;
use crate::file::cache::Cached;
use crate::file::seals::Seals;
use crate::file::tmpfs::Tmpfs;
use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_sync::{Arc, Platform, RwLock, SpinLock, rank};
use pagewright_types::{Errno, FileId, PAGE_SIZE, SpaceId};

/// Pages of one file that can be told apart, as a power of two: the reverse map orders mappings of
/// files by the file's id above the page index.
pub(crate) const FILE_PAGES: u32 = 36;
/// Ids that files can have: 0, which none has, and as many more as there is room for above a page
/// index.
pub(crate) const FILE_IDS: u32 = 1 << (u64::BITS - FILE_PAGES);

/// What an embedder supplies for a file.
///
/// Any CPU may fault on it, so it is shared among them.
pub trait FileOps: Send + Sync {
    /// Whether page `index` can be filled without waiting for a device: a fault that needs it is
    /// minor, and fault-around takes it along.
    fn is_resident(&self, index: u64) -> bool;

    /// Hands the bytes of page `index` to `put`, piece by piece, each with its offset in the page.
    ///
    /// What is not handed over is zero.
    ///
    /// # Errors
    /// [`Errno`] when the device fails; the access gets `SIGBUS`.
    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;

    /// Takes the bytes of page `index`, which programs have changed; `get` fills a slice with those
    /// from an offset in the page on. What lies past the end of the file is of no meaning. It may
    /// be called for several pages at a time, for one only once at a time, and not beside
    /// [`FileOps::punch_hole`].
    ///
    /// # Errors
    /// [`Errno`] when the device fails, or can't be written at all; the page stays dirty.
    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let _ = (index, get);
        Err(Errno::EIO)
    }

    /// Forgets the bytes from `from` up to `to` (`FALLOC_FL_PUNCH_HOLE`), so that they read as
    /// zeroes.
    ///
    /// # Errors
    /// [`Errno`]; nothing is forgotten then.
    fn punch_hole(&self, from: u64, to: u64) -> Result<(), Errno> {
        let _ = (from, to);
        Err(Errno::EOPNOTSUPP)
    }

    /// Whether the running program owns the file or could open it for writing.
    ///
    /// Only then does `mincore` say which of its pages are at hand, which others might want to keep
    /// to themselves, and only then does `MADV_PAGEOUT` take them away.
    fn could_be_written(&self) -> bool {
        true
    }
}

/// What is behind an object.
pub enum FileKind {
    /// A file of the embedder's.
    File(Box<dyn FileOps>),
    /// Memory that starts as zeroes (`shmem`): a shared anonymous mapping, a memfd, a file of
    /// tmpfs.
    Shmem,
}

/// How many mappings of the object one space has.
pub(crate) struct Mapper {
    pub(crate) mappings: u64,
}

impl TreeItem for Mapper {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// Who has an object.
pub(super) struct Holders {
    /// Spaces that map it.
    ///
    /// May name one that has just stopped.
    mappers: BPlusTree<Mapper>,
    /// Mappings through which it could be written, now or after `mprotect` (`i_mmap_writable`).
    pub(super) writable: u64,
    /// Whether somebody has it open, or may open it by its path.
    held: bool,
}

/// What an object is made with beside its contents.
pub(super) struct Birth {
    pub(super) seals: Seals,
    pub(super) executable: bool,
    pub(super) held: bool,
    pub(super) tmpfs: Option<Arc<Tmpfs>>,
}

/// A file with its page cache.
pub struct FileObject<P: Platform> {
    id: FileId,
    name: String,
    kind: FileKind,
    size: AtomicU64,
    /// Pages that are promised to whoever uses it: all from the beginning (`shmem_acct_size`), or
    /// each as it comes (`shmem_acct_blocks`).
    charged: AtomicU64,
    /// Whether all were.
    prepaid: AtomicBool,
    pub(super) pages: SpinLock<BPlusTree<Cached>, rank::CacheRank, P::Locks>,
    pub(super) holders: SpinLock<Holders, rank::MappersRank, P::Locks>,
    /// Held while size, seals or holes change (`i_rwsem`); for reading, while pages are written
    /// back.
    pub(super) resize: RwLock<(), rank::InodeRank, P::Locks>,
    /// Set with `resize` and `holders` locked, read with either.
    pub(super) seals: AtomicU32,
    executable: bool,
    /// Whose pages it takes.
    tmpfs: Option<Arc<Tmpfs>>,
    /// How often pages were taken out of the cache while others may map them: see
    /// [`FileObject::removals`].
    pub(super) removals: AtomicU64,
}

impl<P: Platform> FileObject<P> {
    /// The largest size: pages that mappings can name.
    pub const MAX_BYTES: u64 = PAGE_SIZE << FILE_PAGES;

    pub(super) fn new(id: FileId, name: String, kind: FileKind, size: u64, birth: Birth) -> Self {
        Self {
            id,
            name,
            kind,
            size: AtomicU64::new(size),
            charged: AtomicU64::new(0),
            prepaid: AtomicBool::new(false),
            pages: SpinLock::new(BPlusTree::new()),
            holders: SpinLock::new(Holders { mappers: BPlusTree::new(), writable: 0, held: birth.held }),
            resize: RwLock::new(()),
            seals: AtomicU32::new(birth.seals.bits()),
            executable: birth.executable,
            tmpfs: birth.tmpfs,
            removals: AtomicU64::new(0),
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
    pub fn kind(&self) -> &FileKind {
        &self.kind
    }

    /// Whether it is shared memory.
    pub fn is_shmem(&self) -> bool {
        matches!(self.kind, FileKind::Shmem)
    }

    /// Whether the running program owns it or could open it for writing.
    pub(crate) fn could_be_written(&self) -> bool {
        match &self.kind {
            FileKind::File(ops) => ops.could_be_written(),
            FileKind::Shmem => true,
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Pages that exist: an access past them is `SIGBUS`.
    pub fn pages(&self) -> u64 {
        self.size().div_ceil(PAGE_SIZE)
    }

    /// Remembers a promise of all its pages.
    pub(crate) fn prepay(&self, pages: u64) {
        self.charged.store(pages, Ordering::Relaxed);
        self.prepaid.store(true, Ordering::Relaxed);
    }

    /// Pages that are promised on its behalf.
    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Whether a page is promised when it comes into the cache, and no longer when it goes.
    fn pays_by_page(&self) -> bool {
        self.is_shmem() && !self.prepaid.load(Ordering::Relaxed)
    }

    /// Promises a page that is about to come into the cache.
    pub(super) fn charge_page(&self, mm: &Mm<P>) -> Result<(), MmError> {
        if self.pays_by_page() {
            mm.promise(None, 1)?;
            if let Some(Err(full)) = self.tmpfs.as_ref().map(|tmpfs| tmpfs.take()) {
                mm.take_back(1);
                return Err(full);
            }
            self.charged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes back the promise of a page that has left the cache.
    pub(super) fn uncharge_page(&self, mm: &Mm<P>) {
        if self.pays_by_page() {
            self.charged.fetch_sub(1, Ordering::Relaxed);
            mm.take_back(1);
            if let Some(tmpfs) = &self.tmpfs {
                tmpfs.give(1);
            }
        }
    }

    /// Takes back every promise; nothing is in the cache any more.
    pub(super) fn uncharge(&self, mm: &Mm<P>) {
        mm.take_back(self.charged.swap(0, Ordering::Relaxed));
    }

    /// Whether a tmpfs could have `pages` pages of it.
    pub(super) fn could_have(&self, pages: u64) -> Result<(), MmError> {
        self.tmpfs.as_ref().map_or(Ok(()), |tmpfs| tmpfs.could_have(pages))
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// What may not be done to it any more.
    pub(crate) fn sealed(&self) -> Seals {
        Seals::from_bits_retain(self.seals.load(Ordering::Relaxed))
    }

    /// Whether it was made to be run as a program.
    pub fn is_executable(&self) -> bool {
        self.executable
    }

    /// How often pages were taken out of the cache so far.
    ///
    /// A fault notes it before it looks for its page, and looks again with the table locked: if it
    /// is still the same, whoever takes the page away has yet to come to this table.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Says that bytes were taken from the file, or are about to leave its cache: what was read of
    /// them until now may be out of date.
    pub(super) fn note_removal(&self) {
        let pages = self.pages.lock();
        self.removals.fetch_add(1, Ordering::AcqRel);
        drop(pages);
    }

    /// Counts a mapping that `space` is about to make; `writable` if it could ever write the
    /// object. It may be counted before it exists: the reverse map looks at more spaces than map
    /// the file, never at fewer (INV-RMAP-SUPERSET).
    pub(crate) fn join(&self, mm: &Mm<P>, space: SpaceId, writable: bool) -> Result<(), MmError> {
        let mut holders = self.holders.lock();
        if writable && self.sealed().contains(Seals::WRITE) {
            return Err(MmError::FileSealed { seals: self.sealed() });
        }
        let key = space.raw();
        if holders.mappers.update(key, |mapper| mapper.mappings += 1).is_none() {
            holders.mappers.try_reserve(1, || mm.permit())?;
            holders.mappers.insert(key, Mapper { mappings: 1 });
        }
        holders.writable += u64::from(writable);
        Ok(())
    }

    /// Counts one more mapping of a space that has one like it already, as a split makes.
    pub(crate) fn join_again(&self, space: SpaceId, writable: bool) {
        let mut holders = self.holders.lock();
        let known = holders.mappers.update(space.raw(), |mapper| mapper.mappings += 1);
        debug_assert!(known.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
        holders.writable += u64::from(writable);
    }

    /// Takes back one count; returns whether nobody has the object any more.
    pub(crate) fn leave(&self, space: SpaceId, writable: bool) -> bool {
        let mut holders = self.holders.lock();
        let key = space.raw();
        let left = holders.mappers.update(key, |mapper| {
            mapper.mappings -= 1;
            mapper.mappings
        });
        debug_assert!(left.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
        if left == Some(0) {
            holders.mappers.remove(key);
        }
        debug_assert!(holders.writable >= u64::from(writable), "INV-SEAL: a writable mapping was not counted");
        holders.writable -= u64::from(writable);
        holders.mappers.is_empty() && !holders.held
    }

    /// Nobody has it open any more; returns whether nobody maps it either.
    pub(super) fn close(&self) -> bool {
        let mut holders = self.holders.lock();
        holders.held = false;
        holders.mappers.is_empty()
    }

    /// The first space after `after` that maps the object.
    pub(crate) fn mapper_after(&self, after: Option<SpaceId>) -> Option<SpaceId> {
        let holders = self.holders.lock();
        let found = match after {
            None => holders.mappers.first(),
            Some(space) => holders.mappers.next(space.raw()),
        };
        found.map(|(key, _)| SpaceId::new(key))
    }
}
