//! Clears the entries of a range (`zap_page_range`, `unmap_page_range`).

use crate::mm::Mm;
use crate::rmap::MappingDelta;
use crate::space::{Space, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{Entry, LeafFlags, SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::LockedTable;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{PageRange, Rights, VirtAddr};

/// Which entries of a range to clear (`struct zap_details`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zap {
    /// All, because the mapping is removed.
    Everything,
    /// All, because the space has ended and no CPU will run it.
    ///
    /// No loss of rights is declared.
    SpaceEnd,
    /// Pages and swap entries, but not markers, which belong to the mapping.
    Pages,
    /// Pages of files only, but not private copies, swap entries and markers.
    FilePages,
}

impl<P: Platform> Mm<P> {
    /// Clears all entries of `range`, which is in the mapping `vma`.
    ///
    /// `gather` absorbs the references and the flush that is owed. The caller holds the space's
    /// `map` lock.
    pub(crate) fn zap<'a>(&'a self, space: &'a Space<P>, vma: &Vma<P>, range: PageRange, gather: &mut Gather<'a, P>) {
        self.zap_only(space, (vma, Zap::Everything), range, gather);
    }

    /// Clears the entries of `range` that `what` selects in a mapping.
    pub(crate) fn zap_only<'a>(
        &'a self,
        space: &'a Space<P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        gather: &mut Gather<'a, P>,
    ) {
        match what.1 {
            Zap::Everything | Zap::Pages => self.declare_reduced(space, range, Rights::empty()),
            Zap::SpaceEnd | Zap::FilePages => {}
        }
        space.rss().note_peak();
        for (table, part) in space.table().locked_tables(&self.tlb, range) {
            let mut delta = MappingDelta::default();
            for va in table.entries(part) {
                self.zap_entry(space, &table, va, what, &mut delta, gather);
            }
            self.account_unmapped(space, &delta);
            gather.publish();
        }
    }

    /// Clears one entry.
    ///
    /// The caller has recorded the peak of the resident set. It has declared the loss of rights,
    /// too, except for [`Zap::FilePages`], where only this function knows which entries lose them.
    #[inline]
    pub(in crate::space) fn zap_entry<'a>(
        &'a self,
        space: &'a Space<P>,
        table: &LockedTable<'a, P>,
        va: VirtAddr,
        (vma, what): (&Vma<P>, Zap),
        delta: &mut MappingDelta,
        gather: &mut Gather<'a, P>,
    ) {
        if what == Zap::FilePages {
            if !self.is_file_page(table, va) {
                return;
            }
            self.declare_reduced(space, PageRange::page(va), Rights::empty());
        }
        if let Some(debt) = table.take(va) {
            if !debt.detached().is_special() {
                let leaf = debt.detached().leaf();
                self.uncount_mapping(leaf, delta);
                let folio = self.frames().folio(leaf.pfn);
                self.munlock_vma_folio(vma.flags(), folio);
                // As in Linux. If reclaim is writing a page of shared memory, the flag keeps
                // reclaim from freeing it.
                if leaf.flags.contains(LeafFlags::DIRTY) && !folio.is_anon() {
                    folio.set_flags(FolioFlags::DIRTY);
                }
                self.free_swap_cache(folio);
            }
            gather.absorb(debt);
        } else if let Entry::Soft(soft) = table.entry(va) {
            self.zap_soft(space, table, va, soft, what);
        }
    }

    /// Clears a swap entry, or a marker if `what` selects it.
    pub(in crate::space) fn zap_soft(
        &self,
        space: &Space<P>,
        table: &LockedTable<'_, P>,
        va: VirtAddr,
        soft: SoftEntry,
        what: Zap,
    ) {
        match soft.kind {
            SoftKind::Marker if matches!(what, Zap::Everything | Zap::SpaceEnd) => {
                table.take_soft(va);
            }
            SoftKind::Swap => {
                table.take_soft(va);
                space.rss().sub_swapped(1);
                plant!(SwapSlotKept => return);
                if let Some(swapped) = SwapPte::decode(soft) {
                    self.swap_release(swapped.entry);
                }
            }
            SoftKind::Marker | SoftKind::MigrationRead | SoftKind::MigrationWrite | SoftKind::InTransition => {}
        }
    }

    fn is_file_page(&self, table: &LockedTable<'_, P>, va: VirtAddr) -> bool {
        let folio = table.leaf(va).and_then(|leaf| self.vm_normal_folio(leaf));
        folio.is_some_and(|folio| !folio.is_anon())
    }
}
