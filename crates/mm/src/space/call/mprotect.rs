//! `mprotect(2)`: changes the rights of mappings.
//!
//! **INV-MM-REDUCED** When a call that takes rights away returns, no CPU holds them.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::call::Protection;
use crate::space::vma::AddressMap;
use crate::space::vma::Vma;
use crate::space::{HeldMap, Space, VmFlags, is_data};
use alloc::vec::Vec;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::OwnTables;
use pagewright_tlb::Gather;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Changes the rights of `len` bytes at `addr`, rounded up to pages.
    ///
    /// With [`Protection::GROWSDOWN`], the range begins at the start of the stack that contains the
    /// first byte.
    ///
    /// # Errors
    /// As in Linux, [`MmError::NotMapped`], [`MmError::Forbidden`], [`MmError::Sealed`],
    /// [`MmError::OverLimit`] and [`MmError::CommitRefused`] leave the mappings before the first
    /// one that failed changed. After any other error nothing has changed.
    pub fn mprotect(
        &self,
        space: &Space<P>,
        addr: VirtAddr,
        len: u64,
        protection: impl Into<Protection>,
    ) -> Result<(), MmError> {
        let protection = protection.into();
        let bad = MmError::BadFlags { flags: protection.bits() };
        if protection.contains(Protection::GROWS) {
            return Err(bad);
        }
        let range = PageRange::from_len(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        if !Protection::all().contains(protection) {
            return Err(bad);
        }
        self.declare_return_of(|| self.protect(space, range, protection))
    }

    fn protect(&self, space: &Space<P>, range: PageRange, protection: Protection) -> Result<(), MmError> {
        let rights = protection.rights();
        let mut map = space.map().write();
        let range = whole_stack(&map, range, protection)?;
        let (part, result) = self.permitted(&mut map, range, rights);
        let reserved = self.reserve_splits(&mut map, part, |vma| vma.rights() != rights);
        if reserved.is_err() || part.is_empty() {
            self.settle_charge(&mut map);
            return reserved.and(result);
        }
        let locked = match self.locked_to_write(&map, part, rights) {
            Ok(locked) => locked,
            Err(error) => {
                self.settle_charge(&mut map);
                return Err(error);
            }
        };
        let mut gather = Gather::new(&self.tlb, space.table().context());
        self.protect_reserved(space, &mut map, part, rights, &mut gather);
        self.settle_charge(&mut map);
        // INV-MM-REDUCED: no CPU has a right that the call removed when it returns, nor when
        // another operation sees the changed mapping.
        plant!(ProtectFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        for part in locked {
            self.populate_range(space, part, VmFlags::LOCKED);
        }
        result
    }

    /// Returns the first part of `range`, which may have `rights`, and the error that ends it.
    ///
    /// Charges the pages of that part that become accountable.
    fn permitted(&self, map: &mut AddressMap<P>, range: PageRange, rights: Rights) -> (PageRange, Result<(), MmError>) {
        let (mut at, mut data, mut charged) = (range.start(), 0, 0);
        let mut result = Ok(());
        for (start, vma) in map.overlapping(range) {
            if VirtAddr::from_page_index(start) > at {
                break;
            }
            let end = VirtAddr::from_page_index(vma.end()).min(range.end());
            let pages = end.since(at) / PAGE_SIZE;
            result = may_change(map, vma, PageRange::new(at, end), rights, data);
            if result.is_err() {
                break;
            }
            if !vma.flags().contains(VmFlags::ACCOUNT) && vma.flags_with(rights).contains(VmFlags::ACCOUNT) {
                result = self.account_pages(Some(map), pages);
                if result.is_err() {
                    break;
                }
                charged += pages;
            }
            data += if is_data(vma.flags(), rights) && !is_data(vma.flags(), vma.rights()) { pages } else { 0 };
            at = end;
        }
        map.charged += charged;
        if result.is_ok() && at < range.end() {
            result = Err(MmError::NotMapped { at });
        }
        (PageRange::new(range.start(), at), result)
    }

    /// Returns the parts of `range` that are locked and private and become writable.
    ///
    /// The caller populates them, so that their pages are copied now instead of by later stores.
    fn locked_to_write(
        &self,
        map: &AddressMap<P>,
        range: PageRange,
        rights: Rights,
    ) -> Result<Vec<PageRange>, MmError> {
        let becomes = |vma: &Vma<P>| {
            vma.flags().contains(VmFlags::LOCKED) && !vma.is_shared() && !vma.rights().contains(Rights::WRITE)
        };
        let parts = || {
            let found = map.overlapping(range).filter(|(_, vma)| rights.contains(Rights::WRITE) && becomes(vma));
            found.filter_map(|(start, vma)| vma.range(start).intersect(range))
        };
        let (mut list, wanted) = (Vec::new(), parts().count());
        if wanted > 0 && (!self.permit() || list.try_reserve_exact(wanted).is_err()) {
            return Err(MmError::NoKernelMemory { wanted });
        }
        list.extend(parts());
        Ok(list)
    }

    fn protect_reserved(
        &self,
        space: &Space<P>,
        map: &mut HeldMap<'_, P>,
        range: PageRange,
        rights: Rights,
        gather: &mut Gather<'_, P>,
    ) {
        // The rights that every entry keeps; some lose the write bit (`Vma::leaf_rights`).
        let left = rights.readable() - Rights::WRITE;
        self.declare_reduced(space, range, left);
        let mut next = range.start();
        while let Some((start, vma)) = map.find_or_after(next)
            && start < range.end().page_index()
        {
            next = VirtAddr::from_page_index(vma.end());
            let part = vma.range(start).intersect(range);
            let Some(part) = part.filter(|_| vma.rights() != rights) else { continue };
            map.split_out(part);
            map.set_rights(part.start().page_index(), rights);
            if let Some((_, vma)) = map.find(part.start()) {
                // `reserve_splits` has broken what was shared.
                self.protect_entries(map.tables(&self.tlb).owned(part), vma, part, gather);
            }
            map.merge_over(part);
        }
    }

    /// Changes the entries of a mapping to its rights (`change_protection`).
    fn protect_entries(&self, tables: OwnTables<'_, P>, vma: &Vma<P>, part: PageRange, gather: &mut Gather<'_, P>) {
        for (table, part) in tables.locked(part, vma.mlocked()) {
            table.protect_run(part, |_, flags| vma.leaf_rights(flags), gather);
        }
    }
}

/// Returns `range`, extended to the start of its stack if `protection` says so.
///
/// Linux: `do_mprotect_pkey`.
fn whole_stack<P: Platform>(
    map: &AddressMap<P>,
    range: PageRange,
    protection: Protection,
) -> Result<PageRange, MmError> {
    if !protection.intersects(Protection::GROWS) {
        return Ok(range);
    }
    let Some((start, vma)) = map.overlapping(range).next() else {
        return Err(MmError::NotMapped { at: range.start() });
    };
    let start = VirtAddr::from_page_index(start);
    if protection.contains(Protection::GROWSUP) && start > range.start() {
        return Err(MmError::NotMapped { at: range.start() });
    }
    // No stack grows up on these instruction sets.
    if protection.contains(Protection::GROWSUP) || !vma.grows_down() {
        return Err(MmError::BadFlags { flags: protection.bits() });
    }
    Ok(PageRange::new(start, range.end()))
}

/// Checks that a mapping may have `rights` in `part` (`mprotect_fixup`).
///
/// `data` is the number of pages that the call has turned into data so far.
fn may_change<P: Platform>(
    map: &AddressMap<P>,
    vma: &Vma<P>,
    part: PageRange,
    rights: Rights,
    data: u64,
) -> Result<(), MmError> {
    if !vma.max_rights().contains(rights) {
        return Err(MmError::Forbidden { rights, max: vma.max_rights() });
    }
    if vma.flags().contains(VmFlags::SEALED) {
        return Err(MmError::Sealed { at: part.start() });
    }
    // Only pages that become data are checked, and only if no limit is exceeded already.
    let becomes_data = is_data(vma.flags(), rights) && !is_data(vma.flags(), vma.rights());
    if becomes_data && map.may_grow(vma.flags(), vma.rights(), part.pages(), 0).is_ok() {
        return map.may_have_data(part.pages() + data);
    }
    Ok(())
}
