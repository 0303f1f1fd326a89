//! Clearing all mappings of a page (`try_to_unmap`).
//!
//! **INV-LAZYFREE-KEPT** A store to a page after `MADV_FREE` is not thrown away.

use crate::mm::Mm;
use crate::rmap::{FolioVisit, MappedLeaf, SpaceLock};
use crate::space::VmFlags;
use crate::swap::SwapPte;
use core::ops::ControlFlow;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::{FullBarrier, Platform};
use pagewright_table::LeafView;
use pagewright_tlb::LazyBatch;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{PageRange, Rights, SwapEntry};

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
    /// Clears all mappings of a page; `batch` owes the flushes of those that may not linger.
    ///
    /// INV-RECLAIM-SMALL: the folio is small. A large one would need a slot for each of its pages,
    /// and has room for one.
    ///
    /// The caller holds the folio's lock and a reference. Mappings whose address-space lock was
    /// contended, or that are mlocked or pinned, remain. Another CPU that has cleared an entry and
    /// not flushed it yet keeps the entry's reference (INV-TLB-SHARED). So before that flush the
    /// page is not freed, and not written if it is shared memory.
    pub(super) fn unmap_folio(&self, folio: Folio<'_>, victim: Victim, batch: &mut LazyBatch<'_, P>) {
        debug_assert!(!folio.is_large(), "INV-RECLAIM-SMALL: {folio:?} is paged out whole");
        batch.begin_folio(self.contents_may_linger(folio));
        let mut detached = 0;
        // The holder of a contended lock may be waiting for reclaim.
        self.visit_folio(folio, SpaceLock::Try, |visit| {
            if let FolioVisit::Mapped(mapped) = visit
                && !mapped.vma.flags().contains(VmFlags::LOCKED)
            {
                detached += self.unmap_one(&mapped, (folio, detached), victim, batch);
            }
            ControlFlow::Continue(())
        });
        batch.end_folio();
    }

    /// Clears one mapping of a page, and returns the references that the batch has from it now.
    ///
    /// It has `detached` from mappings before.
    fn unmap_one(
        &self,
        mapped: &MappedLeaf<'_, P>,
        (folio, detached): (Folio<'_>, u32),
        victim: Victim,
        batch: &mut LazyBatch<'_, P>,
    ) -> u32 {
        let &MappedLeaf { space, vma, va, table, .. } = mapped;
        self.declare_reduced(space, PageRange::page(va), Rights::empty());
        let mut run = table.run(vma.mlocked());
        let debt = match victim {
            Victim::Anon(entry) => {
                let soft = |leaf: LeafView| SwapPte::new(leaf, entry).encode();
                run.unmap_to_soft(va, soft, |leaf| may_be_pinned(leaf, folio))
            }
            Victim::Shmem | Victim::File => run.unmap(va),
            Victim::LazyFree => run.unmap_unless(va, |leaf| {
                let kept = is_lazy_free_kept(leaf, (folio, detached));
                if kept {
                    self.frames().lru_move(folio, FolioFlags::SWAPBACKED, FolioFlags::empty());
                }
                kept
            }),
        };
        drop(run);
        let Some(debt) = debt else { return 0 };
        let leaf = debt.detached().leaf();
        if let Victim::Anon(entry) = victim {
            self.swap_duplicate(entry);
        }
        // The exchange returned every dirty bit that a walker will ever set in this entry.
        if leaf.flags.contains(LeafFlags::DIRTY) {
            folio.set_flags(FolioFlags::DIRTY);
        }
        if debt.absorb_lazily(batch, space.table().context()) {
            self.declare_deferred(space, va, folio);
        }
        1
    }
}

/// Whether the page of a cleared entry may be pinned (`folio_try_share_anon_rmap_pte`).
///
/// Only an exclusive entry can have been pinned.
fn may_be_pinned(leaf: LeafView, folio: Folio<'_>) -> bool {
    if !leaf.is_exclusive() {
        return false;
    }
    // Pairs with the barrier between the pin and the second read of the entry in `gup::fast`.
    plant!(PageOutIgnoresPin; false, folio.maybe_pinned_after(FullBarrier::execute()))
}

/// Whether a lazily freed page must be kept after all (INV-LAZYFREE-KEPT).
///
/// It must if it was stored to, or has references other than those of mappings and the caller, and
/// those `detached` from mappings that the caller has cleared.
fn is_lazy_free_kept(leaf: LeafView, (folio, detached): (Folio<'_>, u32)) -> bool {
    // As above: either this sees a reference taken through the entry, or `gup::fast` sees the entry
    // cleared.
    let barrier = FullBarrier::execute();
    leaf.has(LeafFlags::DIRTY)
        || folio.flags().contains(FolioFlags::DIRTY)
        || folio.refs_after(barrier) != folio.mapcount() + 1 + plant!(DetachedCountsAsUser; 0, detached)
}
