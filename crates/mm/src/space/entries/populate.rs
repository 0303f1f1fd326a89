//! Faulting pages in before they are touched (`__mm_populate`): for `MAP_POPULATE` and for locked
//! memory.
//!
//! Neighbours: `map`, `remap`, `brk`, `protect` and `lock` end with it, after they have let the
//! space go; `fault` does the work.
//!
//! Not guaranteed: that a page is still there when the call returns. Nothing but `lock`'s flag
//! keeps it.

use crate::error::{FaultError, MmError};
use crate::fault::{ClearedPageSource, PreclearedPages};
use crate::mm::Mm;
use crate::space::{Space, VmFlags};
use pagewright_arch::{Isa, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Level, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// What the mapping at an address wants.
enum GupRequest {
    /// Nothing before this address: a hole, another sort of mapping, or pages that are locked as
    /// they are touched.
    Skip(VirtAddr),
    /// The page by such an access; without rights, none is possible.
    ///
    /// And where the mapping ends.
    Page(Option<Access>, VirtAddr),
}

impl<P: Platform> Mm<P> {
    /// Faults in what can be, of mappings that have all of `flags`.
    ///
    /// Where a page can't be had, what is left of its mapping is passed over.
    pub(in crate::space) fn populate_what_can_be(&self, space: &Space<P>, range: PageRange, flags: VmFlags) {
        let precleared = PreclearedPages::for_pages(self, range.pages());
        let mut at = range.start();
        while at < range.end() {
            at = match self.populate_one(space, at, flags, PreclearedPages::as_source(&precleared)) {
                Ok(next) => next,
                Err((_, end)) => end,
            };
        }
    }

    /// Faults in all that is locked in `range`.
    ///
    /// # Errors
    /// As `mlock` has them: [`MmError::CannotPopulate`], [`MmError::NoMemoryToLock`]. What was
    /// faulted in stays.
    pub(in crate::space) fn populate_locked(&self, space: &Space<P>, range: PageRange) -> Result<(), MmError> {
        let precleared = PreclearedPages::for_pages(self, range.pages());
        let (mut at, mut outcome) = (range.start(), Ok(()));
        while at < range.end() && outcome.is_ok() {
            match self.populate_one(space, at, VmFlags::LOCKED, PreclearedPages::as_source(&precleared)) {
                Ok(next) => at = next,
                Err((error, _)) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Faults in one page, or passes over pages that are not wanted, and says where to go on; if
    /// the page can't be had, why, and where its mapping ends.
    fn populate_one(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        flags: VmFlags,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<VirtAddr, (MmError, VirtAddr)> {
        match Self::wanted(space, at, flags) {
            GupRequest::Skip(to) => Ok(to),
            GupRequest::Page(access, end) => match self.bring(space, at, access, pages) {
                Ok(()) => Ok(at.add(PAGE_SIZE)),
                Err(error) => Err((error, end)),
            },
        }
    }

    fn wanted(space: &Space<P>, at: VirtAddr, flags: VmFlags) -> GupRequest {
        let map = space.map().read();
        let Some((start, vma)) = map.find_or_after(at) else { return GupRequest::Skip(P::Isa::USER_END) };
        let range = vma.range(start);
        if range.start() > at {
            return GupRequest::Skip(range.start());
        }
        if vma.flags().contains(VmFlags::LOCKONFAULT) || !vma.flags().contains(flags) {
            return GupRequest::Skip(range.end());
        }
        let access = match vma.rights() {
            rights if rights.is_empty() => None,
            rights if rights.contains(Rights::WRITE) && !vma.is_shared() => Some(Access::Write),
            _ => Some(Access::Read),
        };
        GupRequest::Page(access, range.end())
    }

    fn bring(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        access: Option<Access>,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<(), MmError> {
        let access = access.ok_or(MmError::CannotPopulate { at })?;
        if self.is_there(space, at, access) {
            return Ok(());
        }
        match self.fault_in(space, at, access, pages) {
            Ok(_) => Ok(()),
            Err(FaultError::OutOfMemory(_)) => Err(MmError::NoMemoryToLock { at }),
            Err(_) => Err(MmError::CannotPopulate { at }),
        }
    }

    /// Whether the access would not fault, as the tables are now.
    ///
    /// A page that is brought for a store counts as stored to from then on, and its contents may
    /// not go any more (`follow_page_pte`).
    pub(in crate::space) fn is_there(&self, space: &Space<P>, at: VirtAddr, access: Access) -> bool {
        let map = space.map().read();
        // It was let go since it was looked at, and may have ended, with its tables.
        if map.is_empty() {
            return false;
        }
        let Some(locked) = space.table().lock(&self.tlb, at, Level::PTE) else { return false };
        let Some(leaf) = locked.leaf(at).filter(|leaf| leaf.rights.allow(access)) else { return false };
        if access == Access::Write && !leaf.flags.contains(LeafFlags::DIRTY) {
            self.frames().folio(leaf.pfn).set_flags(FolioFlags::DIRTY);
        }
        true
    }
}
