//! Advice that acts on the pages of a mapping and does not change the mapping.

use super::{Advice, Walk, check};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::{Space, Vma};
use pagewright_arch::{Entry, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::LockedTable;
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Counter, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    pub(super) fn advise_pages(&self, space: &Space<P>, range: PageRange, advice: Advice) -> Result<(), MmError> {
        // As in Linux, holding the lock for reading is enough: no mapping changes, and concurrent
        // faults lock the same tables.
        let map = space.map().read();
        let context = space.table().context();
        let mut gather =
            plant!(ZapNotConcurrent; Gather::new(&self.tlb, context), Gather::concurrent(&self.tlb, context));
        let mut walk = Walk::over(range);
        let mut result = Ok(());
        while let Some((vma, _, part)) = walk.next(&map) {
            result =
                check(vma, part.start(), advice).and_then(|()| self.advise_part(space, vma, part, advice, &mut gather));
            if result.is_err() {
                break;
            }
        }
        // INV-TLB-RACE: the flush completes before the `map` lock is released, so a later holder
        // that finds an entry cleared depends on no stale one.
        plant!(ZapFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        result.and_then(|()| walk.finish())
    }

    fn advise_part<'a>(
        &'a self,
        space: &'a Space<P>,
        vma: &Vma<P>,
        part: PageRange,
        advice: Advice,
        gather: &mut Gather<'a, P>,
    ) -> Result<(), MmError> {
        match advice {
            Advice::DontNeed | Advice::DontNeedLocked => {
                self.zap_only(space, (vma, Zap::Pages), part, gather);
            }
            Advice::Free => self.free_lazily(space, part, gather),
            Advice::GuardInstall => return self.install_guards(space, vma, part, gather),
            Advice::GuardRemove => self.remove_guards(space, part),
            Advice::Normal
            | Advice::Random
            | Advice::Sequential
            | Advice::WillNeed
            | Advice::Remove
            | Advice::Cold
            | Advice::PageOut
            | Advice::DontFork
            | Advice::DoFork
            | Advice::DontDump
            | Advice::DoDump
            | Advice::WipeOnFork
            | Advice::KeepOnFork
            | Advice::PopulateRead
            | Advice::PopulateWrite => unreachable!("{advice:?} does not act on single pages"),
        }
        Ok(())
    }

    /// Makes pages of a private anonymous mapping clean, so that reclaim may discard them.
    ///
    /// A later store makes the entry dirty again, and reclaim then keeps the page.
    ///
    /// Linux: `madvise_free_pte_range`.
    fn free_lazily<'a>(&'a self, space: &'a Space<P>, part: PageRange, gather: &mut Gather<'a, P>) {
        for (table, under) in space.table().locked_tables(&self.tlb, part) {
            for va in table.entries(under) {
                self.free_one_lazily(space, &table, va, gather);
            }
            gather.publish();
        }
    }

    fn free_one_lazily<'a>(
        &'a self,
        space: &Space<P>,
        table: &LockedTable<'a, P>,
        va: VirtAddr,
        gather: &mut Gather<'a, P>,
    ) {
        // A page in swap is discarded at once, because keeping it would save no work.
        if let Entry::Soft(soft) = table.entry(va) {
            return self.zap_soft(space, table, va, soft, Zap::Pages);
        }
        let Some(leaf) = table.leaf(va) else { return };
        let Some(folio) = self.vm_normal_folio(leaf) else { return };
        if folio.flags().intersects(FolioFlags::DIRTY | FolioFlags::SWAPCACHE) && !self.make_clean(folio) {
            return;
        }
        // A page that was copied for a pin has a clean entry. If fork has shared it since, the
        // entries of both spaces are clean, and neither shows that its space needs the contents.
        if !leaf.flags.contains(LeafFlags::DIRTY) && folio.mapcount() > 1 {
            return;
        }
        let touched = LeafFlags::ACCESSED | LeafFlags::DIRTY;
        if let Some(debt) = table.update(va, |leaf| Leaf { flags: leaf.flags - touched, ..leaf }) {
            plant!(LazyFreeNoFlush; core::mem::forget(debt), gather.absorb(debt));
        }
        if folio.flags().contains(FolioFlags::SWAPBACKED) {
            // On the inactive file list, reclaim finds it early (`lru_lazyfree`).
            let clear = FolioFlags::SWAPBACKED | FolioFlags::ACTIVE | FolioFlags::REFERENCED;
            let before = self.frames().lru_move(folio, FolioFlags::empty(), clear);
            if before.contains(FolioFlags::SWAPBACKED) {
                self.tlb.count(Counter::PgLazyFree, 1);
            }
        }
    }

    /// Makes a page clean and frees its swap slot, which may have older contents or none.
    ///
    /// Returns false if other entries map the page, if reclaim is writing it, or if its lock is
    /// contended. The caller holds the lock of the table.
    fn make_clean(&self, folio: Folio<'_>) -> bool {
        let Some(lock) = folio.try_lock() else { return false };
        // Another mapping may need the contents.
        let alone = folio.mapcount() == 1;
        if alone {
            self.free_swap(folio);
        }
        let clean = alone && !folio.flags().contains(FolioFlags::SWAPCACHE);
        if clean {
            folio.clear_flags(FolioFlags::DIRTY);
        }
        drop(lock);
        clean
    }
}
