//! Anonymous memory touched for the first time (`do_anonymous_page`).

use super::{Fault, FaultFlags, FaultKind, FaultProgress};
use crate::error::FaultError;
use crate::mm::Mm;
use crate::policy::MemPolicy;
use crate::space::Space;
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryRun, LeafView, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::{Block, ClearExtent, FolioFlags, FolioOwner, NewFolio};
use pagewright_types::{Counter, Order, Rights};

impl<P: Platform> Fault<'_, P> {
    /// Maps the zero page, for a read; the first store replaces it.
    #[inline(always)]
    pub(super) fn map_zero_page(&self) -> Result<FaultProgress, FaultError> {
        let orders = self.mm.thp_orders(self.space, self.vma);
        if !orders.is_empty()
            && let Some(served) = self.map_huge_zero_page(orders)?
        {
            return Ok(served);
        }
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.reserve_tables(&mut reserve)?;
        let token = self.family_token();
        let Some(table) = self.lock_to_fill(&mut reserve, token.as_ref()) else { return Ok(FaultProgress::RaceLost) };
        let rights = self.mapping_rights() - Rights::WRITE;
        let flags = LeafFlags::USER | LeafFlags::ACCESSED;
        let zero_page = OwnedLeaf::special(Leaf { pfn: self.mm.zero_page, rights, flags });
        table.run(self.vma.mlocked()).map(self.va, zero_page);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    /// Maps a cleared page of the space's own, for a store.
    pub(super) fn map_new_page(&self) -> Result<FaultProgress, FaultError> {
        let orders = self.mm.thp_orders(self.space, self.vma);
        if !orders.is_empty()
            && let Some(served) = self.map_large(orders)?
        {
            return Ok(served);
        }
        let mut reserve = TableReserve::new(&self.mm.tlb);
        self.reserve_tables(&mut reserve)?;
        let block = self.cleared_page()?;
        let Some(locked) = self.lock_if_unchanged(&mut reserve) else {
            self.mm.tlb.free(block);
            return Ok(FaultProgress::RaceLost);
        };
        self.map_exclusive(&mut locked.run(self.vma.mlocked()), block);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    /// The policy of the mapping, which every page that the fault makes for it obeys.
    pub(super) fn policy(&self) -> MemPolicy {
        plant!(FaultIgnoresPolicy; MemPolicy::DEFAULT, self.vma.policy())
    }

    /// Allocates one frame.
    pub(super) fn alloc_page(&self) -> Result<Block, FaultError> {
        Ok(self.mm.alloc(self.mm.request(Order::ZERO, self.policy()))?)
    }

    /// Allocates one cleared frame, or takes one that was cleared ahead.
    pub(super) fn cleared_page(&self) -> Result<Block, FaultError> {
        let cleared = match self.request.pages {
            Some(pages) => pages.next_page(self.policy())?,
            None => {
                let cleared = self.mm.alloc_zeroed(self.mm.request(Order::ZERO, self.policy()), ClearExtent::PAGE)?;
                self.mm.frames().prefetch(&cleared, cleared.pfn(), self.request.va.page_offset());
                cleared
            }
        };
        self.mm.tlb.count(Counter::PwZeroed, 1);
        Ok(cleared.into_block())
    }

    /// Maps a new page that is exclusive to this space, with the rights of the mapping.
    ///
    /// `block` has its contents. A page that was only unshared is not writable, because no store
    /// has happened.
    pub(super) fn map_exclusive(&self, run: &mut EntryRun<'_, '_, P>, block: Block) {
        let mut flags = LeafFlags::USER | LeafFlags::ACCESSED | LeafFlags::EXCLUSIVE;
        let mut rights = self.mapping_rights();
        if self.request.flags.contains(FaultFlags::UNSHARE) {
            rights -= Rights::WRITE;
            let seen = self.seen_leaf().map_or(LeafFlags::empty(), LeafView::flags);
            flags |= seen & LeafFlags::SOFT_DIRTY;
        } else {
            flags |= LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY;
        }
        self.vma.note_anon();
        run.map_new(self.va, self.mm.new_anon(self.space, block, self.linear_index()), rights, flags);
    }
}

impl<P: Platform> Mm<P> {
    /// An anonymous page of `space`, at a linear page index, made of a block that has its contents.
    pub(crate) fn new_anon(&self, space: &Space<P>, block: Block, index: u64) -> NewFolio {
        let owner = FolioOwner::Anon(space.fork_node());
        NewFolio { block, owner, index, flags: FolioFlags::UPTODATE | FolioFlags::SWAPBACKED }
    }
}
