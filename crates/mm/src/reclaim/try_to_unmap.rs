//! Clearing all mappings of a page (`try_to_unmap`).

use crate::mm::Mm;
use crate::space::{Space, VmFlags};
use crate::swap::SwapPte;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{ForAllTable, LeafView, Mlocked};
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{PageRange, Rights, SwapEntry, VirtAddr};

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
    /// INV-RECLAIM-SMALL: the folio is small. A large one would need a slot for each of its pages,
    /// and has room for one.
    ///
    /// The caller holds the folio's lock and a reference. Mappings whose address-space lock was
    /// contended, or that are mlocked or pinned, remain. Another CPU that has cleared an entry and
    /// not flushed it yet keeps the entry's reference (INV-TLB-SHARED). So before that flush the
    /// page is not freed, and not written if it is shared memory.
    pub(super) fn unmap_folio(&self, folio: Folio<'_>, victim: Victim, batch: &mut Batch<'_, P>) {
        debug_assert!(!folio.is_large(), "INV-RECLAIM-SMALL: {folio:?} is paged out whole");
        let (owner, index) = (folio.owner(), folio.index());
        let mut spaces = self.candidates(owner);
        while folio.is_mapped()
            && let Some(space) = spaces.next()
        {
            // The holder of the lock may be waiting for reclaim.
            let Some(map) = space.map().try_read() else { continue };
            let tables = map.tables(&self.tlb);
            let token = tables.family_token();
            for (_, range) in map.possible_ranges(owner, index, 1) {
                let Some((_, vma)) = map.find(range.start()).filter(|(_, vma)| !vma.flags().contains(VmFlags::LOCKED))
                else {
                    continue;
                };
                for va in range.iter() {
                    let Some(table) = tables.lock_for_all(va, token.as_ref()) else { continue };
                    let maps = |leaf: LeafView| !leaf.is_special() && leaf.page_at(va) == folio.pfn();
                    if table.leaf(va).is_some_and(maps) {
                        self.unmap_one(&space, &table, (va, vma.mlocked()), folio, victim, batch);
                    }
                }
            }
        }
    }

    fn unmap_one(
        &self,
        space: &Space<P>,
        table: &ForAllTable<'_, '_, P>,
        (va, mlocked): (VirtAddr, Mlocked),
        folio: Folio<'_>,
        victim: Victim,
        batch: &mut Batch<'_, P>,
    ) {
        self.declare_reduced(space, PageRange::page(va), Rights::empty());
        let debt = table.edit(mlocked, |run| match victim {
            Victim::Anon(entry) => {
                let soft = |leaf: LeafView| SwapPte::new(leaf, entry).encode();
                run.unmap_to_soft(va, soft, |leaf| may_be_pinned(leaf, folio))
            }
            Victim::Shmem | Victim::File => run.unmap(va),
            Victim::LazyFree => run.unmap_unless(va, |leaf| {
                let kept = is_lazy_free_kept(leaf, folio);
                if kept {
                    self.frames().lru_move(folio, FolioFlags::SWAPBACKED, FolioFlags::empty());
                }
                kept
            }),
        });
        let Some(debt) = debt else { return };
        let leaf = debt.detached().leaf();
        if let Victim::Anon(entry) = victim {
            self.swap_duplicate(entry);
        }
        // The exchange returned every dirty bit that a walker will ever set in this entry.
        if leaf.flags.contains(LeafFlags::DIRTY) {
            folio.set_flags(FolioFlags::DIRTY);
        }
        debt.absorb_into(batch, space.table().context());
    }
}

/// Whether the page of a cleared entry may be pinned (`folio_try_share_anon_rmap_pte`).
///
/// Only an exclusive entry can have been pinned.
fn may_be_pinned(leaf: LeafView, folio: Folio<'_>) -> bool {
    if !leaf.is_exclusive() {
        return false;
    }
    // Pairs with the fence between the pin and the second read of the entry in `gup::fast`.
    fence(Ordering::SeqCst);
    plant!(PageOutIgnoresPin; false, folio.maybe_pinned())
}

/// Whether a lazily freed page must be kept after all (INV-LAZYFREE-KEPT).
///
/// It must if it was stored to, or has references other than those of mappings and the caller.
fn is_lazy_free_kept(leaf: LeafView, folio: Folio<'_>) -> bool {
    // As above: either this sees a reference taken through the entry, or `gup::fast` sees the entry
    // cleared.
    fence(Ordering::SeqCst);
    leaf.has(LeafFlags::DIRTY) || folio.flags().contains(FolioFlags::DIRTY) || folio.refs() != folio.mapcount() + 1
}
