//! `mlock(2)` and its kin: memory that stays resident.
//!
//! A lock is a flag of the mapping; the pages are faulted in after it is set, and whoever takes
//! pages away leaves those of locked mappings. A mapping may be locked twice and is unlocked once.
//! What is there goes to the list that reclaim never looks at, at once, and from there when the
//! last mapping that has it locked is unlocked or goes: a page counts the entries of locked memory
//! that map it (INV-LRU-LOCKS). Linux's count may be too low, since it does not count while a page
//! is off its list.
//!
//! INV-LOCK-LIMIT: without `CAP_IPC_LOCK` no call leaves more pages locked than `RLIMIT_MEMLOCK`
//! allows; a page counts once for each mapping.
//!
//! Not guaranteed: that a page of locked memory is there. One that could not be had when it was
//! locked is faulted in when it is touched.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::settings::MmSetting;
use crate::space::call::{LockAllFlags, LockFlags};
use crate::space::limits::Resource;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::frames::Folio;
use pagewright_types::{Counter, PAGE_SIZE, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// `mlock`: locks the pages that `len` bytes at `addr` touch.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, the mappings before a hole are locked when the call fails because
    /// of it, and all are when a page can't be had; for any other error nothing has changed.
    pub fn mlock(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        self.mlock2(space, addr, len, LockFlags::empty())
    }

    /// `mlock2`: the same; with [`LockFlags::ONFAULT`] pages are locked as they are touched.
    ///
    /// # Errors
    /// As [`Mm::mlock`].
    pub fn mlock2(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: LockFlags) -> Result<(), MmError> {
        if !LockFlags::all().contains(flags) {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        let mut lock = VmFlags::LOCKED;
        lock.set(VmFlags::LOCKONFAULT, flags.contains(LockFlags::ONFAULT));
        self.call(|| {
            let range = {
                let mut map = space.map().write();
                map.can_lock()?;
                let range = map.may_lock_range(addr, len)?;
                self.apply_lock(space, &mut map, range, lock)?;
                range
            };
            self.populate_locked(space, range)
        })
    }

    /// `munlock`.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, the mappings before a hole are unlocked when the call fails
    /// because of it.
    pub fn munlock(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        let (start, len) = touched(addr, len);
        let range = bounded(start, len)?;
        self.call(|| {
            let mut map = space.map().write();
            self.apply_lock(space, &mut map, range, VmFlags::empty())
        })
    }

    /// `mlockall`: locks what is mapped, what will be, or both.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed. That a page could not be had is no error.
    pub fn mlockall(&self, space: &Space<P>, flags: LockAllFlags) -> Result<(), MmError> {
        if flags.is_empty() || !LockAllFlags::all().contains(flags) || flags == LockAllFlags::ONFAULT {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        let mut lock = VmFlags::LOCKED;
        lock.set(VmFlags::LOCKONFAULT, flags.contains(LockAllFlags::ONFAULT));
        let current = flags.contains(LockAllFlags::CURRENT);
        self.call(|| {
            {
                let mut map = space.map().write();
                map.can_lock()?;
                let pages = map.totals().pages;
                if current && !map.may_have_locked(pages) {
                    return Err(MmError::OverLockLimit { pages, limit: map.limits().get(Resource::Memlock) });
                }
                map.new_flags = if flags.contains(LockAllFlags::FUTURE) { lock } else { VmFlags::empty() };
                if current {
                    self.relock_pages(space, &map, everything::<P>(), lock);
                    map.reflag(everything::<P>(), |vma| relocked(vma, lock));
                }
            }
            if current {
                self.populate_what_can_be(space, everything::<P>(), VmFlags::LOCKED);
            }
            Ok(())
        })
    }

    /// `munlockall`.
    ///
    /// It can't fail.
    pub fn munlockall(&self, space: &Space<P>) {
        self.call(|| {
            let mut map = space.map().write();
            map.new_flags = VmFlags::empty();
            self.relock_pages(space, &map, everything::<P>(), VmFlags::empty());
            map.reflag(everything::<P>(), |vma| relocked(vma, VmFlags::empty()));
        });
    }

    /// Takes the pages that are there of mappings in `range` out of reclaim's way, or lets it look
    /// again, where `lock` in the place of the lock that a mapping has changes that
    /// (`mlock_vma_pages_range`). The caller has the space for himself and changes the mappings
    /// before he lets it go.
    pub(in crate::space) fn relock_pages(
        &self,
        space: &Space<P>,
        map: &AddressMap<P>,
        range: PageRange,
        lock: VmFlags,
    ) {
        for (start, vma) in map.overlapping(range) {
            let (before, Some(part)) = (vma.flags(), vma.range(start).intersect(range)) else { continue };
            match (before.contains(VmFlags::LOCKED), lock.contains(VmFlags::LOCKED)) {
                (false, true) => self.for_each_folio(space, part, |folio| self.mlock_vma_folio(lock, folio)),
                (true, false) => self.for_each_folio(space, part, |folio| self.munlock_vma_folio(before, folio)),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn for_each_folio(&self, space: &Space<P>, range: PageRange, visit: impl Fn(Folio<'_>)) {
        for (table, under) in space.table().locked_tables(&self.tlb, range) {
            for va in table.entries(under) {
                if let Some(folio) = table.leaf(va).and_then(|leaf| self.vm_normal_folio(leaf)) {
                    visit(folio);
                }
            }
        }
    }

    /// An entry of a mapping with these flags maps a folio: while one of locked memory does,
    /// reclaim need not look at it. The caller has the entry's table locked, or the space for
    /// himself.
    #[inline]
    pub(crate) fn mlock_vma_folio(&self, flags: VmFlags, folio: Folio<'_>) {
        if flags.contains(VmFlags::LOCKED) && self.frames().mlock(folio) {
            self.tlb.count(Counter::UnevictableCulled, u64::from(folio.pages()));
        }
    }

    /// An entry of a mapping with these flags, by which [`Self::mlock_vma_folio`] was called, maps
    /// a folio no longer, or will be unlocked. The caller has what is said there.
    #[inline]
    pub(crate) fn munlock_vma_folio(&self, flags: VmFlags, folio: Folio<'_>) {
        if flags.contains(VmFlags::LOCKED) && self.frames().munlock(folio) {
            self.tlb.count(Counter::UnevictableRescued, u64::from(folio.pages()));
        }
    }

    /// Gives every mapping of `range` up to the first hole `lock` in the place of the lock that it
    /// has (`apply_vma_lock_flags`).
    fn apply_lock(
        &self,
        space: &Space<P>,
        map: &mut AddressMap<P>,
        range: PageRange,
        lock: VmFlags,
    ) -> Result<(), MmError> {
        let end = map.mapped_up_to(range);
        let part = PageRange::new(range.start(), end);
        if !part.is_empty() {
            self.reserve_splits(map, part, |vma| relocked(vma, lock) != vma.flags())?;
            self.relock_pages(space, map, part, lock);
            map.reflag(part, |vma| relocked(vma, lock));
        }
        if end < range.end() { Err(MmError::NotMapped { at: end }) } else { Ok(()) }
    }

    /// Makes the two splits infallible that changing the mappings of `range` can take, of those
    /// that `changes` is true of.
    pub(in crate::space) fn reserve_splits(
        &self,
        map: &mut AddressMap<P>,
        range: PageRange,
        changes: impl Fn(&Vma<P>) -> bool,
    ) -> Result<(), MmError> {
        let limit = self.settings.get(MmSetting::MaxMapCount);
        let cut = |at: VirtAddr| map.find(at).is_some_and(|(start, vma)| start != at.page_index() && changes(vma));
        let splits = [range.start(), range.end()].into_iter().filter(|at| cut(*at)).count();
        if splits > 0 && map.len() as u64 + splits as u64 > limit {
            return Err(MmError::TooManyMappings { limit });
        }
        map.reserve(self, 2)
    }
}

impl<P: Platform> AddressMap<P> {
    /// Whether the limit allows `range` to be locked, where some of it may be locked already
    /// (`count_mm_mlocked_page_nr`).
    fn may_lock_range(&self, addr: VirtAddr, len: u64) -> Result<PageRange, MmError> {
        let (start, len) = touched(addr, len);
        let range = bounded(start, len);
        let locked = range.map_or(0, |range| self.totals_in(range).locked);
        let pages = self.totals().locked + len / PAGE_SIZE - locked;
        if self.may_have_locked(pages) {
            return range;
        }
        Err(MmError::OverLockLimit { pages, limit: self.limits().get(Resource::Memlock) })
    }
}

fn everything<P: Platform>() -> PageRange {
    PageRange::new(VirtAddr::ZERO, P::Isa::USER_END)
}

/// The flags of a mapping with another lock.
fn relocked<P: Platform>(vma: &Vma<P>, lock: VmFlags) -> VmFlags {
    (vma.flags() - VmFlags::LOCK_MASK) | lock
}

/// The pages that `len` bytes at `addr` touch: their start and their bytes.
///
/// A length that wraps is a short one, as in Linux.
fn touched(addr: VirtAddr, len: u64) -> (VirtAddr, u64) {
    let start = addr.align_down(PAGE_SIZE);
    let len = len.wrapping_add(addr.since(start)).wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
    (start, len)
}
