//! The page cache of one object.

use super::object::{FileObject, Kind};
use crate::counters::Gauge;
use crate::error::{FaultError, MmError};
use crate::mm::Mm;
use crate::tree::Item;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Extent, FolioFlags, FolioRef, Owner};
use pagewright_types::{Counter, Errno, Order, PAGE_SIZE, Pfn};

/// A page in the cache; it holds a reference on the folio.
pub(super) struct Cached(pub(super) Pfn);

impl Item for Cached {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// A page out of the cache.
pub(crate) struct Found {
    /// A reference of the caller's own.
    pub(crate) folio: FolioRef,
    /// Whether somebody had to wait for a device.
    pub(crate) waited: bool,
}

impl<P: Platform> FileObject<P> {
    /// Page `index`, if the cache has it, with a reference for the caller.
    pub(crate) fn lookup(&self, mm: &Mm<P>, index: u64) -> Option<FolioRef> {
        let pages = self.pages.lock();
        pages.get(index).map(|cached| mm.frames().folio(cached.0).get())
    }

    /// Calls `visit` with the first frame of every folio in the cache, with the cache locked.
    pub(crate) fn for_each_cached(&self, mut visit: impl FnMut(Pfn)) {
        self.pages.lock().iter().for_each(|(_, cached)| visit(cached.0));
    }

    /// Whether the cache has page `index`, or could have it without waiting.
    pub(crate) fn is_at_hand(&self, index: u64) -> bool {
        index < self.pages()
            && match self.kind() {
                Kind::File(ops) => ops.is_resident(index),
                // Shared memory that nobody touched is not in the cache, and fault-around must not bring it there.
                Kind::Shmem => self.pages.lock().contains_key(index),
            }
    }

    /// Whether the cache has page `index`.
    pub(crate) fn has_cached(&self, index: u64) -> bool {
        self.pages.lock().contains_key(index)
    }

    /// The first page on which somebody has a reference beside the cache and the mappings (`memfd_folio_has_extra_refs`): a fault or a read
    /// that is under way has one, too.
    pub(super) fn held_page(&self, mm: &Mm<P>) -> Option<u64> {
        let pages = self.pages.lock();
        let held = pages.iter().find(|(_, cached)| mm.frames().folio(cached.0).refs() != 1 + mm.mappings_of(cached.0));
        held.map(|(index, _)| index)
    }

    /// The first page from `at` on and before `end` that the cache has, with a reference for the caller.
    pub(super) fn next_cached(&self, mm: &Mm<P>, at: u64, end: u64) -> Option<(u64, FolioRef)> {
        let pages = self.pages.lock();
        let (index, cached) = pages.ceiling(at).filter(|(index, _)| *index < end)?;
        Some((index, mm.frames().folio(cached.0).get()))
    }

    /// Page `index`, read in if need be. `index` must lie within the object's size.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`]; nothing has changed. [`FaultError::Device`] when the device fails.
    pub(crate) fn find_or_read(&self, mm: &Mm<P>, index: u64) -> Result<Found, FaultError> {
        self.bring(mm, index, false)
    }

    /// The same for a page that may lie past the end, which is about to move. The caller holds `resize`.
    ///
    /// # Errors
    /// As [`Self::find_or_read`].
    pub(super) fn find_or_make(&self, mm: &Mm<P>, index: u64) -> Result<Found, FaultError> {
        self.bring(mm, index, true)
    }

    fn bring(&self, mm: &Mm<P>, index: u64, past_end: bool) -> Result<Found, FaultError> {
        if let Some(folio) = self.lookup(mm, index) {
            return Ok(Found { folio, waited: false });
        }
        let block = mm.tlb.alloc_zeroed(mm.tlb.request(Order::ZERO), Extent::PAGE)?.into_block();
        let pfn = block.pfn();
        let (waited, read) = match self.kind() {
            Kind::File(ops) if index < self.pages() => {
                let mut put = |offset: u64, bytes: &[u8]| {
                    debug_assert!(offset + bytes.len() as u64 <= PAGE_SIZE, "more bytes than a page has");
                    mm.fx().write(pfn.base().add(offset), bytes);
                };
                (!ops.is_resident(index), ops.read_page(index, &mut put))
            }
            Kind::File(_) | Kind::Shmem => (false, Ok(())),
        };
        if let Err(errno) = read {
            mm.tlb.free(block);
            return Err(FaultError::Device { index, errno });
        }
        let ours = mm.frames().new_folio(block);
        let folio = mm.frames().folio(pfn);
        folio.set_owner(Owner::File(self.id()), index);
        folio.set_flags(FolioFlags::UPTODATE);
        if self.is_shmem() {
            folio.set_flags(FolioFlags::SWAPBACKED);
            mm.tlb.count(Counter::PwZeroed, 1);
        }
        self.insert(mm, index, ours, past_end).map(|folio| Found { folio, waited })
    }

    /// Puts a filled page into the cache, or drops it for the one that somebody else put there meanwhile.
    fn insert(&self, mm: &Mm<P>, index: u64, ours: FolioRef, past_end: bool) -> Result<FolioRef, FaultError> {
        let mut pages = self.pages.lock();
        // A truncation sets the size before it takes this lock, so a page past the end is either not put here or evicted again.
        let outcome = match pages.get(index) {
            None if index >= self.pages() && !past_end => {
                drop(pages);
                mm.put_folio(ours);
                return Err(FaultError::Device { index, errno: Errno::EIO });
            }
            Some(cached) => Ok(Some(mm.frames().folio(cached.0).get())),
            None => match pages.try_reserve(1, || mm.permit()) {
                // As in Linux, whoever touches a page that is not promised gets SIGBUS, not want of memory.
                Ok(()) => {
                    self.charge_page(mm).map(|()| None).map_err(|_| FaultError::Device { index, errno: Errno::ENOSPC })
                }
                Err(error) => Err(MmError::from(error).into()),
            },
        };
        match outcome {
            Ok(None) => {
                let folio = mm.frames().folio(ours.pfn());
                let mine = folio.get();
                mm.frames().lru_add(folio);
                pages.insert(index, Cached(ours.into_raw()));
                mm.gauges.add(Gauge::FilePages, 1);
                if self.is_shmem() {
                    mm.gauges.add(Gauge::Shmem, 1);
                }
                Ok(mine)
            }
            Ok(Some(theirs)) => {
                drop(pages);
                mm.put_folio(ours);
                Ok(theirs)
            }
            Err(error) => {
                drop(pages);
                mm.put_folio(ours);
                Err(error)
            }
        }
    }

    /// Drops the pages from `from` up to `end` out of the cache. Who still maps them is found by the places where they could be mapped
    /// (INV-RMAP-SUPERSET), and not through the pages.
    pub(super) fn evict(&self, mm: &Mm<P>, from: u64, end: u64) {
        loop {
            let mut pages = self.pages.lock();
            let Some(index) = pages.ceiling(from).map(|(index, _)| index).filter(|index| *index < end) else { return };
            let Some(Cached(pfn)) = pages.remove(index) else { return };
            drop(pages);
            mm.gauges.sub(Gauge::FilePages, 1);
            if self.is_shmem() {
                mm.gauges.sub(Gauge::Shmem, 1);
            }
            self.uncharge_page(mm);
            let folio = mm.frames().folio_ref_from_raw(pfn);
            mm.put_folio(folio);
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Gives up a reference under which no translation was installed, or whose translations have been flushed.
    pub(crate) fn put_folio(&self, folio: FolioRef) {
        if let Some(block) = self.frames().put(folio) {
            self.tlb.free(block);
        }
    }
}
