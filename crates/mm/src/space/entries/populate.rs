//! Populates mappings before they are accessed (`__mm_populate`).
//!
//! `MAP_POPULATE` and locked memory need it.
//!
//! Neighbours: `mmap`, `mremap`, `brk`, `mprotect` and `mlock` call it last, after they have
//! released the space's `map` lock; `fault` maps the pages.
//!
//! Not guaranteed: that a page is still resident when the call returns. Only locked mappings keep
//! their pages.

use crate::error::{FaultError, MmError};
use crate::fault::{ClearedPageSource, FaultRequest, PreclearedPages};
use crate::mm::Mm;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags};
use pagewright_arch::{Isa, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::MmapRead;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// What to do at an address.
enum PopulateStep {
    /// Continue at this address.
    ///
    /// Skipped are populated and unmapped pages, mappings without the flags, and mappings that are
    /// locked on fault.
    Skip(VirtAddr),
    /// Fault the page in by this access, which is `None` if the mapping has no rights.
    ///
    /// The address is the end of the mapping.
    Page(Option<Access>, VirtAddr),
}

impl<P: Platform> Mm<P> {
    /// Populates the mappings of `range` that have all of `flags`, and ignores errors.
    ///
    /// After an error it continues with the next mapping.
    pub(in crate::space) fn populate_range(&self, space: &Space<P>, range: PageRange, flags: VmFlags) {
        let precleared = PreclearedPages::for_pages(self, range.pages());
        let mut at = range.start();
        while at < range.end() {
            at = match self.populate_one(space, at, flags, PreclearedPages::as_source(&precleared)) {
                Ok(next) => next,
                Err((_, end)) => end,
            };
        }
    }

    /// Populates the locked mappings of `range`.
    ///
    /// # Errors
    /// [`MmError::CannotPopulate`] or [`MmError::NoMemoryToLock`], as `mlock` returns them. The
    /// pages before the first failure stay mapped.
    pub(in crate::space) fn populate_locked(&self, space: &Space<P>, range: PageRange) -> Result<(), MmError> {
        let precleared = PreclearedPages::for_pages(self, range.pages());
        let (mut at, mut result) = (range.start(), Ok(()));
        while at < range.end() && result.is_ok() {
            match self.populate_one(space, at, VmFlags::LOCKED, PreclearedPages::as_source(&precleared)) {
                Ok(next) => at = next,
                Err((error, _)) => result = Err(error),
            }
        }
        result
    }

    /// Faults in the page at `at` or skips pages, and returns the address at which to continue.
    ///
    /// # Errors
    /// The reason why the page cannot be mapped, and the end of its mapping.
    fn populate_one(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        flags: VmFlags,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<VirtAddr, (MmError, VirtAddr)> {
        self.cond_resched();
        match self.next_step(space, at, flags) {
            PopulateStep::Skip(to) => Ok(to),
            PopulateStep::Page(access, end) => match self.populate_page(space, at, access, pages) {
                Ok(()) => Ok(at.add(PAGE_SIZE)),
                Err(error) => Err((error, end)),
            },
        }
    }

    fn next_step(&self, space: &Space<P>, at: VirtAddr, flags: VmFlags) -> PopulateStep {
        let map = space.map().read();
        let Some((start, vma)) = map.find_or_after(at) else { return PopulateStep::Skip(P::Isa::USER_END) };
        let range = vma.range(start);
        if range.start() > at {
            return PopulateStep::Skip(range.start());
        }
        if vma.flags().contains(VmFlags::LOCKONFAULT) || !vma.flags().contains(flags) {
            return PopulateStep::Skip(range.end());
        }
        let access = match vma.rights() {
            rights if rights.is_empty() => None,
            rights if rights.contains(Rights::WRITE) && !vma.is_shared() => Some(Access::Write),
            _ => Some(Access::Read),
        };
        match access {
            Some(access) if self.is_populated(&map, at, access) => PopulateStep::Skip(at.add(PAGE_SIZE)),
            access => PopulateStep::Page(access, range.end()),
        }
    }

    fn populate_page(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        access: Option<Access>,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<(), MmError> {
        let access = access.ok_or(MmError::CannotPopulate { at })?;
        match self.fault_counted(space, FaultRequest::populate(at, access, pages)) {
            Ok(_) => Ok(()),
            Err(FaultError::OutOfMemory(_)) => Err(MmError::NoMemoryToLock { at }),
            Err(_) => Err(MmError::CannotPopulate { at }),
        }
    }

    /// Returns whether an entry allows the access.
    ///
    /// For a store, it marks the page as dirty, so that reclaim cannot discard its contents as it
    /// may after `MADV_FREE` (`follow_page_pte`).
    pub(in crate::space) fn is_populated(
        &self,
        map: &MmapRead<'_, P, AddressMap<P>>,
        at: VirtAddr,
        access: Access,
    ) -> bool {
        let Some(locked) = map.tables(&self.tlb).read_lock(at) else { return false };
        let Some(leaf) = locked.leaf(at).filter(|leaf| leaf.rights().allow(access)) else { return false };
        if access == Access::Write && !leaf.has(LeafFlags::DIRTY) {
            self.frames().folio(leaf.pfn()).set_flags(FolioFlags::DIRTY);
        }
        true
    }
}
