//! `mprotect(2)`.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::call::Protection;
use crate::space::vma::AddressMap;
use crate::space::vma::Vma;
use crate::space::{Space, VmFlags, is_data};
use alloc::vec::Vec;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Changes the rights of `len` bytes at `addr`, rounded up to pages; with
    /// [`Protection::GROWSDOWN`], from the start of the stack that has the first of them.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, the mappings before a hole, or before one that can't have the
    /// rights, have been changed when the call fails with `ENOMEM` or `EACCES` for that reason; for
    /// any other error nothing has.
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
        self.call(|| self.protect(space, range, protection))
    }

    fn protect(&self, space: &Space<P>, range: PageRange, protection: Protection) -> Result<(), MmError> {
        let rights = protection.rights();
        let mut map = space.map().write();
        let range = whole_stack(&map, range, protection)?;
        let (part, outcome) = self.permitted(&mut map, range, rights);
        let reserved = self.reserve_splits(&mut map, part, |vma| vma.rights() != rights);
        if reserved.is_err() || part.is_empty() {
            self.settle_charge(&mut map);
            return reserved.and(outcome);
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
        // INV-MM-REDUCED: no CPU holds a right that the call took away when it returns, nor when
        // somebody else finds the mapping changed.
        plant!(ProtectFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        for part in locked {
            self.populate_what_can_be(space, part, VmFlags::LOCKED);
        }
        outcome
    }

    /// The part of `range`, from its start, that may get `rights`, and what stops it there.
    ///
    /// What it will be charged for is charged.
    fn permitted(&self, map: &mut AddressMap<P>, range: PageRange, rights: Rights) -> (PageRange, Result<(), MmError>) {
        let (mut at, mut data, mut paid) = (range.start(), 0, 0);
        let mut outcome = Ok(());
        for (start, vma) in map.overlapping(range) {
            if VirtAddr::from_page_index(start) > at {
                break;
            }
            let end = VirtAddr::from_page_index(vma.end()).min(range.end());
            let pages = end.since(at) / PAGE_SIZE;
            outcome = may_change(map, vma, PageRange::new(at, end), rights, data);
            if outcome.is_err() {
                break;
            }
            if !vma.flags().contains(VmFlags::ACCOUNT) && vma.flags_with(rights).contains(VmFlags::ACCOUNT) {
                outcome = self.promise(Some(map), pages);
                if outcome.is_err() {
                    break;
                }
                paid += pages;
            }
            data += if is_data(vma.flags(), rights) && !is_data(vma.flags(), vma.rights()) { pages } else { 0 };
            at = end;
        }
        map.paid += paid;
        if outcome.is_ok() && at < range.end() {
            outcome = Err(MmError::NotMapped { at });
        }
        (PageRange::new(range.start(), at), outcome)
    }

    /// The parts of `range` that are locked, private and writable from now on: their pages are
    /// copied now and not when they are stored to.
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

    fn protect_reserved<'a>(
        &'a self,
        space: &'a Space<P>,
        map: &mut AddressMap<P>,
        range: PageRange,
        rights: Rights,
        gather: &mut Gather<'a, P>,
    ) {
        // What every entry keeps: stores may have to be noticed first ([`leaf_rights`]).
        let left = readable(rights) - Rights::WRITE;
        self.reduce(space, range, left);
        let mut next = range.start();
        while let Some((start, vma)) = map.find_or_after(next)
            && start < range.end().page_index()
        {
            next = VirtAddr::from_page_index(vma.end());
            let part = vma.range(start).intersect(range);
            let Some(part) = part.filter(|_| vma.rights() != rights) else { continue };
            map.cut_out(part);
            map.set_rights(part.start().page_index(), rights);
            if let Some((start, vma)) = map.find(part.start()) {
                self.protect_entries(space, start, vma, gather);
            }
            map.merge_over(part);
        }
    }

    /// Brings the entries under a mapping in line with its rights (`change_protection`).
    fn protect_entries<'a>(&'a self, space: &'a Space<P>, start: u64, vma: &Vma<P>, gather: &mut Gather<'a, P>) {
        let mut known = if vma.is_shared() { LeafFlags::DIRTY } else { LeafFlags::EXCLUSIVE };
        // Where stores are told, each page's first must be noticed.
        known.set(LeafFlags::SOFT_DIRTY, !vma.flags().contains(VmFlags::SOFTDIRTY));
        let rights = vma.rights();
        let edit = |leaf: Leaf| Leaf { rights: leaf_rights(leaf, rights, known), ..leaf };
        for (table, part) in space.table().locked_tables(&self.tlb, vma.range(start)) {
            for va in table.entries(part) {
                if let Some(debt) = table.update(va, edit) {
                    gather.absorb(debt);
                }
            }
        }
    }
}

/// `range`, or with it all of the stack in which it begins (`do_mprotect_pkey`).
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

/// What a leaf may allow under a mapping with `rights` (`can_change_pte_writable`): a store that
/// must first be noticed – on a page that is not the space's own, or that its file does not know to
/// be dirty, or that was not told as written to – still faults. `known` are the flags that say it
/// was noticed.
fn leaf_rights(leaf: Leaf, rights: Rights, known: LeafFlags) -> Rights {
    let rights = readable(rights);
    if leaf.flags.contains(known) { rights } else { rights - Rights::WRITE }
}

/// Whatever has a right at all can be read.
fn readable(rights: Rights) -> Rights {
    if rights.is_empty() { rights } else { rights | Rights::READ }
}

/// Whether a mapping may have `rights` in `part`, where the call has made data of `data` pages so
/// far (`mprotect_fixup`).
fn may_change<P: Platform>(
    map: &AddressMap<P>,
    vma: &Vma<P>,
    part: PageRange,
    rights: Rights,
    data: u64,
) -> Result<(), MmError> {
    if !vma.most().contains(rights) {
        return Err(MmError::Forbidden { rights, most: vma.most() });
    }
    if vma.flags().contains(VmFlags::SEALED) {
        return Err(MmError::Sealed { at: part.start() });
    }
    // Only what turns into data is asked for, and not where another limit is passed as it is.
    let becomes_data = is_data(vma.flags(), rights) && !is_data(vma.flags(), vma.rights());
    if becomes_data && map.may_grow(vma.flags(), vma.rights(), part.pages(), 0).is_ok() {
        return map.may_have_data(part.pages() + data);
    }
    Ok(())
}
