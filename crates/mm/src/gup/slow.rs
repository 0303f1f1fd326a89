//! Taking a page under the locks, with faults as often as it takes (`__get_user_pages`,
//! `follow_page_pte`).

use super::{GupFlags, UserPage, Want};
use crate::error::{FaultError, MmError};
use crate::fault::{ClearedPageSource, FaultFlags, FaultOptions};
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, Level, PAGE_SIZE, Rights, VirtAddr};

/// What must happen before a page can be taken.
enum Missing {
    /// The page, or the right.
    Access,
    /// It must be the space's alone (`-EMLINK` in Linux).
    Unshare,
    /// Its count has come to its end.
    ///
    /// Nothing that a fault could bring.
    Room,
}

impl<P: Platform> Mm<P> {
    /// The page at `va`, wherever the space runs.
    ///
    /// A stack does not grow for it, as in Linux since 6.5.
    pub(crate) fn take_with_faults(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        want: Want,
        pages: Option<&dyn ClearedPageSource>,
    ) -> Result<UserPage, MmError> {
        let inaccessible = MmError::Inaccessible { va };
        loop {
            let missing = {
                let map = space.map().read();
                let (_, vma) = map.find(va).ok_or(inaccessible)?;
                if !want.is_permitted(vma) {
                    return Err(inaccessible);
                }
                match self.follow(space, vma, va, want) {
                    Ok(page) => return Ok(page),
                    Err(missing) => missing,
                }
            };
            if want.flags.contains(GupFlags::NOFAULT) {
                return Err(inaccessible);
            }
            let mut flags = FaultFlags::UNTOUCHED;
            flags.set(FaultFlags::FORCE, want.flags.contains(GupFlags::FORCE));
            let access = match missing {
                Missing::Room => return Err(MmError::TooManyHolders { va }),
                Missing::Access => want.access(),
                Missing::Unshare => {
                    flags |= FaultFlags::UNSHARE;
                    Access::Read
                }
            };
            self.fault_counted(space, va, access, FaultOptions { flags, pages }).map_err(|error| match error {
                FaultError::OutOfMemory(error) => error,
                FaultError::NotMapped { .. }
                | FaultError::NotAllowed { .. }
                | FaultError::Guarded { .. }
                | FaultError::PastEnd { .. }
                | FaultError::Device { .. } => inaccessible,
            })?;
        }
    }

    /// The page that the entry for `va` leads to now.
    ///
    /// The caller holds the space; the table's lock keeps fork away, and with it anybody who could
    /// make the entry less exclusive.
    fn follow(&self, space: &Space<P>, vma: &Vma<P>, va: VirtAddr, want: Want) -> Result<UserPage, Missing> {
        let locked = space.table().lock(&self.tlb, va, Level::PTE).ok_or(Missing::Access)?;
        let leaf = locked.leaf(va).ok_or(Missing::Access)?;
        let span = locked.level().span();
        let pfn = leaf.pfn.add((va.since(va.align_down(span)) / PAGE_SIZE) as u32);
        let is_special = leaf.flags.contains(LeafFlags::SPECIAL);
        let writable = leaf.rights.contains(Rights::WRITE);
        if want.writes() && !writable && (is_special || !can_force_write(leaf, vma, want)) {
            return Err(Missing::Access);
        }
        let folio = (!is_special).then(|| self.frames().folio(pfn));
        if !writable && want.must_unshare(leaf, folio.is_some_and(|folio| folio.is_anon()), Some(vma)) {
            return Err(Missing::Unshare);
        }
        let Some(folio) = folio else { return Ok(UserPage::zero_page(pfn)) };
        if want.writes() && !leaf.flags.contains(LeafFlags::DIRTY) {
            folio.set_flags(FolioFlags::DIRTY);
        }
        // The entry has a reference, and nobody can take it from under the lock.
        let page = UserPage::try_hold(folio, pfn, want).ok_or(Missing::Room)?;
        if page.is_pinned() {
            self.tlb.count(Counter::NrFollPinAcquired, 1);
        }
        Ok(page)
    }
}

/// Whether an entry without the right to write will do for a forced write: the page is a copy of
/// the space's own, made by the fault (`can_follow_write_pte`).
fn can_force_write<P: Platform>(leaf: Leaf, vma: &Vma<P>, want: Want) -> bool {
    let tracked = !vma.flags().contains(VmFlags::SOFTDIRTY);
    want.flags.contains(GupFlags::FORCE)
        && vma.is_cow()
        && !vma.rights().contains(Rights::WRITE)
        && leaf.flags.contains(LeafFlags::EXCLUSIVE)
        && (!tracked || leaf.flags.contains(LeafFlags::SOFT_DIRTY))
}
