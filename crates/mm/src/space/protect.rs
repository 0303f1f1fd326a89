//! `mprotect(2)`.

use super::Space;
use super::vma::{VmFlags, Vma};
use super::vmas::AddressMap;
use crate::error::MmError;
use crate::knobs::Knob;
use crate::mm::Mm;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_tlb::Gather;
use pagewright_types::{PageRange, Rights, VirtAddr, plant};

impl<P: Platform> Mm<P> {
    /// Changes the rights of `len` bytes at `addr`, rounded up to pages.
    ///
    /// # Errors
    /// [`MmError`]. As in Linux, the mappings before a hole, or before one that can't have the rights, have been changed when the call
    /// fails with `ENOMEM` or `EACCES` for that reason; for any other error nothing has.
    pub fn mprotect(&self, space: &Space<P>, addr: VirtAddr, len: u64, rights: Rights) -> Result<(), MmError> {
        let range = PageRange::from_len(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.call(|| self.protect(space, range, rights))
    }

    fn protect(&self, space: &Space<P>, range: PageRange, rights: Rights) -> Result<(), MmError> {
        let mut map = space.map().write();
        let (part, outcome) = permitted(&map, range, rights);
        if !part.is_empty() {
            self.reserve_protect(&mut map, part, rights)?;
            let mut gather = Gather::new(&self.tlb, space.table().context());
            self.protect_reserved(space, &mut map, part, rights, &mut gather);
            // INV-MM-REDUCED: no CPU holds a right that the call took away when it returns, nor when somebody else finds the
            // mapping changed.
            plant!(ProtectFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        }
        outcome
    }

    fn reserve_protect(&self, map: &mut AddressMap<P>, range: PageRange, rights: Rights) -> Result<(), MmError> {
        let limit = self.knobs.get(Knob::MaxMapCount);
        let splits = [range.start(), range.end()]
            .iter()
            .filter(|&&at| {
                let cut = map.find(at);
                cut.is_some_and(|(start, vma)| start != at.page_index() && vma.rights() != rights)
            })
            .count();
        if map.len() + splits > limit as usize {
            return Err(MmError::TooManyMappings { limit });
        }
        map.reserve(self, 2)
    }

    fn protect_reserved<'a>(
        &'a self,
        space: &'a Space<P>,
        map: &mut AddressMap<P>,
        range: PageRange,
        rights: Rights,
        gather: &mut Gather<'a, P>,
    ) {
        // Whatever can be stored to can be loaded from, and whatever has a right at all.
        let left = if rights.is_empty() { rights } else { rights | Rights::READ };
        self.reduce(space, range, left);
        map.split_at(range.start());
        map.split_at(range.end());
        let mut at = range.start().page_index();
        while let Some((start, vma)) = map.find_or_after(VirtAddr::from_page_index(at))
            && start < range.end().page_index()
        {
            at = vma.end();
            if vma.rights() == rights {
                continue;
            }
            map.set_rights(start, rights);
            if let Some((start, vma)) = map.find(VirtAddr::from_page_index(start)) {
                self.protect_entries(space, start, vma, gather);
            }
        }
        map.merge_over(range);
    }

    /// Brings the entries under a mapping in line with its rights (`change_protection`).
    fn protect_entries<'a>(&'a self, space: &'a Space<P>, start: u64, vma: &Vma<P>, gather: &mut Gather<'a, P>) {
        let mut known = if vma.is_shared() { LeafFlags::DIRTY } else { LeafFlags::EXCLUSIVE };
        // Where stores are told, each page's first must be noticed.
        known.set(LeafFlags::SOFT_DIRTY, !vma.flags().contains(VmFlags::SOFTDIRTY));
        let rights = vma.rights();
        let edit = |leaf: Leaf| Leaf { rights: leaf_rights(leaf, rights, known), ..leaf };
        for (table, part) in space.table().tables(&self.tlb, vma.range(start)) {
            let step = table.level().span();
            let mut va = part.start();
            while va < part.end() {
                if let Some(debt) = table.update(va, edit) {
                    gather.absorb(debt);
                }
                va = va.align_down(step).add(step);
            }
        }
    }
}

/// What a leaf may allow under a mapping with `rights` (`can_change_pte_writable`): a store that must first be noticed – on a page that is
/// not the space's own, or that its file does not know to be dirty, or that was not told as written to – still faults. `known` are the
/// flags that say it was noticed.
fn leaf_rights(leaf: Leaf, rights: Rights, known: LeafFlags) -> Rights {
    if leaf.flags.contains(known) { rights } else { rights - Rights::WRITE }
}

/// The part of `range`, from its start, that may get `rights`, and what stops it there.
fn permitted<P: Platform>(map: &AddressMap<P>, range: PageRange, rights: Rights) -> (PageRange, Result<(), MmError>) {
    let mut at = range.start();
    for (start, vma) in map.overlapping(range) {
        if VirtAddr::from_page_index(start) > at {
            break;
        }
        if !vma.most().contains(rights) {
            let error = MmError::Forbidden { rights, most: vma.most() };
            return (PageRange::new(range.start(), at), Err(error));
        }
        at = VirtAddr::from_page_index(vma.end()).min(range.end());
    }
    let outcome = if at < range.end() { Err(MmError::NotMapped { at }) } else { Ok(()) };
    (PageRange::new(range.start(), at), outcome)
}
