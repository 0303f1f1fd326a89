//! The page cache of one object.
//!
//! A page of shared memory that went to swap has its entry in the page's place (a value entry of
//! Linux's `i_pages`). It stands for the page in all that is counted for the object, but takes no
//! memory.
//!
//! Not guaranteed: that a page found here is still the object's a moment later, unless whoever
//! takes pages away is kept out.

use super::object::{FileKind, FileObject};
use crate::counters::Gauge;
use crate::error::{FaultError, MmError};
use crate::mm::Mm;
use crate::reclaim::Shadow;
use crate::swap::{FromSwap, NamedBy};
use pagewright_btree::TreeItem;
use pagewright_sync::{Backend, Platform};
use pagewright_tlb::frames::{ClearExtent, Folio, FolioFlags, FolioOwner, FolioRef};
use pagewright_types::{Counter, Errno, Order, Pfn, SwapEntry};

/// What the cache has of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cached {
    /// The page itself, with a reference on its folio.
    Page(Pfn),
    /// Where it is in swap.
    ///
    /// One of the entries that are counted for the slot.
    Swapped(SwapEntry),
    /// Nothing, since reclaim dropped it: when that was.
    ///
    /// Of a file.
    Gone(Shadow),
}

impl Cached {
    fn page(self) -> Option<Pfn> {
        match self {
            Self::Page(pfn) => Some(pfn),
            Self::Swapped(_) | Self::Gone(_) => None,
        }
    }
}

impl TreeItem for Cached {
    type Key = u64;
    type Summary = ();

    fn summary(&self, _key: u64) {}
}

/// What the cache has of a page, and how often pages were taken from the file: if a page that isn't
/// there has the same past before it is read and after, it was not there meanwhile, for each that
/// goes leaves another shadow.
type Past = (Option<Cached>, u64);

/// A page on which somebody has a reference beside the cache and the mappings.
pub(super) struct HeldPage {
    pub(super) index: u64,
    /// Whether it is on no list: it has just come, or reclaim has it.
    ///
    /// Either ends by itself.
    pub(super) isolated: bool,
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
        pages.get(index).and_then(|cached| cached.page()).map(|pfn| mm.frames().folio(pfn).get())
    }

    /// Calls `visit` with the first frame of every folio in the cache, with the cache locked.
    pub(crate) fn for_each_cached(&self, mut visit: impl FnMut(Pfn)) {
        self.pages.lock().iter().filter_map(|(_, cached)| cached.page()).for_each(&mut visit);
    }

    /// Calls `visit` with the place of every page in swap, with the cache locked.
    pub(crate) fn for_each_swapped(&self, mut visit: impl FnMut(SwapEntry)) {
        for (_, cached) in self.pages.lock().iter() {
            match cached {
                Cached::Swapped(entry) => visit(*entry),
                Cached::Page(_) | Cached::Gone(_) => {}
            }
        }
    }

    /// The first page from `at` on and before `end` that is in swap, in such a slot.
    pub(crate) fn next_swapped(&self, at: u64, end: u64, such: impl Fn(SwapEntry) -> bool) -> Option<u64> {
        let in_such = |cached| match cached {
            Cached::Swapped(entry) if such(entry) => Some(()),
            Cached::Swapped(_) | Cached::Page(_) | Cached::Gone(_) => None,
        };
        self.next_such(at, end, in_such).map(|(index, ())| index)
    }

    /// The first page from `at` on and before `end` of which `such` makes something of what the
    /// cache has, with the cache locked.
    fn next_such<T>(&self, at: u64, end: u64, such: impl Fn(Cached) -> Option<T>) -> Option<(u64, T)> {
        let pages = self.pages.lock();
        let mut next = pages.ceiling(at);
        while let Some((index, cached)) = next.filter(|(index, _)| *index < end) {
            if let Some(found) = such(*cached) {
                return Some((index, found));
            }
            next = pages.ceiling(index + 1);
        }
        None
    }

    /// Whether the cache has page `index`, or could have it without waiting.
    pub(crate) fn is_at_hand(&self, index: u64) -> bool {
        index < self.pages()
            && match self.kind() {
                FileKind::File(ops) => ops.is_resident(index),
                // Shared memory that nobody touched is not in the cache, and fault-around must not
                // bring it there.
                FileKind::Shmem => self.has_cached(index),
            }
    }

    /// Whether the cache has page `index` in memory.
    pub(crate) fn has_cached(&self, index: u64) -> bool {
        self.pages.lock().get(index).is_some_and(|cached| cached.page().is_some())
    }

    /// The first page on which somebody has a reference beside the cache and the mappings
    /// (`memfd_folio_has_extra_refs`): a fault or a read that is under way has one, too.
    pub(super) fn held_page(&self, mm: &Mm<P>) -> Option<HeldPage> {
        let pages = self.pages.lock();
        pages.iter().find_map(|(index, cached)| {
            let folio = mm.frames().folio(cached.page()?);
            let is_held = folio.refs() != 1 + mm.mappings_of(folio.pfn());
            is_held.then(|| HeldPage { index, isolated: !folio.flags().contains(FolioFlags::LRU) })
        })
    }

    /// The first page from `at` on and before `end` that the cache has in memory, with a reference
    /// for the caller.
    pub(super) fn next_cached(&self, mm: &Mm<P>, at: u64, end: u64) -> Option<(u64, FolioRef)> {
        self.next_such(at, end, |cached| cached.page().map(|pfn| mm.frames().folio(pfn).get()))
    }

    /// Page `index` with a reference for the caller, brought back if it is in swap; `None` if there
    /// is nothing.
    ///
    /// # Errors
    /// As [`Self::find_or_read`].
    pub(crate) fn find(&self, mm: &Mm<P>, index: u64) -> Result<Option<Found>, FaultError> {
        loop {
            let cached = {
                let pages = self.pages.lock();
                match pages.get(index) {
                    None | Some(Cached::Gone(_)) => return Ok(None),
                    Some(Cached::Page(pfn)) => {
                        return Ok(Some(Found { folio: mm.frames().folio(*pfn).get(), waited: false }));
                    }
                    Some(Cached::Swapped(entry)) => *entry,
                }
            };
            match self.bring_back(mm, index, cached)? {
                Some(found) => return Ok(Some(found)),
                None => mm.fx().relax(),
            }
        }
    }

    /// Puts a page that is in swap in its place again (`shmem_swapin_folio`); `None` if somebody
    /// else is about to, or has.
    fn bring_back(&self, mm: &Mm<P>, index: u64, entry: SwapEntry) -> Result<Option<Found>, FaultError> {
        let from_swap = mm.page_from_swap(entry).map_err(|error| match error {
            FaultError::Device { errno, .. } => FaultError::Device { index, errno },
            other => other,
        });
        let Some(FromSwap { folio, lock, read }) = from_swap? else { return Ok(None) };
        let view = mm.frames().folio(folio.pfn());
        let mut pages = self.pages.lock();
        let is_wanted = pages.get(index).is_some_and(|cached| *cached == Cached::Swapped(entry));
        if is_wanted {
            view.set_owner(FolioOwner::File(self.id()), index);
            let page = view.get().into_raw();
            pages.update(index, |cached| *cached = Cached::Page(page));
            self.count(mm, 1);
        }
        drop(pages);
        if is_wanted {
            mm.swap_release(entry);
            // What it says is nowhere else from now on.
            mm.free_swap(view);
            drop(lock);
            return Ok(Some(Found { folio, waited: read }));
        }
        drop(lock);
        mm.free_swap_cache(view);
        mm.put_folio(folio);
        Ok(None)
    }

    /// Leaves to its slot alone a page that was written there and that nobody has but the cache,
    /// the swap cache and the caller, who has it locked (`shmem_writeout`). `shadow` says when that
    /// was. False: it stays, because somebody wants it, or it is not the object's any more.
    pub(crate) fn evict_to_swap(&self, mm: &Mm<P>, folio: Folio<'_>, shadow: u32) -> bool {
        let mut pages = self.pages.lock();
        let index = folio.index();
        if pages.get(index).is_none_or(|cached| *cached != Cached::Page(folio.pfn())) {
            return false;
        }
        let Some(entry) = mm.evict_to_swap(folio, NamedBy::Object, shadow) else { return false };
        pages.update(index, |cached| *cached = Cached::Swapped(entry));
        self.uncount(mm, 1);
        true
    }

    /// Drops a page that says what the file says, and that nobody has but the cache and the caller,
    /// who has it locked (`__remove_mapping`). False: it stays, because somebody wants it, or it is
    /// not the object's any more.
    pub(crate) fn drop_clean(&self, mm: &Mm<P>, folio: Folio<'_>) -> bool {
        let mut pages = self.pages.lock();
        let index = folio.index();
        if pages.get(index).is_none_or(|cached| *cached != Cached::Page(folio.pfn())) {
            return false;
        }
        // Who found the page has a reference, and keeps it here; who comes later reads it again.
        let Ok(frozen) = folio.freeze(2) else { return false };
        if folio.flags().contains(FolioFlags::DIRTY) {
            frozen.thaw(2);
            return false;
        }
        let shadow = mm.shadow_of(folio);
        pages.update(index, |cached| *cached = Cached::Gone(shadow));
        frozen.thaw(1);
        self.uncount(mm, 1);
        true
    }

    /// Counts pages that came into the cache.
    fn count(&self, mm: &Mm<P>, pages: u64) {
        mm.gauges.add(Gauge::FilePages, pages);
        if self.is_shmem() {
            mm.gauges.add(Gauge::Shmem, pages);
        }
    }

    /// Takes back the count of pages that left the cache.
    fn uncount(&self, mm: &Mm<P>, pages: u64) {
        mm.gauges.sub(Gauge::FilePages, pages);
        if self.is_shmem() {
            mm.gauges.sub(Gauge::Shmem, pages);
        }
    }

    /// Page `index`, read in if need be.
    ///
    /// `index` must lie within the object's size.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`]; nothing has changed. [`FaultError::Device`] when the device
    /// fails.
    pub(crate) fn find_or_read(&self, mm: &Mm<P>, index: u64) -> Result<Found, FaultError> {
        self.bring(mm, index, false)
    }

    /// The same for a page that may lie past the end, which is about to move.
    ///
    /// The caller holds `resize`.
    ///
    /// # Errors
    /// As [`Self::find_or_read`].
    pub(super) fn find_or_make(&self, mm: &Mm<P>, index: u64) -> Result<Found, FaultError> {
        self.bring(mm, index, true)
    }

    fn bring(&self, mm: &Mm<P>, index: u64, past_end: bool) -> Result<Found, FaultError> {
        loop {
            if let Some(found) = self.find(mm, index)? {
                return Ok(found);
            }
            if let Some(found) = self.make(mm, index, past_end)? {
                return Ok(found);
            }
        }
    }

    fn past(&self, index: u64) -> Past {
        let pages = self.pages.lock();
        (pages.get(index).copied(), self.removals())
    }

    /// A page of which the cache has nothing; `None` if it is in swap by now, or may have come and
    /// gone.
    fn make(&self, mm: &Mm<P>, index: u64, past_end: bool) -> Result<Option<Found>, FaultError> {
        let block = mm.alloc_zeroed(Order::ZERO, ClearExtent::PAGE)?.into_block();
        let pfn = block.pfn();
        let before = (!self.is_shmem()).then(|| self.past(index));
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
        Ok(inserted.map(|folio| Found { folio, waited }))
    }

    /// Puts a filled page into the cache, or drops it for the one that somebody else put there
    /// meanwhile; `None` if that is in swap, or if what was read of a file is out of date, whose
    /// past was `before` then (INV-FILE-CLEAN, INV-FILE-REMOVED).
    fn insert(
        &self,
        mm: &Mm<P>,
        index: u64,
        ours: FolioRef,
        before: Option<Past>,
        past_end: bool,
    ) -> Result<Option<FolioRef>, FaultError> {
        let mut pages = self.pages.lock();
        let now = pages.get(index).copied();
        let (there, shadow) = match now {
            Some(Cached::Gone(shadow)) => (None, shadow),
            there => (there, Shadow::NONE),
        };
        // A truncation sets the size before it takes this lock, so a page past the end is either
        // not put here or evicted again.
        let outcome = match there {
            None if index >= self.pages() && !past_end => {
                drop(pages);
                mm.put_folio(ours);
                return Err(FaultError::Device { index, errno: Errno::EIO });
            }
            Some(cached) => Ok(Some(cached.page().map(|pfn| mm.frames().folio(pfn).get()))),
            // Its bytes were taken away, or the page was there meanwhile and may have been stored
            // to, written back and dropped.
            None if before.is_some_and(|before| before != (now, self.removals())) => Ok(Some(None)),
            None => match pages.try_reserve(1, || mm.permit()) {
                // As in Linux, whoever touches a page that is not promised gets SIGBUS, not want of
                // memory.
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
                mm.note_refault(folio, shadow);
                mm.frames().lru_add(folio);
                let page = Cached::Page(ours.into_raw());
                if pages.update(index, |cached| *cached = page).is_none() {
                    pages.insert(index, page);
                }
                self.count(mm, 1);
                Ok(Some(mine))
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

    /// Drops the pages from `from` up to `end` out of the cache.
    ///
    /// Who still maps them is found by the places where they could be mapped (INV-RMAP-SUPERSET),
    /// and not through the pages.
    pub(super) fn evict(&self, mm: &Mm<P>, from: u64, end: u64) {
        self.note_removal();
        loop {
            let mut pages = self.pages.lock();
            let Some(index) = pages.ceiling(from).map(|(index, _)| index).filter(|index| *index < end) else { return };
            let Some(cached) = pages.remove(index) else { return };
            drop(pages);
            // The page is in no cache, and still paid for.
            <P::Locks as Backend>::point();
            self.uncharge_page(mm);
            match cached {
                Cached::Page(pfn) => {
                    self.uncount(mm, 1);
                    mm.put_folio(mm.frames().folio_ref_from_raw(pfn));
                }
                Cached::Swapped(entry) => mm.swap_release(entry),
                Cached::Gone(_) => {}
            }
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Gives up a reference under which no translation was installed, or whose translations have
    /// been flushed.
    pub(crate) fn put_folio(&self, folio: FolioRef) {
        if let Some(block) = self.frames().put(folio) {
            self.tlb.free(block);
        }
    }
}
