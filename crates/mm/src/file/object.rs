//! One file, or one piece of shared memory.

use crate::error::MmError;
use crate::file::cache::CacheEntry;
use crate::file::seals::Seals;
use crate::file::tmpfs::Tmpfs;
use crate::mm::Mm;
use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_sync::{Arc, Platform, RwLock, SpinLock, rank};
use pagewright_types::{Errno, FileId, PAGE_SIZE, Rights, SpaceId};

/// Bits of a page index within a file.
///
/// The reverse map orders file mappings by one word: the file's id above the page index.
pub(crate) const FILE_PAGES: u32 = 36;
/// The number of file ids that fit above a page index; id 0 is never given out.
pub(crate) const FILE_IDS: u32 = 1 << (u64::BITS - FILE_PAGES);

/// The operations of a file that the embedder supplies (`struct address_space_operations`).
///
/// Every CPU may call them, concurrently.
pub trait FileOps: Send + Sync {
    /// Whether page `index` can be read without waiting for a device.
    ///
    /// A fault on such a page is minor, and fault-around maps it too.
    fn is_resident(&self, index: u64) -> bool;

    /// Passes the bytes of page `index` to `put`, in pieces with their offsets in the page.
    ///
    /// Bytes that are not passed read as zeroes.
    ///
    /// # Errors
    /// [`Errno`] if the device fails; the access raises `SIGBUS`.
    fn read_page(&self, index: u64, put: &mut dyn FnMut(u64, &[u8])) -> Result<(), Errno>;

    /// Writes back page `index`, whose bytes `get` copies into a slice from an offset in the page.
    ///
    /// Bytes past the end of the file are meaningless. Several pages may be written concurrently,
    /// but not one page twice, and none concurrently with [`FileOps::punch_hole`].
    ///
    /// # Errors
    /// [`Errno`] if the device fails or is read-only; the page stays dirty.
    fn write_page(&self, index: u64, get: &mut dyn FnMut(u64, &mut [u8])) -> Result<(), Errno> {
        let _ = (index, get);
        Err(Errno::EIO)
    }

    /// Deallocates the bytes `from..to` (`FALLOC_FL_PUNCH_HOLE`), which then read as zeroes.
    ///
    /// # Errors
    /// [`Errno`]; nothing has changed.
    fn punch_hole(&self, from: u64, to: u64) -> Result<(), Errno> {
        let _ = (from, to);
        Err(Errno::EOPNOTSUPP)
    }

    /// Whether the running program owns the file or could open it for writing.
    ///
    /// Otherwise `mincore` does not reveal which of its pages are resident, and `MADV_PAGEOUT` does
    /// not evict them (`can_do_mincore`, `can_do_file_pageout`).
    fn could_be_written(&self) -> bool {
        true
    }
}

/// The operations of a tmpfs file that the embedder supplies.
pub trait TmpfsFileOps: Send + Sync {
    /// As [`FileOps::could_be_written`].
    fn could_be_written(&self) -> bool;
}

/// What backs a file object.
pub enum FileKind {
    /// A file of the embedder.
    File(Box<dyn FileOps>),
    /// Shared memory, initially zero (`shmem`): a shared anonymous mapping, a memfd, a tmpfs file.
    Shmem,
}

/// A space that maps the object, with the number of its mappings.
pub(crate) struct Mapper {
    pub(crate) mappings: u64,
}

impl TreeItem for Mapper {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// The mappings of an object, and whether it is open (`i_mmap`, `i_mmap_writable`).
pub(super) struct ObjectUsers {
    /// The spaces that map the object.
    ///
    /// A space that has just removed its last mapping may still be listed.
    mappers: BPlusTree<Mapper>,
    /// Mappings that are writable or may become so by `mprotect` (`i_mmap_writable`).
    pub(super) writable: u64,
    /// Whether a descriptor is open, or a path leads to the object.
    open: bool,
}

/// The attributes of a new object, beside its kind, size and name.
pub(super) struct ObjectOptions {
    pub(super) seals: Seals,
    pub(super) executable: bool,
    pub(super) open: bool,
    pub(super) tmpfs: Option<TmpfsFile>,
}

/// What an object has because it is a file of a tmpfs.
pub(super) struct TmpfsFile {
    /// The tmpfs whose limit its pages count against.
    pub(super) tmpfs: Arc<Tmpfs>,
    pub(super) ops: Box<dyn TmpfsFileOps>,
}

/// A file with its page cache.
pub struct FileObject<P: Platform> {
    id: FileId,
    name: String,
    kind: FileKind,
    size: AtomicU64,
    /// Pages charged against the commit limit.
    ///
    /// All are charged at creation (`shmem_acct_size`), or each when it enters the cache
    /// (`shmem_acct_blocks`).
    charged: AtomicU64,
    /// Whether all pages were charged at creation.
    charged_whole: AtomicBool,
    pub(super) pages: SpinLock<BPlusTree<CacheEntry>, rank::CacheRank, P::Locks>,
    pub(super) users: SpinLock<ObjectUsers, rank::MappersRank, P::Locks>,
    /// Held to change size, seals or holes (`i_rwsem`), and for reading during writeback.
    pub(super) resize: RwLock<(), rank::InodeRank, P::Locks>,
    /// Written with `resize` and `users` locked, read with either.
    pub(super) seals: AtomicU32,
    executable: bool,
    /// See [`FileObject::is_unevictable`].
    unevictable: AtomicBool,
    /// See [`FileObject::note_deleted`].
    deleted: AtomicBool,
    tmpfs: Option<TmpfsFile>,
    /// See [`FileObject::removals`].
    pub(super) removals: AtomicU64,
    /// The key of pages that left the cache; changes with `pages` locked (see `linger`).
    pub(super) evicted_key: AtomicU64,
    /// See [`FileObject::note_writer`].
    pub(super) written: AtomicBool,
}

impl<P: Platform> FileObject<P> {
    /// The largest size in bytes: the page indices that mappings can name.
    pub const MAX_BYTES: u64 = PAGE_SIZE << FILE_PAGES;

    pub(super) fn new(id: FileId, name: String, kind: FileKind, size: u64, options: ObjectOptions) -> Self {
        Self {
            id,
            name,
            kind,
            size: AtomicU64::new(size),
            charged: AtomicU64::new(0),
            charged_whole: AtomicBool::new(false),
            pages: SpinLock::new(BPlusTree::new()),
            users: SpinLock::new(ObjectUsers { mappers: BPlusTree::new(), writable: 0, open: options.open }),
            resize: RwLock::new(()),
            seals: AtomicU32::new(options.seals.bits()),
            executable: options.executable,
            unevictable: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            tmpfs: options.tmpfs,
            removals: AtomicU64::new(0),
            evicted_key: AtomicU64::new(0),
            written: AtomicBool::new(false),
        }
    }

    /// The id by which folios and the reverse map name the object.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The path that `/proc/PID/maps` shows.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes that the last path that led to the object was removed.
    ///
    /// `/proc/PID/maps` then shows ` (deleted)` after its path (`d_path`).
    pub fn note_deleted(&self) {
        self.deleted.store(true, Ordering::Relaxed);
    }

    /// What follows the path in `/proc/PID/maps`.
    pub(crate) fn name_suffix(&self) -> &'static str {
        if self.deleted.load(Ordering::Relaxed) { " (deleted)" } else { "" }
    }

    /// What backs the object.
    pub fn kind(&self) -> &FileKind {
        &self.kind
    }

    /// Whether the object is shared memory.
    pub fn is_shmem(&self) -> bool {
        matches!(self.kind, FileKind::Shmem)
    }

    /// See [`FileOps::could_be_written`]; always true of shared memory without a path.
    pub(crate) fn could_be_written(&self) -> bool {
        match (&self.kind, &self.tmpfs) {
            (FileKind::File(ops), _) => ops.could_be_written(),
            (FileKind::Shmem, Some(file)) => file.ops.could_be_written(),
            (FileKind::Shmem, None) => true,
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The size in pages; an access beyond raises `SIGBUS`.
    pub fn pages(&self) -> u64 {
        self.size().div_ceil(PAGE_SIZE)
    }

    /// Records that all pages were charged at creation.
    pub(crate) fn charge_whole(&self, pages: u64) {
        self.charged.store(pages, Ordering::Relaxed);
        self.charged_whole.store(true, Ordering::Relaxed);
    }

    /// Pages charged against the commit limit for this object.
    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Whether a page is charged when it enters the cache and uncharged when it leaves.
    fn is_charged_per_page(&self) -> bool {
        self.is_shmem() && !self.charged_whole.load(Ordering::Relaxed)
    }

    /// Charges a page that is about to enter the cache.
    ///
    /// # Errors
    /// [`MmError`] if the commit limit or the tmpfs is exhausted; nothing was charged.
    pub(super) fn charge_page(&self, mm: &Mm<P>) -> Result<(), MmError> {
        if self.is_charged_per_page() {
            mm.account_pages(None, 1)?;
            if let Some(Err(full)) = self.tmpfs.as_ref().map(|file| file.tmpfs.charge()) {
                mm.unaccount_pages(1);
                return Err(full);
            }
            self.charged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Uncharges a page that has left the cache.
    pub(super) fn uncharge_page(&self, mm: &Mm<P>) {
        if self.is_charged_per_page() {
            self.charged.fetch_sub(1, Ordering::Relaxed);
            mm.unaccount_pages(1);
            if let Some(file) = &self.tmpfs {
                file.tmpfs.uncharge(1);
            }
        }
    }

    /// Uncharges everything; the cache is empty.
    pub(super) fn uncharge(&self, mm: &Mm<P>) {
        mm.unaccount_pages(self.charged.swap(0, Ordering::Relaxed));
    }

    /// Fails if its tmpfs is limited to fewer than `pages` pages.
    pub(super) fn check_limit(&self, pages: u64) -> Result<(), MmError> {
        self.tmpfs.as_ref().map_or(Ok(()), |file| file.tmpfs.check_limit(pages))
    }

    /// The rights, out of `most`, that a new mapping with `rights` may ever have (`path_noexec`).
    ///
    /// # Errors
    /// [`MmError::NotExecutable`] if the mapping is to be executed and its tmpfs forbids that.
    pub(crate) fn executable_rights(&self, rights: Rights, most: Rights) -> Result<Rights, MmError> {
        if self.tmpfs.as_ref().is_none_or(|file| file.tmpfs.is_executable()) {
            return Ok(most);
        }
        if rights.contains(Rights::EXEC) { Err(MmError::NotExecutable { rights }) } else { Ok(most - Rights::EXEC) }
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// The seals that are set.
    pub(crate) fn active_seals(&self) -> Seals {
        Seals::from_bits_retain(self.seals.load(Ordering::Relaxed))
    }

    /// Whether the object may be executed, unlike a memfd with `MFD_NOEXEC_SEAL`.
    pub fn is_executable(&self) -> bool {
        self.executable
    }

    /// Whether its pages stay in memory, mapped or not (`mapping_unevictable`).
    pub fn is_unevictable(&self) -> bool {
        self.unevictable.load(Ordering::Relaxed)
    }

    /// Begins or ends to keep its pages in memory (`shmem_lock`, for `SHM_LOCK`).
    ///
    /// Only shared memory is kept. Pages in swap stay there until they are used. A page that
    /// reclaim selected before may still go.
    pub fn set_unevictable(&self, unevictable: bool) {
        self.unevictable.store(unevictable, Ordering::Relaxed);
    }

    /// The number of removals from the cache so far.
    ///
    /// A fault reads it before it looks up its page, and again with the table locked. If it is the
    /// same, an operation that removes the page has yet to unmap it from this table.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Counts a removal of bytes from the file or its cache; bytes read before may be stale.
    pub(super) fn note_removal(&self) {
        let pages = self.pages.lock();
        self.removals.fetch_add(1, Ordering::AcqRel);
        drop(pages);
    }

    /// Counts a mapping that `space` is about to make; `writable` if it could ever become writable.
    ///
    /// The mapping may not exist yet: the reverse map visits at least the spaces that map the file,
    /// never fewer (INV-RMAP-SUPERSET).
    ///
    /// # Errors
    /// [`MmError::FileSealed`], or [`MmError`] if no memory can be allocated; nothing was counted.
    pub(crate) fn join(&self, mm: &Mm<P>, space: SpaceId, writable: bool) -> Result<(), MmError> {
        let mut users = self.users.lock();
        if writable && self.active_seals().contains(Seals::WRITE) {
            return Err(MmError::FileSealed { seals: self.active_seals() });
        }
        let key = space.raw();
        if users.mappers.update(key, |mapper| mapper.mappings += 1).is_none() {
            users.mappers.try_reserve(1, || mm.permit())?;
            users.mappers.insert(key, Mapper { mappings: 1 });
        }
        if writable {
            self.note_writer();
        }
        users.writable += u64::from(writable);
        Ok(())
    }

    /// Counts one more mapping of a space that already has one, as a split of a VMA makes.
    pub(crate) fn join_again(&self, space: SpaceId, writable: bool) {
        let mut users = self.users.lock();
        let known = users.mappers.update(space.raw(), |mapper| mapper.mappings += 1);
        debug_assert!(known.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
        users.writable += u64::from(writable);
    }

    /// Uncounts a mapping; returns whether the object is neither mapped nor open any more.
    pub(crate) fn leave(&self, space: SpaceId, writable: bool) -> bool {
        let mut users = self.users.lock();
        let key = space.raw();
        let remaining = users.mappers.update(key, |mapper| {
            mapper.mappings -= 1;
            mapper.mappings
        });
        debug_assert!(remaining.is_some(), "INV-RMAP-SUPERSET: a mapping of {space:?} was not counted");
        if remaining == Some(0) {
            users.mappers.remove(key);
        }
        debug_assert!(users.writable >= u64::from(writable), "INV-SEAL: a writable mapping was not counted");
        users.writable -= u64::from(writable);
        users.mappers.is_empty() && !users.open
    }

    /// Marks the object closed; returns whether it is not mapped either.
    pub(super) fn close(&self) -> bool {
        let mut users = self.users.lock();
        users.open = false;
        users.mappers.is_empty()
    }

    /// The mappings of the object in all spaces, as `shm_nattch` counts them.
    pub fn mappings(&self) -> u64 {
        self.users.lock().mappers.iter().map(|(_, mapper)| mapper.mappings).sum()
    }

    /// The first space after `after` that maps the object.
    pub(crate) fn mapper_after(&self, after: Option<SpaceId>) -> Option<SpaceId> {
        let users = self.users.lock();
        let found = match after {
            None => users.mappers.first(),
            Some(space) => users.mappers.next(space.raw()),
        };
        found.map(|(key, _)| SpaceId::new(key))
    }
}
