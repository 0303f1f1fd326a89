//! Clearing the entries under a range (`zap_page_range`, `unmap_page_range`).

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

/// What goes of what stands under a range (`struct zap_details`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zap {
    /// Everything, because the mapping goes.
    Everything,
    /// Pages.
    ///
    /// Markers stay: they say something about the mapping.
    Pages,
    /// Pages of files.
    ///
    /// A private mapping's own copies stay, and so do markers.
    FilePages,
}

impl<P: Platform> Mm<P> {
    /// Clears everything under `range`, which is of one mapping.
    ///
    /// References and the flush ride in `gather`. The caller holds the space.
    pub(crate) fn zap<'a>(&'a self, space: &'a Space<P>, vma: &Vma<P>, range: PageRange, gather: &mut Gather<'a, P>) {
        self.zap_only(space, (vma, Zap::Everything), range, gather);
    }

    /// Clears what `what` says of a mapping under `range`.
    pub(crate) fn zap_only<'a>(
        &'a self,
        space: &'a Space<P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        gather: &mut Gather<'a, P>,
    ) {
        if what.1 != Zap::FilePages {
            self.reduce(space, range, Rights::empty());
        }
        self.zap_entries(space, what, range, gather);
    }

    /// The same for a space that nobody runs and nobody will: what it could do is not reduced but
    /// over.
    pub(in crate::space) fn zap_at_end<'a>(
        &'a self,
        space: &'a Space<P>,
        vma: &Vma<P>,
        range: PageRange,
        gather: &mut Gather<'a, P>,
    ) {
        self.zap_entries(space, (vma, Zap::Everything), range, gather);
    }

    fn zap_entries<'a>(
        &'a self,
        space: &'a Space<P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        gather: &mut Gather<'a, P>,
    ) {
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
    /// The peak was noted, and what goes was declared; but for [`Zap::FilePages`], of which that is
    /// known only here.
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
            self.reduce(space, PageRange::page(va), Rights::empty());
        }
        if let Some(debt) = table.take(va) {
            if !debt.detached().is_special() {
                let leaf = debt.detached().leaf();
                self.uncount_mapping(leaf, delta);
                let folio = self.frames().folio(leaf.pfn);
                self.munlock_vma_folio(vma.flags(), folio);
                // As in Linux; a page of shared memory may be on its way out, which whoever stored
                // to it must stop.
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

    /// Clears an entry of a page that is not mapped, if it goes (`madvise_free_pte_range`, too).
    pub(in crate::space) fn zap_soft(
        &self,
        space: &Space<P>,
        table: &LockedTable<'_, P>,
        va: VirtAddr,
        soft: SoftEntry,
        what: Zap,
    ) {
        match soft.kind {
            SoftKind::Marker if what == Zap::Everything => {
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
