//! Clears the entries of a range (`zap_page_range`, `unmap_page_range`).

use crate::mm::Mm;
use crate::space::{Space, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryRun, EntryView, LockedTable, Tables};
use pagewright_tlb::Gather;
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
    /// Clears the entries of `range` that `what` selects, in one mapping.
    ///
    /// `gather` absorbs the references and the flush that is owed.
    pub(crate) fn zap(
        &self,
        space: &Space<P>,
        tables: Tables<'_, P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        match what.1 {
            Zap::Everything | Zap::Pages => self.declare_reduced(space, range, Rights::empty()),
            Zap::SpaceEnd | Zap::FilePages => {}
        }
        for (table, part) in tables.locked(range) {
            let mut run = table.run(what.0.mlocked());
            for va in table.entries(part) {
                self.zap_entry(space, &mut run, va, what.1, gather);
            }
            drop(run);
            gather.publish();
        }
    }

    /// Clears one entry.
    ///
    /// The caller has declared the loss of rights, except for [`Zap::FilePages`], where only this
    /// function knows which entries lose them.
    #[inline]
    pub(in crate::space) fn zap_entry(
        &self,
        space: &Space<P>,
        run: &mut EntryRun<'_, '_, P>,
        va: VirtAddr,
        what: Zap,
        gather: &mut Gather<'_, P>,
    ) {
        if what == Zap::FilePages {
            if !self.is_file_page(run.table(), va) {
                return;
            }
            self.declare_reduced(space, PageRange::page(va), Rights::empty());
        }
        if let Some(debt) = run.unmap(va) {
            if let Some(folio) = debt.detached().folio() {
                self.free_swap_cache(self.frames().folio_of(folio));
            }
            gather.absorb(debt);
        } else if let EntryView::Soft(soft) = run.table().entry(va) {
            self.zap_soft(run, va, soft, what);
        }
    }

    /// Clears a swap entry, or a marker if `what` selects it.
    pub(in crate::space) fn zap_soft(&self, run: &mut EntryRun<'_, '_, P>, va: VirtAddr, soft: SoftEntry, what: Zap) {
        match soft.kind {
            SoftKind::Marker if matches!(what, Zap::Everything | Zap::SpaceEnd) => {
                run.unmap_soft(va);
            }
            SoftKind::Swap => {
                run.unmap_soft(va);
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
