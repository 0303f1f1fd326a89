//! `/proc/PID/clear_refs`: clears accessed or soft-dirty bits (`clear_refs_write`).
//!
//! **INV-SOFT-DIRTY** A page is reported as soft-dirty if it was stored to, mapped, or pinned for
//! writing since soft-dirty bits were cleared.
//!
//! Clearing removes the soft-dirty bit and the write bit from every leaf, so that the next store
//! faults. An operation that makes a leaf writable again sets the soft-dirty bit, or leaves the
//! leaf read-only for the fault to do so.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{Isa, LeafFlags};
use pagewright_sync::{FullBarrier, Platform};
use pagewright_table::{EntryRun, EntryView, LeafView};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Rights, VirtAddr};

/// What to clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearRefs {
    /// The accessed bits of all pages.
    All,
    /// The accessed bits of anonymous mappings.
    Anon,
    /// The accessed bits of file mappings.
    Mapped,
    /// The soft-dirty bits of all pages.
    SoftDirty,
    /// The peak of the resident set, which becomes its present size.
    Peak,
}

impl ClearRefs {
    /// What a program names by `number`, counted from 1 (`enum clear_refs_types`).
    pub fn from_raw(number: u8) -> Option<Self> {
        let all = [Self::All, Self::Anon, Self::Mapped, Self::SoftDirty, Self::Peak];
        all.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl<P: Platform> Mm<P> {
    /// Clears what `what` names, in all of `space`.
    ///
    /// # Errors
    /// [`MmError::NoFrames`] for tables that other spaces share, of the soft-dirty bits alone;
    /// nothing has changed.
    pub fn clear_refs(&self, space: &Space<P>, what: ClearRefs) -> Result<(), MmError> {
        self.declare_return_of(|| {
            match what {
                ClearRefs::All => self.clear_accessed(space, |_| true),
                ClearRefs::Anon => self.clear_accessed(space, |vma| vma.file().is_none()),
                ClearRefs::Mapped => self.clear_accessed(space, |vma| vma.file().is_some()),
                ClearRefs::SoftDirty => return self.clear_soft_dirty(space),
                ClearRefs::Peak => self.rss(space).reset_peak(),
            }
            Ok(())
        })
    }

    /// Clears accessed bits, those of shared tables for every space that shares them.
    fn clear_accessed(&self, space: &Space<P>, selects: impl Fn(&Vma<P>) -> bool) {
        let map = space.map().read();
        let tables = map.tables(&self.tlb);
        let token = tables.family_token();
        for (start, vma) in map.iter().filter(|(_, vma)| selects(vma)) {
            for (table, part) in tables.locked_for_all(vma.range(start), token.as_ref()) {
                for va in table.entries(part) {
                    let Some(leaf) = table.leaf(va) else { continue };
                    if let Some(folio) = self.vm_normal_folio(leaf) {
                        folio.clear_flags(FolioFlags::REFERENCED | FolioFlags::YOUNG);
                    }
                    let old = |leaf: LeafView| leaf.without(LeafFlags::ACCESSED);
                    // Clearing the accessed bit owes no flush: a stale TLB entry only delays the
                    // next setting of the bit.
                    if let Some(debt) = table.run(vma.mlocked()).protect(va, old) {
                        debt.settle();
                    }
                }
            }
        }
    }

    fn clear_soft_dirty(&self, space: &Space<P>) -> Result<(), MmError> {
        let mut map = space.map().write();
        self.own_tables(map.tables(&self.tlb), P::Isa::USER)?;
        let mut gather = Gather::new(&self.tlb, space.table().context());
        let mut next = VirtAddr::ZERO;
        while let Some((start, vma)) = map.find_or_after(next) {
            let range = vma.range(start);
            let cow = !vma.is_shared();
            let flags = vma.flags() - VmFlags::SOFTDIRTY;
            self.declare_reduced(space, range, (vma.rights() - Rights::WRITE) | Rights::READ);
            map.change(start, |vma| vma.set_flags(flags));
            let Some((_, vma)) = map.find(range.start()) else { break };
            for (table, part) in map.tables(&self.tlb).owned(range).locked(range, vma.mlocked()) {
                gather.meet(table.table());
                let mut run = table.run(vma.mlocked());
                table.entries(part).for_each(|va| self.clear_soft_dirty_entry(&mut run, va, cow, &mut gather));
            }
            next = range.end();
        }
        // INV-TLB-RACE.
        gather.settle();
        drop(map);
        Ok(())
    }

    /// Clears the soft-dirty bit of an entry and its right to store; `cow` if it is private memory.
    fn clear_soft_dirty_entry(
        &self,
        run: &mut EntryRun<'_, '_, P>,
        va: VirtAddr,
        cow: bool,
        gather: &mut Gather<'_, P>,
    ) {
        let leaf = match run.table().entry(va) {
            EntryView::Leaf(leaf) => leaf,
            EntryView::Soft(soft) => {
                if let Some(page) = SwapPte::decode(soft) {
                    run.change_soft(va, SwapPte { soft_dirty: false, ..page }.encode());
                }
                return;
            }
            EntryView::Empty | EntryView::Table => return,
        };
        // A page that may be pinned stays writable and soft-dirty, because the holder of the pin
        // may write it (`pte_is_pinned`).
        let writable = cow && leaf.rights().contains(Rights::WRITE);
        let folio = || self.frames().folio(leaf.pfn());
        if writable && folio().maybe_pinned() {
            return;
        }
        let clean = |leaf: LeafView| leaf.with_rights(leaf.rights() - Rights::WRITE).without(LeafFlags::SOFT_DIRTY);
        if let Some(debt) = run.protect(va, clean) {
            gather.absorb(debt);
        }
        if writable {
            // Checks for pins again; Linux checks only before the update. The barrier pairs with
            // the one in `gup::fast` between the pin and the second read of the entry.
            let barrier = FullBarrier::execute();
            let restored = |now: LeafView| now.with_rights(leaf.rights()).with(LeafFlags::SOFT_DIRTY);
            if folio().maybe_pinned_after(barrier)
                && let Some(debt) = run.protect(va, restored)
            {
                gather.absorb(debt);
            }
        }
    }
}
