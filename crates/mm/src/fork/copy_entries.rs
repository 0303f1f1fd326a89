//! Copying the entries of one mapping.
//!
//! Pins and fork meet in the entry: fork takes the exclusive bit out first and looks for pins then;
//! who pins without locks takes the pin first and looks at the entry then, each with a full barrier
//! in between. So at least one of them sees the other, and whoever does steps back: fork puts the
//! bit back and copies, the pin is given up. Linux looks for pins before it takes the right to
//! write, and so must keep fast walks away from a space that forks (`write_protect_seq`).

use crate::error::MmError;
use crate::mm::Mm;
use crate::rmap::MappingDelta;
use crate::space::Space;
use crate::swap::SwapPte;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::{Entry, Leaf, LeafFlags, SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_table::{LockedTable, OwnedLeaf};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{Block, FolioFlags, FolioOwner};
use pagewright_types::{Counter, Level, Order, PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Copies what stands under `range`, one table of the parent after the other.
    ///
    /// Tables of the child are had before the parent's is locked.
    pub(super) fn copy_entries<'a>(
        &'a self,
        parent: &'a Space<P>,
        child: &Space<P>,
        range: PageRange,
        rights: Rights,
        gather: &mut Gather<'a, P>,
    ) -> Result<(), MmError> {
        for span in parent.table().table_spans(&self.tlb, range) {
            self.make_table(child, span.start())?;
            // A page for the child's copy of one that is pinned, had without locks.
            let mut pinned_copy = PinnedCopy { rights, spare: None };
            let mut outcome = Ok(Some(span.start()));
            while let Ok(Some(start)) = outcome {
                let Some(from) = parent.table().lock(&self.tlb, start, Level::PTE) else { break };
                let Some(to) = child.table().lock(&self.tlb, start, Level::PTE) else { break };
                outcome =
                    self.copy_table(child, &from, &to, PageRange::new(start, span.end()), &mut pinned_copy, gather);
                drop((to, from));
                if matches!(outcome, Ok(Some(_))) {
                    pinned_copy.spare = Some(self.alloc(Order::ZERO)?);
                }
            }
            if let Some(unused) = pinned_copy.spare {
                self.tlb.free(unused);
            }
            outcome?;
        }
        Ok(())
    }

    /// Copies the markers under `range` of a shared mapping, whose pages a fault brings back.
    pub(super) fn copy_markers(&self, parent: &Space<P>, child: &Space<P>, range: PageRange) -> Result<(), MmError> {
        for span in parent.table().table_spans(&self.tlb, range) {
            self.make_table(child, span.start())?;
            let Some(from) = parent.table().lock(&self.tlb, span.start(), Level::PTE) else { continue };
            let Some(to) = child.table().lock(&self.tlb, span.start(), Level::PTE) else { continue };
            let copied = span.iter().filter(|va| self.copy_soft(child, &from, &to, *va)).count();
            self.tlb.count(Counter::PwForkEntries, copied as u64);
        }
        Ok(())
    }

    /// Copies the entries of one locked table under `span`.
    ///
    /// Where a page must be copied and there is none to spare it stops, and returns where: nothing
    /// from there on has changed.
    ///
    /// # Errors
    /// [`MmError::TooManyHolders`].
    fn copy_table<'a>(
        &'a self,
        child: &Space<P>,
        from: &LockedTable<'a, P>,
        to: &LockedTable<'_, P>,
        span: PageRange,
        pinned_copy: &mut PinnedCopy,
        gather: &mut Gather<'a, P>,
    ) -> Result<Option<VirtAddr>, MmError> {
        let (mut copied, mut outcome) = (0, Ok(None));
        let mut delta = MappingDelta::default();
        for va in span.iter() {
            let Some(leaf) = from.leaf(va) else {
                copied += u64::from(self.copy_soft(child, from, to, va));
                continue;
            };
            if self.is_pinned(leaf) || self.share_entry(from, va, leaf, gather) == ShareResult::Pinned {
                let Some(block) = pinned_copy.spare.take() else {
                    outcome = Ok(Some(va));
                    break;
                };
                copied += 1;
                let own = self.copy_pinned(child, leaf, pinned_copy.rights, block, &mut delta);
                to.install(va, own);
                continue;
            }
            if leaf.flags.contains(LeafFlags::SPECIAL) {
                copied += 1;
                to.install(va, OwnedLeaf::special(leaf));
                continue;
            }
            // The parent has lost the right to store; now the child gets the page. Whatever the
            // walker noted until then is noted in the copy, too.
            let Some(leaf) = from.leaf(va) else { continue };
            let folio = self.frames().folio(leaf.pfn).get();
            if self.frames().folio_of(&folio).exceeds_ref_limit() {
                self.put_folio(folio);
                outcome = Err(MmError::TooManyHolders { va });
                break;
            }
            copied += 1;
            self.count_mapping(leaf.pfn, &mut delta);
            to.install(va, OwnedLeaf::new(Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf }, folio));
        }
        self.account_mapped(child, &delta);
        self.tlb.count(Counter::PwForkEntries, copied);
        outcome
    }

    /// Whether a leaf's page is its space's alone and somebody may have it pinned.
    fn is_pinned(&self, leaf: Leaf) -> bool {
        leaf.flags.contains(LeafFlags::EXCLUSIVE)
            && plant!(ForkIgnoresPin; false, self.frames().folio(leaf.pfn).maybe_pinned())
    }

    /// Takes from the parent's entry for `va` the right to store and to call the page its own; or
    /// nothing, if somebody pinned the page meanwhile without locks.
    fn share_entry<'a>(
        &'a self,
        from: &LockedTable<'a, P>,
        va: VirtAddr,
        leaf: Leaf,
        gather: &mut Gather<'a, P>,
    ) -> ShareResult {
        if leaf.flags.contains(LeafFlags::SPECIAL) {
            return ShareResult::Shared;
        }
        if let Some(debt) = from.update(va, shared_leaf) {
            gather.absorb(debt);
        }
        // Pairs with the fence between the pin and the second look at the entry in `gup::fast`.
        fence(Ordering::SeqCst);
        <P::Locks as Backend>::point();
        if !self.is_pinned(leaf) {
            return ShareResult::Shared;
        }
        let unshare = |now: Leaf| Leaf { rights: leaf.rights, flags: now.flags | LeafFlags::EXCLUSIVE, ..now };
        if let Some(debt) = from.update(va, unshare) {
            gather.absorb(debt);
        }
        ShareResult::Pinned
    }

    /// Copies what stands there for a page that is not mapped: a marker, which says of the mapping
    /// that nobody may touch the page, and the child has the mapping; or a page in swap, which is
    /// nobody's alone from now on (`copy_nonpresent_pte`).
    fn copy_soft(&self, child: &Space<P>, from: &LockedTable<'_, P>, to: &LockedTable<'_, P>, va: VirtAddr) -> bool {
        let Entry::Soft(soft) = from.entry(va) else { return false };
        match soft.kind {
            SoftKind::Marker => to.install_soft(va, soft),
            SoftKind::Swap => {
                let shared = SoftEntry { exclusive: false, ..soft };
                if soft.exclusive {
                    from.change_soft(va, shared);
                }
                if let Some(swapped) = SwapPte::decode(soft) {
                    self.swap_duplicate(swapped.entry);
                }
                child.rss().add_swapped(1);
                to.install_soft(va, shared);
            }
            SoftKind::MigrationRead | SoftKind::MigrationWrite | SoftKind::InTransition => return false,
        }
        true
    }

    /// A page of the child's own, in place of one that the parent has pinned (`copy_present_page`).
    fn copy_pinned(
        &self,
        child: &Space<P>,
        leaf: Leaf,
        rights: Rights,
        block: Block,
        delta: &mut MappingDelta,
    ) -> OwnedLeaf {
        let theirs = self.frames().folio(leaf.pfn);
        self.fx().copy(leaf.pfn, block.pfn(), Order::ZERO);
        self.tlb.count(Counter::PwCowCopy, 1);
        let folio = self.frames().new_folio(block);
        let ours = self.frames().folio(folio.pfn());
        let index = theirs.index() + u64::from(theirs.page_of(leaf.pfn));
        ours.set_owner(FolioOwner::Anon(child.fork_node()), index);
        ours.set_flags(FolioFlags::UPTODATE | FolioFlags::SWAPBACKED);
        self.frames().lru_add(ours);
        self.count_mapping(folio.pfn(), delta);
        let rights = if rights.is_empty() { rights } else { rights | Rights::READ };
        let flags = LeafFlags::USER | LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY | LeafFlags::EXCLUSIVE;
        OwnedLeaf::new(Leaf { pfn: folio.pfn(), rights, flags }, folio)
    }
}

/// What the copy of a pinned page needs.
struct PinnedCopy {
    /// The rights of the mapping.
    rights: Rights,
    spare: Option<Block>,
}

/// Whether an entry of the parent is shared with the child.
#[derive(PartialEq, Eq)]
enum ShareResult {
    Shared,
    /// Unchanged, because the page is pinned.
    Pinned,
}

/// The leaf without the right to store and the exclusive bit.
fn shared_leaf(leaf: Leaf) -> Leaf {
    Leaf { rights: leaf.rights - Rights::WRITE, flags: leaf.flags - LeafFlags::EXCLUSIVE, ..leaf }
}
