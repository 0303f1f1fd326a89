//! Anonymous memory touched for the first time (`do_anonymous_page`).

use super::{Fault, FaultFlags, FaultKind, FaultProgress};
use crate::error::FaultError;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::{EntryRun, LeafView, OwnedLeaf};
use pagewright_tlb::frames::{Block, ClearExtent, FolioFlags, FolioOwner, FolioRef};
use pagewright_types::{Counter, Order, Rights};

impl<P: Platform> Fault<'_, P> {
    /// Maps the zero page, for a read; the first store replaces it.
    pub(super) fn map_zero_page(&self) -> Result<FaultProgress, FaultError> {
        let mut reserve = self.reserve_tables()?;
        let Some(locked) = self.lock_if_unchanged(&mut reserve) else { return Ok(FaultProgress::RaceLost) };
        let rights = self.mapping_rights() - Rights::WRITE;
        let flags = LeafFlags::USER | LeafFlags::ACCESSED;
        let zero_page = OwnedLeaf::special(Leaf { pfn: self.mm.zero_page, rights, flags });
        locked.run(self.vma.mlocked()).map(self.va, zero_page);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    /// Maps a cleared page of the space's own, for a store.
    pub(super) fn map_new_page(&self) -> Result<FaultProgress, FaultError> {
        let mut reserve = self.reserve_tables()?;
        let folio = self.new_anon_folio(self.cleared_page()?);
        let Some(locked) = self.lock_if_unchanged(&mut reserve) else {
            self.mm.put_folio(folio);
            return Ok(FaultProgress::RaceLost);
        };
        self.map_exclusive(&mut locked.run(self.vma.mlocked()), folio);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    /// Allocates one frame, near the CPU that faults.
    pub(super) fn alloc_page(&self) -> Result<Block, FaultError> {
        Ok(self.mm.alloc(Order::ZERO)?)
    }

    /// Allocates one cleared frame, or takes one that was cleared ahead.
    pub(super) fn cleared_page(&self) -> Result<Block, FaultError> {
        let cleared = match self.request.pages {
            Some(pages) => pages.next_page()?,
            None => {
                let cleared = self.mm.alloc_zeroed(Order::ZERO, ClearExtent::PAGE)?;
                self.mm.frames().prefetch(&cleared, cleared.pfn(), self.request.va.page_offset());
                cleared
            }
        };
        self.mm.tlb.count(Counter::PwZeroed, 1);
        Ok(cleared.into_block())
    }

    /// Makes an anonymous page of this space of a block that has its contents.
    pub(super) fn new_anon_folio(&self, block: Block) -> FolioRef {
        let folio = self.mm.frames().new_folio(block);
        let view = self.mm.frames().folio(folio.pfn());
        view.set_owner(FolioOwner::Anon(self.space.fork_node()), self.linear_index());
        view.set_flags(FolioFlags::UPTODATE | FolioFlags::SWAPBACKED);
        folio
    }

    /// Maps a new page that is exclusive to this space, with the rights of the mapping.
    ///
    /// A page that was only unshared is not writable, because no store has happened.
    pub(super) fn map_exclusive(&self, run: &mut EntryRun<'_, '_, P>, folio: FolioRef) {
        let mut flags = LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::EXCLUSIVE;
        let mut rights = self.mapping_rights();
        if self.request.flags.contains(FaultFlags::UNSHARE) {
            rights -= Rights::WRITE;
            let seen = self.seen_leaf().map_or(LeafFlags::empty(), LeafView::flags);
            flags |= seen & LeafFlags::SOFT_DIRTY;
        } else {
            flags |= LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY;
        }
        let leaf = Leaf { pfn: folio.pfn(), rights, flags };
        self.vma.note_anon();
        run.map_new(self.va, OwnedLeaf::new(leaf, folio));
    }
}
