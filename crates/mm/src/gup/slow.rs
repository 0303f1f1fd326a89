//! Taking a page under the locks, with as many faults as needed (`__get_user_pages`).

use super::{GupFlags, GupRequest, UserPage};
use crate::error::{FaultError, MmError};
use crate::fault::{ClearedPageSource, FaultFlags, FaultRequest};
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{LeafView, OwnTables};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Why an entry's page cannot be taken yet.
enum FollowError {
    /// The page is not present, or the entry lacks the right.
    NoAccess,
    /// The page must be made exclusive first (`-EMLINK` in Linux).
    NotExclusive,
    /// The reference count is at its limit, which no fault changes.
    TooManyRefs,
}

impl<P: Platform> Mm<P> {
    /// The page at `va`, after the faults that the request needs; the space may run on any CPU.
    ///
    /// As in Linux since 6.5, a stack does not grow for it.
    pub(crate) fn gup_slow(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        request: GupRequest,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<UserPage, MmError> {
        let inaccessible = MmError::Inaccessible { va };
        loop {
            let failed = {
                let map = space.map().read();
                let (_, vma) = map.find(va).ok_or(inaccessible)?;
                if !request.is_permitted(vma) {
                    return Err(inaccessible);
                }
                // INV-SHARE-PIN: no page is taken through a path that other spaces share.
                let own = self.own_tables(map.tables(&self.tlb), PageRange::page(va.align_down(PAGE_SIZE)))?;
                match self.follow_page(own, vma, va, request) {
                    Ok(page) => return Ok(page),
                    Err(failed) => failed,
                }
            };
            if request.flags.contains(GupFlags::NOFAULT) {
                return Err(inaccessible);
            }
            let mut flags = FaultFlags::UNTOUCHED;
            flags.set(FaultFlags::FORCE, request.flags.contains(GupFlags::FORCE));
            let access = match failed {
                FollowError::TooManyRefs => return Err(MmError::TooManyHolders { va }),
                FollowError::NoAccess => request.access(),
                FollowError::NotExclusive => {
                    flags |= FaultFlags::UNSHARE;
                    Access::Read
                }
            };
            self.fault_counted(space, FaultRequest { va, access, flags, pages }).map_err(|error| match error {
                FaultError::OutOfMemory(_) | FaultError::TooManyHolders { .. } => error.into(),
                FaultError::NotMapped { .. }
                | FaultError::NotAllowed { .. }
                | FaultError::Guarded { .. }
                | FaultError::PastEnd { .. }
                | FaultError::Device { .. } => inaccessible,
            })?;
        }
    }

    /// The page that the entry for `va` maps now (`follow_page_pte`).
    ///
    /// The table's lock excludes every operation that clears the exclusive bit, such as fork.
    fn follow_page(
        &self,
        tables: OwnTables<'_, P>,
        vma: &Vma<P>,
        va: VirtAddr,
        request: GupRequest,
    ) -> Result<UserPage, FollowError> {
        if plant!(FollowIgnoresSplit; false, request.flags.contains(GupFlags::SPLIT_PMD)) {
            tables.split_leaf(va, vma.mlocked());
        }
        let locked = tables.lock(va).ok_or(FollowError::NoAccess)?;
        let leaf = locked.leaf(va).ok_or(FollowError::NoAccess)?;
        let pfn = leaf.page_at(va);
        let is_special = leaf.is_special();
        let writable = leaf.rights().contains(Rights::WRITE);
        if request.writes() && !writable && (is_special || !can_force_write(leaf, vma, request)) {
            return Err(FollowError::NoAccess);
        }
        let folio = (!is_special).then(|| self.frames().folio(pfn));
        if !writable && request.must_unshare(leaf, folio.is_some_and(|folio| folio.is_anon()), Some(vma)) {
            return Err(FollowError::NotExclusive);
        }
        let Some(folio) = folio else { return Ok(UserPage::zero_page(pfn)) };
        if request.writes() {
            if !leaf.has(LeafFlags::DIRTY) {
                folio.set_flags(FolioFlags::DIRTY);
            }
            // A forced write stores to a page of which no entry has the right.
            plant!(ForcedWriteUnsettled; (), self.tlb.settle_folio(folio));
        }
        if request.pin {
            tables.mark_pinned(va);
        }
        // The entry holds a reference, and no other CPU can drop it while the table is locked.
        let page = UserPage::try_hold(folio, pfn, request).ok_or(FollowError::TooManyRefs)?;
        if page.is_pinned() {
            self.tlb.count(Counter::NrFollPinAcquired, 1);
        }
        Ok(page)
    }
}

/// Whether a read-only entry permits a forced write (`can_follow_write_pte`).
///
/// It does if the page is the space's own copy, made by the fault.
fn can_force_write<P: Platform>(leaf: LeafView, vma: &Vma<P>, request: GupRequest) -> bool {
    let tracked = !vma.flags().contains(VmFlags::SOFTDIRTY);
    request.flags.contains(GupFlags::FORCE)
        && vma.is_cow()
        && !vma.rights().contains(Rights::WRITE)
        && leaf.is_exclusive()
        && (!tracked || leaf.has(LeafFlags::SOFT_DIRTY))
}
