//! `mlock(2)`, `mlockall(2)` and their opposites: memory that stays resident.
//!
//! A lock is a flag of the mapping. The call sets it and then populates the mapping; reclaim skips
//! pages of locked mappings. Locks do not nest. Locking moves resident pages to the unevictable
//! list at once. A page leaves the list when the last locked mapping of it is unlocked or removed:
//! each page counts the entries of locked mappings that map it (INV-LRU-LOCKS). Linux's count may
//! be too low, because it does not count while a page is off its list.
//!
//! **INV-LOCK-LIMIT** Without the privilege, no call leaves more pages locked than `RLIMIT_MEMLOCK`
//! allows. A page counts once for each mapping.
//!
//! Not guaranteed: that every page of locked memory is resident. A page that could not be populated
//! is faulted in when it is accessed.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::call::{LockAllFlags, LockFlags};
use crate::space::limits::Resource;
use crate::space::vma::AddressMap;
use crate::space::{HeldMap, Space, VmFlags, Vma};
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_table::Mlocked;
use pagewright_types::{PAGE_SIZE, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Locks the pages that contain `len` bytes at `addr` (`mlock(2)`).
    ///
    /// # Errors
    /// As in Linux, [`MmError::NotMapped`] leaves the mappings before the unmapped page locked, and
    /// [`MmError::CannotPopulate`] and [`MmError::NoMemoryToLock`] leave all of them locked. After
    /// any other error nothing has changed.
    pub fn mlock(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        self.mlock2(space, addr, len, LockFlags::empty())
    }

    /// Locks the pages that contain `len` bytes at `addr` (`mlock2(2)`).
    ///
    /// With [`LockFlags::ONFAULT`], a page is locked when it is first accessed.
    ///
    /// # Errors
    /// As [`Mm::mlock`].
    pub fn mlock2(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: LockFlags) -> Result<(), MmError> {
        if !LockFlags::all().contains(flags) {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        let mut lock = VmFlags::LOCKED;
        lock.set(VmFlags::LOCKONFAULT, flags.contains(LockFlags::ONFAULT));
        self.declare_return_of(|| {
            let range = {
                let mut map = space.map().write();
                map.can_lock()?;
                let range = map.may_lock_range(addr, len)?;
                self.apply_lock(&mut map, range, lock)?;
                range
            };
            self.populate_locked(space, range)
        })
    }

    /// Unlocks the pages that contain `len` bytes at `addr` (`munlock(2)`).
    ///
    /// # Errors
    /// As in Linux, [`MmError::NotMapped`] leaves the mappings before the unmapped page unlocked.
    /// After any other error nothing has changed.
    pub fn munlock(&self, space: &Space<P>, addr: VirtAddr, len: u64) -> Result<(), MmError> {
        let (start, len) = whole_pages(addr, len);
        let range = bounded(start, len)?;
        self.declare_return_of(|| {
            let mut map = space.map().write();
            self.apply_lock(&mut map, range, VmFlags::empty())
        })
    }

    /// Locks all present mappings, all future mappings, or both (`mlockall(2)`).
    ///
    /// # Errors
    /// [`MmError::BadFlags`], [`MmError::LockNotPermitted`] or [`MmError::OverLockLimit`]; nothing
    /// has changed. A page that cannot be populated is no error.
    pub fn mlockall(&self, space: &Space<P>, flags: LockAllFlags) -> Result<(), MmError> {
        if flags.is_empty() || !LockAllFlags::all().contains(flags) || flags == LockAllFlags::ONFAULT {
            return Err(MmError::BadFlags { flags: flags.bits() });
        }
        let mut lock = VmFlags::LOCKED;
        lock.set(VmFlags::LOCKONFAULT, flags.contains(LockAllFlags::ONFAULT));
        let current = flags.contains(LockAllFlags::CURRENT);
        self.declare_return_of(|| {
            {
                let mut map = space.map().write();
                map.can_lock()?;
                let pages = map.totals().pages;
                if current && !map.may_have_locked(pages) {
                    return Err(MmError::OverLockLimit { pages, limit: map.limits().get(Resource::Memlock) });
                }
                if current {
                    self.own_tables(map.tables(&self.tlb), P::Isa::USER)?;
                }
                map.new_flags = if flags.contains(LockAllFlags::FUTURE) { lock } else { VmFlags::empty() };
                if current {
                    self.relock_pages(&map, P::Isa::USER, lock);
                    map.update_flags(P::Isa::USER, |vma| relocked(vma, lock));
                }
            }
            if current {
                self.populate_range(space, P::Isa::USER, VmFlags::LOCKED);
            }
            Ok(())
        })
    }

    /// Unlocks all present and future mappings (`munlockall(2)`).
    pub fn munlockall(&self, space: &Space<P>) {
        self.declare_return_of(|| {
            let mut map = space.map().write();
            map.new_flags = VmFlags::empty();
            self.relock_pages(&map, P::Isa::USER, VmFlags::empty());
            map.update_flags(P::Isa::USER, |vma| relocked(vma, VmFlags::empty()));
        });
    }

    /// Counts or uncounts the locks of resident pages in `range` for a change of locks to `lock`.
    ///
    /// Only pages of mappings that become locked or unlocked are affected. The caller sets the
    /// flags of the mappings before it releases the space.
    ///
    /// Linux: `mlock_vma_pages_range`.
    pub(in crate::space) fn relock_pages(&self, map: &HeldMap<'_, P>, range: PageRange, lock: VmFlags) {
        for (_, vma, part) in map.parts(range) {
            let is_locked = lock.contains(VmFlags::LOCKED);
            if vma.flags().contains(VmFlags::LOCKED) != is_locked {
                self.await_migrations(map.tables(&self.tlb), part);
                for (table, under) in map.tables(&self.tlb).owned(part).locked(part, vma.mlocked()) {
                    table.relock_run(under, Mlocked(is_locked));
                }
            }
        }
    }

    /// Replaces the lock of every mapping in `range`, up to the first unmapped page, by `lock`.
    ///
    /// Linux: `apply_vma_lock_flags`.
    fn apply_lock(&self, map: &mut HeldMap<'_, P>, range: PageRange, lock: VmFlags) -> Result<(), MmError> {
        let end = map.mapped_up_to(range);
        let part = PageRange::new(range.start(), end);
        if !part.is_empty() {
            self.reserve_splits(map, part, |vma| relocked(vma, lock) != vma.flags())?;
            self.relock_pages(map, part, lock);
            map.update_flags(part, |vma| relocked(vma, lock));
        }
        if end < range.end() { Err(MmError::NotMapped { at: end }) } else { Ok(()) }
    }
}

impl<P: Platform> AddressMap<P> {
    /// Checks that the limit allows to lock the pages of `len` bytes at `addr`, and returns them.
    ///
    /// Pages that are locked already count once (`count_mm_mlocked_page_nr`).
    fn may_lock_range(&self, addr: VirtAddr, len: u64) -> Result<PageRange, MmError> {
        let (start, len) = whole_pages(addr, len);
        let range = bounded(start, len);
        let locked = range.map_or(0, |range| self.totals_in(range).locked);
        let pages = self.totals().locked + len / PAGE_SIZE - locked;
        if self.may_have_locked(pages) {
            return range;
        }
        Err(MmError::OverLockLimit { pages, limit: self.limits().get(Resource::Memlock) })
    }
}

/// Returns the flags of a mapping with its lock replaced by `lock`.
fn relocked<P: Platform>(vma: &Vma<P>, lock: VmFlags) -> VmFlags {
    (vma.flags() - VmFlags::LOCK_MASK) | lock
}

/// Returns the start and the length in bytes of the pages that contain `len` bytes at `addr`.
///
/// As in Linux, rounding up may wrap to a short length.
fn whole_pages(addr: VirtAddr, len: u64) -> (VirtAddr, u64) {
    let start = addr.align_down(PAGE_SIZE);
    let len = len.wrapping_add(addr.since(start)).wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
    (start, len)
}
