//! `MADV_PAGEOUT` and `MADV_COLD` (`madvise_cold_or_pageout_pte_range`).
//!
//! `advise_reclaim` (`madvise/reclaim.rs`) finds the range of each mapping and releases the lock of
//! the space. The space may even have ended since and freed its tables, so the mappings are looked
//! up again.
//!
//! **INV-ADVICE-ALONE** `MADV_COLD` and `MADV_PAGEOUT` leave a page as it is, in memory and on its
//! list, if another space maps it, by an entry of its own or by a table that it shares. `MADV_FREE`
//! leaves the other space's contents and age. Otherwise a program could evict the memory of
//! another, and measure that the other uses it.

use super::SWAP_CLUSTER_MAX;
use super::pageout::PageOutFlush;
use crate::mm::Mm;
use crate::space::{Space, Vma};
use crate::thp::{WholeFolios, are_all_beside, end_of_pieces};
use arrayvec::ArrayVec;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{LeafView, LockedTable};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio};
use pagewright_types::{Counter, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Pages out as much as it can of `part`, which was one mapping when its lock was released.
    ///
    /// The caller holds no lock.
    pub(crate) fn page_out_range(&self, space: &Space<P>, part: PageRange) {
        let mut at = part.start();
        while at < part.end() {
            let mut folios = ArrayVec::new();
            let rest = PageRange::new(at, part.end());
            at = match self.isolate_range(space, rest, &mut folios) {
                IsolatedUpTo::Address(next) => next,
                // Its pages are isolated one by one then; if it stays whole, it is passed over.
                IsolatedUpTo::Large(at, isolated, end) => {
                    if self.split_for_page_out(isolated) {
                        at
                    } else {
                        end
                    }
                }
            };
            self.page_out(&mut folios, PageOutFlush::Complete);
            folios.into_iter().for_each(|isolated| self.putback(isolated));
        }
    }

    /// Deactivates the pages of `part`, so that reclaim considers them first.
    ///
    /// `part` was one mapping when its lock was released. The caller holds no lock.
    ///
    /// Pages that other spaces map, also by tables that they share, stay as they are
    /// (INV-ADVICE-ALONE).
    ///
    /// A large folio that `part` cuts is split first; if it stays whole, it stays as it is.
    pub(crate) fn deactivate_range(&self, space: &Space<P>, part: PageRange) {
        if self.deactivate_whole(space, part) && self.split_cut_folios(space, part) {
            self.deactivate_whole(space, part);
        }
    }

    /// The same, but leaves out large folios that `part` cuts; returns whether there were any.
    fn deactivate_whole(&self, space: &Space<P>, part: PageRange) -> bool {
        let map = space.map().read();
        let mut gather = Gather::concurrent(&self.tlb, space.table().context());
        let mut missed_large = false;
        for (_, vma, part) in map.parts(part) {
            let mut whole = WholeFolios::within(part);
            let tables = map.tables(&self.tlb);
            tables.take_back_part(part);
            for (table, under) in tables.own_part(part) {
                for va in table.entries(under) {
                    let Some(leaf) = table.leaf(va) else { continue };
                    let Some(folio) = self.vm_normal_folio(leaf) else { continue };
                    if plant!(ColdIgnoresSharers; true, whole.contains(&table, va, leaf, folio)) {
                        let clear = |leaf: LeafView| leaf.without(LeafFlags::ACCESSED);
                        if let Some(debt) = table.run(vma.mlocked()).protect(va, clear) {
                            gather.absorb(debt);
                        }
                        self.deactivate(folio);
                    }
                }
            }
            missed_large |= whole.missed_large();
        }
        gather.settle();
        missed_large
    }

    /// Splits the large folios of `part` that only this space maps, and not with all pages there.
    ///
    /// Returns whether any was split. The caller holds no lock.
    pub(crate) fn split_cut_folios(&self, space: &Space<P>, part: PageRange) -> bool {
        let (mut at, mut split) = (part.start(), false);
        while let Some((isolated, end)) = self.next_cut_folio(space, part, at) {
            split |= self.split_or_putback(isolated);
            at = end.min(part.end());
        }
        split
    }

    /// The first of them from `from` on, off its list, and where its pages end.
    fn next_cut_folio(&self, space: &Space<P>, part: PageRange, from: VirtAddr) -> Option<(IsolatedFolio, VirtAddr)> {
        let map = space.map().read();
        for (start, vma, rest) in map.parts(PageRange::new(from, part.end())) {
            let of_vma = PageRange::new(part.start().max(vma.range(start).start()), rest.end());
            let mut whole = WholeFolios::within(of_vma);
            for (table, under) in map.tables(&self.tlb).own_part(rest) {
                for va in table.entries(under) {
                    let Some(leaf) = table.leaf(va).filter(|leaf| !leaf.is_special()) else { continue };
                    let folio = self.frames().folio(leaf.pfn());
                    if folio.is_large()
                        && folio.is_anon()
                        && !whole.contains(&table, va, leaf, folio)
                        && is_alone(&table, va, leaf, folio)
                        && let Some(isolated) = self.frames().isolate(folio)
                    {
                        return Some((isolated, end_of_pieces(va, leaf.page_at(va), folio)));
                    }
                }
            }
        }
        None
    }

    fn deactivate(&self, folio: Folio<'_>) {
        folio.clear_flags(FolioFlags::REFERENCED | FolioFlags::YOUNG);
        if folio.flags().contains(FolioFlags::ACTIVE) {
            self.frames().lru_move(folio, FolioFlags::WORKINGSET, FolioFlags::ACTIVE);
            self.tlb.count(Counter::PgDeactivate, u64::from(folio.pages()));
        }
    }

    /// Isolates pages of `range` that only this space maps, as many as fit in `folios`.
    ///
    /// Stops at a large folio, which is to be split first. A program must not page out memory that
    /// others map, and the time taken would reveal that they do (INV-ADVICE-ALONE). The same holds
    /// for files that it may not write.
    fn isolate_range(
        &self,
        space: &Space<P>,
        range: PageRange,
        folios: &mut ArrayVec<IsolatedFolio, SWAP_CLUSTER_MAX>,
    ) -> IsolatedUpTo {
        let map = space.map().read();
        for (_, vma, part) in map.parts(range) {
            let tables = map.tables(&self.tlb);
            tables.take_back_part(part);
            for (table, under) in tables.own_part(part) {
                for va in table.entries(under) {
                    if folios.is_full() {
                        return IsolatedUpTo::Address(va);
                    }
                    let Some(leaf) = table.leaf(va).filter(|leaf| !leaf.is_special()) else { continue };
                    let folio = self.frames().folio(leaf.pfn());
                    if plant!(PageOutIgnoresSharers; true, is_alone(&table, va, leaf, folio))
                        && (folio.is_anon() || can_do_file_pageout(vma))
                        && let Some(isolated) = self.frames().isolate(folio)
                    {
                        if folio.is_large() {
                            let end = end_of_pieces(va, leaf.page_at(va), folio).min(range.end());
                            return IsolatedUpTo::Large(va, isolated, end);
                        }
                        folios.push(isolated);
                    }
                }
            }
        }
        IsolatedUpTo::Address(range.end())
    }
}

/// Where an isolation of pages stopped.
enum IsolatedUpTo {
    /// Before this address, from which it goes on.
    Address(VirtAddr),
    /// At this address, at a large folio that was isolated and ends at the second address.
    Large(VirtAddr, IsolatedFolio, VirtAddr),
}

/// Whether no other space maps a folio of which `leaf` maps all or a page.
///
/// All entries of a large folio must be in the table of that leaf.
fn is_alone<P: Platform>(table: &LockedTable<'_, P>, va: VirtAddr, leaf: LeafView, folio: Folio<'_>) -> bool {
    let entries = folio.mapcount();
    entries == 1 || folio.is_large() && are_all_beside(entries, table, va, leaf, folio)
}

/// Whether the program may evict cached pages of a mapping's file (`can_do_file_pageout`).
fn can_do_file_pageout<P: Platform>(vma: &Vma<P>) -> bool {
    vma.file().is_some_and(|file| file.could_be_written())
}
