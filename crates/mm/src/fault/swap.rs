//! Pages that come back from swap (`do_swap_page`).
//!
//! **INV-SWAP-OWNER** A page that is read back for an entry that other spaces may have, too,
//! belongs to the root of the tree of forks, which is above all of them.

use super::{Fault, FaultKind, FaultProgress};
use crate::error::FaultError;
use crate::space::VmFlags;
use crate::swap::{SwapInFolio, SwapPte};
use pagewright_arch::{Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EditForAll, LockedTable, OwnedLeaf, TableReserve};
use pagewright_tlb::frames::FolioOwner;
use pagewright_types::{Access, ForkNodeId, Rights};

impl<P: Platform> Fault<'_, P> {
    /// Maps the page of a swap entry.
    ///
    /// A store to a page that was not exclusive faults again, for a copy.
    pub(super) fn swap_in(&self, seen: SwapPte) -> Result<FaultProgress, FaultError> {
        let Some(page) = self.mm.swap_in_folio(seen.entry, self.policy())? else { return Ok(FaultProgress::RaceLost) };
        // INV-SWAP-OWNER: of a page that others may have in swap, too, the whole tree of forks is
        // the owner.
        let fork_node = self.space.fork_node();
        let root = || self.mm.fork_tree.root_of(fork_node);
        let fork_node =
            if seen.exclusive && !self.is_shared() { fork_node } else { plant!(SwapOwnerNarrow; fork_node, root()) };
        let token = self.family_token();
        let Some(table) = self.lock_to_fill(&mut TableReserve::new(&self.mm.tlb), token.as_ref()) else {
            plant!(LostSwapInFreesSlot => self.mm.swap_release(seen.entry));
            drop(page.lock);
            self.mm.free_swap_cache(self.mm.frames().folio_of(&page.folio));
            self.mm.put_folio(page.folio);
            return Ok(FaultProgress::RaceLost);
        };
        let served = if page.read { FaultKind::Major } else { FaultKind::Minor };
        self.install_swapped_in(&table, seen, fork_node, page);
        let stored = self.access() != Access::Write || seen.exclusive;
        Ok(if stored { FaultProgress::Done(served) } else { FaultProgress::Again(served) })
    }

    fn install_swapped_in(
        &self,
        table: &LockedTable<'_, P, EditForAll<'_, P>>,
        seen: SwapPte,
        fork_node: ForkNodeId,
        page: SwapInFolio<'_>,
    ) {
        let SwapInFolio { folio, lock: _lock, .. } = page;
        let view = self.mm.frames().folio(folio.pfn());
        if view.owner() == FolioOwner::None {
            view.set_owner(FolioOwner::Anon(fork_node), self.linear_index());
        }
        let stores = self.access() == Access::Write && seen.exclusive;
        let mut rights = self.mapping_rights();
        let mut flags = LeafFlags::USER | LeafFlags::ACCESSED;
        flags.set(LeafFlags::EXCLUSIVE, seen.exclusive);
        flags.set(LeafFlags::SOFT_DIRTY, seen.soft_dirty || stores);
        flags.set(LeafFlags::DIRTY, stores);
        if plant!(FilledWritable; !self.is_shared(), !stores) {
            rights -= Rights::WRITE;
        }
        {
            let mut run = table.run(self.vma.mlocked());
            run.unmap_soft(self.va);
            run.map(self.va, OwnedLeaf::new(Leaf { pfn: folio.pfn(), rights, flags }, folio));
        }
        self.mm.swap_release(seen.entry);
        // What is stored to, or stays, has no use for its slot (`should_try_to_free_swap`).
        if stores || self.vma.flags().contains(VmFlags::LOCKED) || self.mm.vm_swap_full() {
            self.mm.free_swap(view);
        }
    }
}
