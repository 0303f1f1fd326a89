//! The page cache of one object (`struct address_space`).
//!
//! A shared-memory page that is swapped out leaves its swap entry in the page's place (a value
//! entry of Linux's `i_pages`). The swap entry counts as the page in everything that is charged to
//! the object, but takes no memory.
//!
//! Not guaranteed: that a page found here still belongs to the object a moment later, unless the
//! caller excludes removal.

use super::object::{FileKind, FileObject};
use crate::counters::Gauge;
use crate::error::{FaultError, MmError};
use crate::fault::NewPages;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::reclaim::Shadow;
use crate::swap::{SwapInFolio, SwapOwner};
use arrayvec::ArrayVec;
use core::ops::Range;
use pagewright_btree::{BPlusTree, TreeItem};
use pagewright_sync::{Backend, Platform};
use pagewright_tlb::frames::{Folio, FolioFlags, FolioOwner, FolioRef, StoredFolioRef};
use pagewright_types::{Counter, Errno, Pfn, SwapEntry};

/// What the cache holds at a page index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheEntry<F = StoredFolioRef> {
    /// A page, with a reference to its folio.
    Page(F),
    /// The swap entry of a swapped-out page, counted in its slot.
    Swap(SwapEntry),
    /// The shadow entry of a file page that reclaim evicted.
    Shadow(Shadow),
}

impl CacheEntry {
    pub(super) fn page(&self) -> Option<Pfn> {
        match self {
            Self::Page(folio) => Some(folio.pfn()),
            Self::Swap(_) | Self::Shadow(_) => None,
        }
    }

    fn swapped(&self) -> Option<SwapEntry> {
        match self {
            Self::Swap(entry) => Some(*entry),
            Self::Page(_) | Self::Shadow(_) => None,
        }
    }

    /// The entry without its reference, to compare with later.
    fn look(&self) -> SeenEntry {
        match self {
            Self::Page(folio) => SeenEntry::Page(folio.pfn()),
            Self::Swap(entry) => SeenEntry::Swap(*entry),
            Self::Shadow(shadow) => SeenEntry::Shadow(*shadow),
        }
    }
}

/// What a [`CacheEntry`] was when it was read, without its reference.
type SeenEntry = CacheEntry<Pfn>;

impl TreeItem for CacheEntry {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// What the cache holds at an index, and the object's removal count.
///
/// If a missing page has the same stamp before and after it is read from its file, it was not
/// cached in between: each eviction leaves another shadow.
type CacheStamp = (Option<SeenEntry>, u64);

/// A page with a reference other than those of the cache and the mappings.
pub(super) struct ExtraRef {
    pub(super) index: u64,
    /// Whether it is on no LRU list: it was just added, or reclaim has isolated it.
    ///
    /// Both states are transient.
    pub(super) isolated: bool,
}

/// A page found in the cache, or added to it.
pub(crate) struct CachedPage {
    /// The caller's reference.
    pub(crate) folio: FolioRef,
    /// Whether it was read from a device, so that a fault on it is major.
    pub(crate) waited: bool,
}

impl<P: Platform> FileObject<P> {
    /// The first pages in `wanted` that are in memory and that `takes`, each with a reference.
    ///
    /// Never swaps in or reads. There are more only if the result is full: it has room for the
    /// window of the default `fault_around_bytes`. `takes` runs with the cache locked.
    pub(crate) fn lookup_range(
        &self,
        mm: &Mm<P>,
        wanted: Range<u64>,
        takes: impl Fn(u64) -> bool,
    ) -> ArrayVec<(u64, FolioRef), 16> {
        let pages = self.pages.lock();
        let mut taken = ArrayVec::new();
        for (index, cached) in pages.iter_from(wanted.start) {
            if index >= wanted.end || taken.is_full() {
                break;
            }
            if let Some(pfn) = cached.page().filter(|_| takes(index)) {
                taken.push((index, mm.frames().folio(pfn).get()));
            }
        }
        taken
    }

    /// The first index in `wanted` whose page is not in memory.
    pub(crate) fn first_missing(&self, wanted: Range<u64>) -> Option<u64> {
        let pages = self.pages.lock();
        let mut next = wanted.start;
        for (index, cached) in pages.iter_from(next) {
            if next == wanted.end || index != next || cached.page().is_none() {
                break;
            }
            next += 1;
        }
        (next < wanted.end).then_some(next)
    }

    /// Calls `visit` with the first frame of each cached folio, with the cache locked.
    pub(crate) fn for_each_cached(&self, mut visit: impl FnMut(Pfn)) {
        self.pages.lock().iter().filter_map(|(_, cached)| cached.page()).for_each(&mut visit);
    }

    /// Calls `visit` with the swap entry of each swapped-out page, with the cache locked.
    pub(crate) fn for_each_swapped(&self, mut visit: impl FnMut(SwapEntry)) {
        self.pages.lock().iter().filter_map(|(_, cached)| cached.swapped()).for_each(&mut visit);
    }

    /// The first page in `at..end` whose swap entry matches.
    pub(crate) fn next_swapped(&self, at: u64, end: u64, matches: impl Fn(SwapEntry) -> bool) -> Option<u64> {
        let swapped = |cached: &CacheEntry| cached.swapped().filter(|entry| matches(*entry));
        self.next_matching(at, end, swapped).map(|(index, _)| index)
    }

    /// The first index in `at..end` whose cache entry `select` maps to a value.
    ///
    /// `select` runs with the cache locked.
    fn next_matching<T>(&self, at: u64, end: u64, select: impl Fn(&CacheEntry) -> Option<T>) -> Option<(u64, T)> {
        let pages = self.pages.lock();
        let mut cached = pages.iter_from(at).take_while(|(index, _)| *index < end);
        cached.find_map(|(index, cached)| Some((index, select(cached)?)))
    }

    /// Whether page `index` exists and can be mapped without waiting for a device.
    pub(crate) fn is_resident(&self, index: u64) -> bool {
        index < self.pages()
            && match self.kind() {
                FileKind::File(ops) => ops.is_resident(index),
                // Fault-around must not allocate shared memory that was never touched.
                FileKind::Shmem => self.has_cached(index),
            }
    }

    /// Whether page `index` is cached in memory.
    pub(crate) fn has_cached(&self, index: u64) -> bool {
        self.pages.lock().get(index).is_some_and(|cached| cached.page().is_some())
    }

    /// The first page of shared memory from `index` on that was written, in memory or in swap.
    ///
    /// Linux: `mapping_seek_hole_data`. A page that was only read may count, too.
    pub fn next_data(&self, index: u64) -> Option<u64> {
        let pages = self.pages.lock();
        pages.iter_from(index).find(|(_, cached)| !matches!(cached, CacheEntry::Shadow(_))).map(|(index, _)| index)
    }

    /// The first page of shared memory from `index` on that is a hole, in the file or after it.
    pub fn next_hole(&self, index: u64) -> u64 {
        let pages = self.pages.lock();
        let mut hole = index;
        for (index, cached) in pages.iter_from(index) {
            if index != hole || matches!(cached, CacheEntry::Shadow(_)) {
                break;
            }
            hole += 1;
        }
        hole
    }

    /// The first page with a reference other than those of the cache and the mappings.
    ///
    /// Linux: `memfd_folio_has_extra_refs`. A fault or a read in flight also holds such a
    /// reference.
    pub(super) fn find_extra_ref(&self, mm: &Mm<P>) -> Option<ExtraRef> {
        let pages = self.pages.lock();
        pages.iter().find_map(|(index, cached)| {
            let folio = mm.frames().folio(cached.page()?);
            let has_extra = folio.refs() != 1 + mm.mappings_of(folio.pfn());
            has_extra.then(|| ExtraRef { index, isolated: !folio.flags().contains(FolioFlags::LRU) })
        })
    }

    /// The first page in `at..end` that is cached in memory, with a reference for the caller.
    pub(super) fn next_cached(&self, mm: &Mm<P>, at: u64, end: u64) -> Option<(u64, FolioRef)> {
        self.next_matching(at, end, |cached| cached.page().map(|pfn| mm.frames().folio(pfn).get()))
    }

    /// Page `index` with a reference for the caller, swapped in if needed; `None` if not cached.
    ///
    /// # Errors
    /// As [`Self::find_or_read`].
    pub(crate) fn find(&self, mm: &Mm<P>, index: u64, policy: MemPolicy) -> Result<Option<CachedPage>, FaultError> {
        loop {
            let cached = {
                let pages = self.pages.lock();
                match pages.get(index) {
                    None | Some(CacheEntry::Shadow(_)) => return Ok(None),
                    Some(CacheEntry::Page(folio)) => {
                        return Ok(Some(CachedPage { folio: mm.frames().folio(folio.pfn()).get(), waited: false }));
                    }
                    Some(CacheEntry::Swap(entry)) => *entry,
                }
            };
            match self.swap_in(mm, index, cached, policy)? {
                Some(found) => return Ok(Some(found)),
                None => mm.fx().relax(),
            }
        }
    }

    /// Swaps in a page (`shmem_swapin_folio`); `None` if the entry has changed or is about to.
    fn swap_in(
        &self,
        mm: &Mm<P>,
        index: u64,
        entry: SwapEntry,
        policy: MemPolicy,
    ) -> Result<Option<CachedPage>, FaultError> {
        let from_swap = mm.swap_in_folio(entry, policy).map_err(|error| match error {
            FaultError::Device { errno, .. } => FaultError::Device { index, errno },
            other => other,
        });
        let Some(SwapInFolio { folio, lock, read }) = from_swap? else { return Ok(None) };
        let view = mm.frames().folio(folio.pfn());
        let mut pages = self.pages.lock();
        let is_wanted = pages.get(index).is_some_and(|cached| *cached == CacheEntry::Swap(entry));
        if is_wanted {
            view.set_owner(FolioOwner::File(self.id()), index);
            let page = view.get().into_stored();
            pages.update(index, |cached| *cached = CacheEntry::Page(page));
            self.count(mm, 1);
        }
        drop(pages);
        if is_wanted {
            mm.swap_release(entry);
            // From now on the folio has the only copy, so the slot is freed.
            mm.free_swap(view);
        }
        drop(lock);
        if is_wanted {
            return Ok(Some(CachedPage { folio, waited: read }));
        }
        mm.free_swap_cache(view);
        mm.put_folio(folio);
        Ok(None)
    }

    /// Replaces a written-out page by its swap entry.
    ///
    /// Linux: `shmem_writeout`. The slot keeps the shadow entry that `shadow` makes. The caller
    /// holds the folio's lock and a reference. Returns whether the page was evicted: it stays if it
    /// is dirty, has references other than those of the caller, the cache and the swap cache, or no
    /// longer belongs to the object.
    pub(crate) fn evict_to_swap(&self, mm: &Mm<P>, folio: Folio<'_>, shadow: impl FnOnce() -> Shadow) -> bool {
        let mut pages = self.pages.lock();
        let Some(index) = index_of(&pages, folio) else { return false };
        let Some(entry) = mm.evict_to_swap(folio, SwapOwner::Shmem, shadow) else { return false };
        pages.update(index, |cached| *cached = CacheEntry::Swap(entry));
        self.count(mm, -1);
        true
    }

    /// Evicts a clean page of a file, and leaves its shadow entry (`__remove_mapping`).
    ///
    /// The caller holds the folio's lock and a reference. Returns whether the page was evicted: it
    /// stays if it is dirty, has references other than those of the caller and the cache, or no
    /// longer belongs to the object.
    pub(crate) fn evict_clean(&self, mm: &Mm<P>, folio: Folio<'_>) -> bool {
        let mut pages = self.pages.lock();
        let Some(index) = index_of(&pages, folio) else { return false };
        // A CPU that has found the page holds a reference, so the freeze fails; a later one reads
        // the page again.
        let Ok(frozen) = folio.freeze(2) else { return false };
        if folio.flags().contains(FolioFlags::DIRTY) {
            frozen.thaw(2);
            return false;
        }
        let shadow = mm.shadow_of(folio);
        self.keep_key_of(folio);
        pages.update(index, |cached| *cached = CacheEntry::Shadow(shadow));
        frozen.thaw(1);
        self.count(mm, -1);
        true
    }

    /// Changes the gauges of cached pages.
    fn count(&self, mm: &Mm<P>, pages: i64) {
        mm.frames().adjust(Gauge::FilePages, pages);
        if self.is_shmem() {
            mm.frames().adjust(Gauge::Shmem, pages);
        }
    }

    /// Page `index`, read, swapped in or zeroed if it is not cached.
    ///
    /// A page that must be added comes from `pages`.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`]; nothing has changed. [`FaultError::Device`] if the device
    /// fails, the page cannot be charged, or it lies past the end.
    pub(crate) fn find_or_read(&self, mm: &Mm<P>, index: u64, pages: NewPages<'_>) -> Result<CachedPage, FaultError> {
        self.find_or_create(mm, index, false, pages)
    }

    /// As [`Self::find_or_read`]; if `past_end`, the page may lie past the end, which will move.
    ///
    /// The caller then holds `resize` for writing.
    pub(super) fn find_or_create(
        &self,
        mm: &Mm<P>,
        index: u64,
        past_end: bool,
        pages: NewPages<'_>,
    ) -> Result<CachedPage, FaultError> {
        loop {
            if let Some(found) = self.find(mm, index, pages.policy)? {
                return Ok(found);
            }
            if let Some(found) = self.create_page(mm, index, past_end, pages)? {
                return Ok(found);
            }
        }
    }

    fn stamp(&self, index: u64) -> CacheStamp {
        let pages = self.pages.lock();
        (pages.get(index).map(CacheEntry::look), self.removals())
    }

    /// Adds a page that is not cached.
    ///
    /// Returns `None` if another CPU may have added it meanwhile, and it was swapped out or
    /// evicted.
    fn create_page(
        &self,
        mm: &Mm<P>,
        index: u64,
        past_end: bool,
        pages: NewPages<'_>,
    ) -> Result<Option<CachedPage>, FaultError> {
        let block = pages.next(mm)?.into_block();
        let pfn = block.pfn();
        let before = (!self.is_shmem()).then(|| self.stamp(index));
        let (waited, read) = match self.kind() {
            FileKind::File(ops) if index < self.pages() => {
                (!ops.is_resident(index), ops.read_page(index, &mut mm.writer_of(pfn)))
            }
            FileKind::File(_) | FileKind::Shmem => (false, Ok(())),
        };
        if let Err(errno) = read {
            mm.tlb.free(block);
            return Err(FaultError::Device { index, errno });
        }
        let ours = mm.frames().new_folio(block);
        let folio = mm.frames().folio(pfn);
        folio.set_owner(FolioOwner::File(self.id()), index);
        folio.set_flags(FolioFlags::UPTODATE);
        if self.is_shmem() {
            folio.set_flags(FolioFlags::SWAPBACKED);
            mm.tlb.count(Counter::PwZeroed, 1);
        }
        let inserted = self.insert(mm, index, ours, before, past_end)?;
        Ok(inserted.map(|folio| CachedPage { folio, waited }))
    }

    /// Adds a filled page to the cache, or frees it if another CPU has added one.
    ///
    /// Returns the cached page. Returns `None` if it is in swap, or if what was read from the file
    /// may be stale because the stamp is no longer `before` (INV-FILE-CLEAN, INV-FILE-REMOVED).
    fn insert(
        &self,
        mm: &Mm<P>,
        index: u64,
        ours: FolioRef,
        before: Option<CacheStamp>,
        past_end: bool,
    ) -> Result<Option<FolioRef>, FaultError> {
        let mut pages = self.pages.lock();
        let now = pages.get(index).map(CacheEntry::look);
        let (cached, shadow) = match now {
            Some(SeenEntry::Shadow(shadow)) => (None, shadow),
            cached => (cached, Shadow::NONE),
        };
        // A truncation sets the size before it takes this lock, so a page past the end is either
        // not added or removed again.
        let outcome = match cached {
            None if index >= self.pages() && !past_end => Err(FaultError::Device { index, errno: Errno::EIO }),
            Some(SeenEntry::Page(pfn)) => Ok(Some(Some(mm.frames().folio(pfn).get()))),
            Some(SeenEntry::Swap(_) | SeenEntry::Shadow(_)) => Ok(Some(None)),
            // Its bytes were removed, or the page was cached meanwhile and may have been stored to,
            // written back and evicted.
            None if before.is_some_and(|before| before != (now, self.removals())) => Ok(Some(None)),
            None => match pages.try_reserve(1, || mm.permit()) {
                // As in Linux, an access to a page that cannot be charged raises SIGBUS, and is not
                // reported as out of memory.
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
                self.give_key_to(mm, folio);
                mm.declare_filled(self.id(), index, folio.pfn());
                mm.note_refault(folio, shadow);
                mm.frames().lru_add(folio);
                let page = CacheEntry::Page(ours.into_stored());
                match now {
                    Some(_) => drop(pages.update(index, |cached| *cached = page)),
                    None => drop(pages.insert(index, page)),
                }
                self.count(mm, 1);
                Ok(Some(mine))
            }
            theirs => {
                drop(pages);
                mm.put_folio(ours);
                theirs.map(Option::flatten)
            }
        }
    }

    /// Removes pages `from..end` from the cache, and counts a removal.
    ///
    /// The caller unmaps them. It finds the mappings by the file's range (INV-RMAP-SUPERSET), not
    /// by the pages.
    pub(super) fn remove_range(&self, mm: &Mm<P>, from: u64, end: u64) {
        self.note_removal();
        loop {
            let mut pages = self.pages.lock();
            let Some(index) = pages.ceiling(from).map(|(index, _)| index).filter(|index| *index < end) else { return };
            let Some(cached) = pages.remove(index) else { return };
            drop(pages);
            // The page is in no cache and still charged.
            <P::Locks as Backend>::point();
            self.uncharge_page(mm);
            match cached {
                CacheEntry::Page(folio) => {
                    self.count(mm, -1);
                    mm.put_folio(folio.into_ref());
                }
                CacheEntry::Swap(entry) => mm.swap_release(entry),
                CacheEntry::Shadow(_) => {}
            }
        }
    }
}

/// The index at which a cache holds the page of `folio`; `None` if it does not any more.
pub(super) fn index_of(pages: &BPlusTree<CacheEntry>, folio: Folio<'_>) -> Option<u64> {
    let index = folio.index();
    (pages.get(index)?.page() == Some(folio.pfn())).then_some(index)
}

impl<P: Platform> Mm<P> {
    /// Drops a reference, and frees the folio with its last one.
    ///
    /// No unflushed translation may depend on the reference.
    pub(crate) fn put_folio(&self, folio: FolioRef) {
        if let Some(block) = self.frames().put(folio) {
            self.tlb.free(block);
        }
    }
}
