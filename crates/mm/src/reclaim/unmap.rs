//! Taking a page from everybody who maps it (`try_to_unmap`).

use crate::mm::Mm;
use crate::rmap::MappingDelta;
use crate::space::{AddressMap, Space, VmFlags};
use crate::swap::SwapPte;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::LockedTable;
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Level, PageRange, Rights, SpaceId, SwapEntry, VirtAddr};

/// A kind of page that goes, and what becomes of the entries that map it.
#[derive(Clone, Copy)]
pub(super) enum Victim {
    /// Anonymous memory: they remember the slot.
    Anon(SwapEntry),
    /// Shared memory: they are empty, and the object to which the page belongs remembers the slot.
    Shmem,
    /// A clean page of a file, which has what the page says: they are empty.
    File,
    /// Contents that were given up (`MADV_FREE`): they are empty, unless somebody has stored to the
    /// page since.
    LazyFree,
}

impl<P: Platform> Mm<P> {
    /// Takes a page from the spaces that map it; flushes ride in `batch`.
    ///
    /// The caller has the folio locked, and a reference. Who could not be asked, or may not lose
    /// it, still maps it afterwards. Who has cleared an entry himself and not flushed it yet has
    /// the entry's reference until he has (INV-TLB-SHARED), by which those are told who would write
    /// the page, or free it.
    pub(super) fn unmap_folio(&self, folio: Folio<'_>, victim: Victim, batch: &mut Batch<'_, P>) {
        let (owner, index) = (folio.owner(), folio.index());
        let mut at: Option<SpaceId> = None;
        while folio.is_mapped()
            && let Some(space) = self.candidate_after(owner, at)
        {
            at = Some(space.id());
            // Whoever changes mappings may wait for memory.
            let Some(map) = space.map().try_read() else { continue };
            for va in map.places_of(owner, index) {
                let table = space.table().lock(&self.tlb, va, Level::PTE);
                if let Some(table) = table.filter(|table| table.leaf(va).is_some_and(|leaf| leaf.pfn == folio.pfn()))
                    && !is_kept(&map, va)
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
        self.reduce(space, PageRange::page(va), Rights::empty());
        space.rss().note_peak();
        let debt = match victim {
            Victim::Anon(entry) => {
                let soft = |leaf: Leaf| SwapPte::new(leaf, entry).encode();
                table.replace_by_soft(va, soft, |leaf| is_pinned(leaf, folio))
            }
            Victim::Shmem | Victim::File => table.take(va),
            Victim::LazyFree => table.take_unless(va, |leaf| {
                let wanted = is_wanted(leaf, folio);
                if wanted {
                    self.frames().lru_move(folio, FolioFlags::SWAPBACKED, FolioFlags::empty());
                }
                wanted
            }),
        };
        let Some(debt) = debt else { return };
        let leaf = debt.detached().leaf();
        if let Victim::Anon(entry) = victim {
            self.swap_duplicate(entry);
            space.rss().add_swapped(1);
        }
        // The exchange gave every mark that the walker will ever make here.
        if leaf.flags.contains(LeafFlags::DIRTY) {
            folio.set_flags(FolioFlags::DIRTY);
        }
        let mut delta = MappingDelta::default();
        self.uncount_mapping(leaf, &mut delta);
        self.account_unmapped(space, &delta);
        batch.absorb(space.table().context(), debt);
    }
}

/// Whether the mapping at `va` keeps its pages.
fn is_kept<P: Platform>(map: &AddressMap<P>, va: VirtAddr) -> bool {
    map.find(va).is_none_or(|(_, vma)| vma.flags().contains(VmFlags::LOCKED))
}

/// Whether somebody may have the page of a leaf pinned, which was the space's alone until the leaf
/// went (`folio_try_share_anon_rmap_pte`).
fn is_pinned(leaf: Leaf, folio: Folio<'_>) -> bool {
    if !leaf.flags.contains(LeafFlags::EXCLUSIVE) {
        return false;
    }
    // Pairs with the fence between the pin and the second look at the entry in `gup::fast`.
    fence(Ordering::SeqCst);
    folio.maybe_pinned()
}

/// Whether contents that were given up are wanted after all (INV-LAZYFREE-KEPT): somebody stored to
/// them, or holds the page by other means than a mapping.
fn is_wanted(leaf: Leaf, folio: Folio<'_>) -> bool {
    // As above: a reference that was taken by the entry is seen here, or the entry is seen gone
    // there.
    fence(Ordering::SeqCst);
    leaf.flags.contains(LeafFlags::DIRTY)
        || folio.flags().contains(FolioFlags::DIRTY)
        || folio.refs() != folio.mapcount() + 1
}
