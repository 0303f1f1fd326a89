//! Clearing all mappings of a page (`try_to_unmap`).

use crate::mm::Mm;
use crate::rmap::MappingDelta;
use crate::space::{AddressMap, Space, VmFlags};
use crate::swap::SwapPte;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::LockedTable;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Level, PageRange, Rights, SpaceId, SwapEntry, VirtAddr};

/// The kind of a page to reclaim, which decides what replaces its entries.
#[derive(Clone, Copy)]
pub(super) enum Victim {
    /// Anonymous memory: swap PTEs with its slot.
    Anon(SwapEntry),
    /// Shared memory: empty entries, and later a swap entry in the object's cache.
    Shmem,
    /// A clean file page: empty entries.
    File,
    /// A lazily freed page (`MADV_FREE`): empty entries, unless it was stored to since.
    LazyFree,
}

impl<P: Platform> Mm<P> {
    /// Clears all mappings of a page, and defers the flushes to `batch`.
    ///
    /// The caller holds the folio's lock and a reference. Mappings whose address-space lock was
    /// contended, or that are mlocked or pinned, remain. Another CPU that has cleared an entry and
    /// not flushed it yet keeps the entry's reference (INV-TLB-SHARED). So before that flush the
    /// page is not freed, and not written if it is shared memory.
    pub(super) fn unmap_folio(&self, folio: Folio<'_>, victim: Victim, batch: &mut Batch<'_, P>) {
        let (owner, index) = (folio.owner(), folio.index());
        let mut at: Option<SpaceId> = None;
        while folio.is_mapped()
            && let Some(space) = self.candidate_after(owner, at)
        {
            at = Some(space.id());
            // The holder of the lock may be waiting for reclaim.
            let Some(map) = space.map().try_read() else { continue };
            for va in map.possible_addresses(owner, index) {
                let table = space.table().lock(&self.tlb, va, Level::PTE);
                if let Some(table) = table.filter(|table| table.leaf(va).is_some_and(|leaf| leaf.pfn == folio.pfn()))
                    && !must_stay(&map, va)
                {
                    self.unmap_one(&space, &table, va, folio, victim, batch);
                }
            }
        }
    }

    fn unmap_one(
        &self,
        space: &Space<P>,
        table: &LockedTable<'_, P>,
        va: VirtAddr,
        folio: Folio<'_>,
        victim: Victim,
        batch: &mut Batch<'_, P>,
    ) {
        self.declare_reduced(space, PageRange::page(va), Rights::empty());
        space.rss().note_peak();
        let debt = match victim {
            Victim::Anon(entry) => {
                let soft = |leaf: Leaf| SwapPte::new(leaf, entry).encode();
                table.replace_by_soft(va, soft, |leaf| may_be_pinned(leaf, folio))
            }
            Victim::Shmem | Victim::File => table.take(va),
            Victim::LazyFree => table.take_unless(va, |leaf| {
                let kept = is_lazy_free_kept(leaf, folio);
                if kept {
                    self.frames().lru_move(folio, FolioFlags::SWAPBACKED, FolioFlags::empty());
                }
                kept
            }),
        };
        let Some(debt) = debt else { return };
        let leaf = debt.detached().leaf();
        if let Victim::Anon(entry) = victim {
            self.swap_duplicate(entry);
            space.rss().add_swapped(1);
        }
        // The exchange returned every dirty bit that a walker will ever set in this entry.
        if leaf.flags.contains(LeafFlags::DIRTY) {
            folio.set_flags(FolioFlags::DIRTY);
        }
        let mut delta = MappingDelta::default();
        self.uncount_mapping(leaf, &mut delta);
        self.account_unmapped(space, &delta);
        batch.absorb(space.table().context(), debt);
    }
}

/// Whether the page at `va` must stay mapped, because it is mlocked or the mapping is gone.
fn must_stay<P: Platform>(map: &AddressMap<P>, va: VirtAddr) -> bool {
    map.find(va).is_none_or(|(_, vma)| vma.flags().contains(VmFlags::LOCKED))
}

/// Whether the page of a cleared entry may be pinned (`folio_try_share_anon_rmap_pte`).
///
/// Only an exclusive entry can have been pinned.
fn may_be_pinned(leaf: Leaf, folio: Folio<'_>) -> bool {
    if !leaf.flags.contains(LeafFlags::EXCLUSIVE) {
        return false;
    }
    // Pairs with the fence between the pin and the second read of the entry in `gup::fast`.
    fence(Ordering::SeqCst);
    plant!(PageOutIgnoresPin; false, folio.maybe_pinned())
}

/// Whether a lazily freed page must be kept after all (INV-LAZYFREE-KEPT).
///
/// It must if it was stored to, or has references other than those of mappings and the caller.
fn is_lazy_free_kept(leaf: Leaf, folio: Folio<'_>) -> bool {
    // As above: either this sees a reference taken through the entry, or `gup::fast` sees the entry
    // cleared.
    fence(Ordering::SeqCst);
    leaf.flags.contains(LeafFlags::DIRTY)
        || folio.flags().contains(FolioFlags::DIRTY)
        || folio.refs() != folio.mapcount() + 1
}
