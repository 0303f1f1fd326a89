//! Advice that acts on the pages of a mapping and does not change the mapping.
//!
//! **INV-TLB-RACE** An operation that clears entries while other operations may read the space
//! holds the space until the entries are flushed. So an operation that then acquires the space
//! exclusively and finds an entry cleared finds it flushed, too.
//!
//! **INV-LAZYFREE-WHOLE** `MADV_FREE` of a part of a large folio lets reclaim discard that part
//! alone. The folio is split first, or stays as it is.

use super::{Advice, Walk, check};
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::zap::Zap;
use crate::space::{Space, Vma};
use crate::thp::WholeFolios;
use core::cell::Cell;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryRun, EntryView, OwnTables};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Counter, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Applies `Free`; a large folio that the range cuts is split first.
    ///
    /// It is split between two passes, because that needs the locks of all spaces that map it.
    pub(super) fn advise_free(&self, space: &Space<P>, range: PageRange, advice: Advice) -> Result<(), MmError> {
        let missed_large = Cell::new(false);
        let pass = || {
            self.advise_pages(space, range, advice, |own, vma, part, gather| {
                missed_large.set(self.free_lazily(own, vma, part, gather) || missed_large.get());
                Ok(())
            })
        };
        let result = pass();
        if !missed_large.get() {
            return result;
        }
        let (mut walk, mut split) = (Walk::over(range), false);
        while let Ok(Some(part)) = walk.next_unlocked(space, advice, |_, _, part| part) {
            split |= self.split_cut_folios(space, part);
        }
        if split { pass() } else { result }
    }

    /// Does `act` to the part of a range in each mapping; the gather takes what `act` owes.
    pub(super) fn advise_pages(
        &self,
        space: &Space<P>,
        range: PageRange,
        advice: Advice,
        mut act: impl FnMut(OwnTables<'_, P>, &Vma<P>, PageRange, &mut Gather<'_, P>) -> Result<(), MmError>,
    ) -> Result<(), MmError> {
        // As in Linux, holding the lock for reading is enough: no mapping changes, and concurrent
        // faults lock the same tables.
        let map = space.map().read();
        let context = space.table().context();
        let mut gather =
            plant!(ZapNotConcurrent; Gather::new(&self.tlb, context), Gather::concurrent(&self.tlb, context));
        let mut walk = Walk::over(range);
        let mut result = Ok(());
        while let Some((vma, _, part)) = walk.next(&map) {
            result = check(vma, part.start(), advice)
                .and_then(|()| self.own_tables(map.tables(&self.tlb), part))
                .and_then(|own| act(own, vma, part, &mut gather));
            if result.is_err() {
                break;
            }
        }
        // INV-TLB-RACE: the flush completes before the `map` lock is released, so a later holder
        // that finds an entry cleared depends on no stale one.
        plant!(ZapFlushLate; { drop(map); gather.settle() }, { gather.settle(); drop(map) });
        result.and_then(|()| walk.finish())
    }

    /// Makes pages of a private anonymous mapping clean, so that reclaim may discard them.
    ///
    /// A later store makes the entry dirty again, and reclaim then keeps the page. A large folio
    /// that other spaces map, or with pages that are not in `part`, stays as it is. Returns whether
    /// there was one.
    ///
    /// Linux: `madvise_free_pte_range`.
    fn free_lazily(&self, tables: OwnTables<'_, P>, vma: &Vma<P>, part: PageRange, gather: &mut Gather<'_, P>) -> bool {
        let part = without_cut_zeroes(tables, part);
        let mut whole = WholeFolios::within(part);
        for (table, under) in tables.locked(part, vma.mlocked()) {
            gather.meet(table.table());
            let mut run = table.run(vma.mlocked());
            for va in table.entries(under) {
                self.free_one_lazily(&mut run, va, &mut whole, gather);
            }
            drop(run);
            gather.publish(table.table());
        }
        whole.missed_large()
    }

    fn free_one_lazily(
        &self,
        run: &mut EntryRun<'_, '_, P>,
        va: VirtAddr,
        whole: &mut WholeFolios,
        gather: &mut Gather<'_, P>,
    ) {
        let leaf = match run.table().entry(va) {
            // A page in swap is discarded at once, because keeping it would save no work.
            EntryView::Soft(soft) => {
                if Zap::Pages.takes_soft(soft) {
                    run.unmap_soft(va);
                    self.release_soft_entry(soft);
                }
                return;
            }
            EntryView::Leaf(leaf) => leaf,
            EntryView::Empty | EntryView::Table => return,
        };
        let Some(folio) = self.vm_normal_folio(leaf) else { return };
        // INV-LAZYFREE-WHOLE: the other pages of the folio may be needed.
        if folio.is_large() && plant!(FreeCutsFolio; false, !whole.contains(run.table(), va, leaf, folio)) {
            return;
        }
        if folio.flags().intersects(FolioFlags::DIRTY | FolioFlags::SWAPCACHE) && !self.make_clean(folio) {
            return;
        }
        // A page that was copied for a pin has a clean entry. If fork has shared it since, the
        // entries of both spaces are clean, and neither shows that its space needs the contents.
        if !leaf.has(LeafFlags::DIRTY) && plant!(FreeIgnoresSharers; false, !folio.is_large() && folio.mapcount() > 1) {
            return;
        }
        let touched = LeafFlags::ACCESSED | LeafFlags::DIRTY;
        if let Some(debt) = run.protect(va, |leaf| leaf.without(touched)) {
            plant!(LazyFreeNoFlush; core::mem::forget(debt), gather.absorb(debt));
        }
        if folio.flags().contains(FolioFlags::SWAPBACKED) {
            // On the inactive file list, reclaim finds it early (`lru_lazyfree`).
            let clear = FolioFlags::SWAPBACKED | FolioFlags::ACTIVE | FolioFlags::REFERENCED;
            let before = self.frames().lru_move(folio, FolioFlags::empty(), clear);
            if before.contains(FolioFlags::SWAPBACKED) {
                self.tlb.count(Counter::PgLazyFree, u64::from(folio.pages()));
            }
        }
    }

    /// Makes a page clean and frees its swap slot, which may have older contents or none.
    ///
    /// Returns false if other entries map the page, if reclaim is writing it, or if its lock is
    /// contended. The caller holds the lock of the table.
    fn make_clean(&self, folio: Folio<'_>) -> bool {
        let Some(lock) = folio.try_lock() else { return false };
        // Another mapping may need the contents. The caller knows it of a large folio.
        let alone = folio.is_large() || folio.mapcount() == 1;
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

/// A range without the huge pages of zeroes that its ends cut.
///
/// They have nothing to free, so they are not split, and a store maps a huge page there
/// (`madvise_free_huge_pmd`).
fn without_cut_zeroes<P: Platform>(tables: OwnTables<'_, P>, range: PageRange) -> PageRange {
    let cut = |at: VirtAddr| match tables.peek(at) {
        EntryView::Leaf(leaf) if leaf.is_special() && !at.is_aligned(leaf.level().span()) => Some(leaf.level().span()),
        _ => None,
    };
    let start = cut(range.start()).map_or(range.start(), |span| range.start().align_down(span).add(span));
    let end = cut(range.end()).map_or(range.end(), |span| range.end().align_down(span));
    let start = start.min(range.end());
    PageRange::new(start, end.max(start))
}
