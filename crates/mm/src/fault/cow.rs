//! Stores to pages that are mapped and not writable (`do_wp_page`).
//!
//! **INV-COW-REUSE** A store reuses a page if the entry is exclusive, or if the page is anonymous
//! and only entries of the locked last-level table have references on it. Any other store copies
//! the page. A mapcount would miss users that have a reference and no mapping (CVE-2020-29374).
//!
//! | references of an anonymous page | reused |
//! | --- | --- |
//! | the entry's | yes |
//! | the entry's and the swap cache's | if the lock of the folio is free and no entry names its slot |
//! | of a piece of a large folio outside the swap cache: those of its entries | if all these entries are in the locked table, each at the address that follows from its place in the folio |
//!
//! A huge leaf is split before its page is copied. The page of zeroes is replaced by a cleared one.
//!
//! **INV-COW-ORDER** The entry of a page that is copied is cleared and flushed before the copy is
//! installed. Otherwise one CPU would store to the copy while another reads the original.

use super::{Fault, FaultKind, FaultProgress};
use crate::error::FaultError;
use crate::thp::{are_all_beside, pieces_beside};
use pagewright_arch::LeafFlags;
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_table::{LeafView, LockedTable};
use pagewright_tlb::frames::{Folio, FolioFlags};
use pagewright_types::{Access, Counter, Level, Order, PageRange, Pfn, Rights};

impl<P: Platform> Fault<'_, P> {
    /// Reuses a private page for a store if only this space has it, and copies it otherwise.
    #[inline]
    pub(super) fn copy_on_write(&self, leaf: LeafView) -> Result<FaultProgress, FaultError> {
        if leaf.is_special() {
            return if leaf.level() > Level::PTE { self.replace_huge_zero_page() } else { self.replace(None) };
        }
        self.reuse_or_copy(leaf, |locked| self.make_writable(locked, leaf))
    }

    /// Reuses the page of a leaf if only this space has it, and replaces it by a copy otherwise.
    ///
    /// `take_over` edits the entry of a page that is reused.
    #[inline]
    pub(super) fn reuse_or_copy(
        &self,
        leaf: LeafView,
        take_over: impl FnOnce(&LockedTable<'_, P>),
    ) -> Result<FaultProgress, FaultError> {
        let Some(locked) = self.lock_if_same_leaf() else { return Ok(FaultProgress::RaceLost) };
        let folio = self.mm.frames().folio(leaf.pfn());
        // INV-COW-REUSE: an exclusive page must be reused, so that a pin continues to see it.
        if leaf.is_exclusive() || folio.is_anon() && self.can_reuse(&locked, folio, leaf) {
            take_over(&locked);
            return Ok(FaultProgress::Done(FaultKind::Minor));
        }
        self.replace_by_copy(locked, leaf)
    }

    /// Whether the anonymous folio under the fault is this space's alone.
    ///
    /// Its only reference, beside that of the swap cache, is that of the entry
    /// (`wp_can_reuse_anon_folio`). Or it is large, all its references are those of entries, and
    /// all these are in the locked table, which no other space reaches. Then all of them become
    /// exclusive.
    #[inline]
    fn can_reuse(&self, locked: &LockedTable<'_, P>, folio: Folio<'_>, leaf: LeafView) -> bool {
        if folio.is_large() && leaf.level() == Level::PTE {
            return self.can_reuse_pieces(locked, folio, leaf);
        }
        if folio.flags().contains(FolioFlags::SWAPCACHE) && folio.refs() == 2 {
            self.mm.try_free_swap(folio);
        }
        plant!(ReusedByMapcount; folio.mapcount(), folio.refs()) == 1
    }

    #[cold]
    fn can_reuse_pieces(&self, locked: &LockedTable<'_, P>, folio: Folio<'_>, leaf: LeafView) -> bool {
        let (refs, entries) = folio.refs_and_mapcount();
        let alone = plant!(PieceReusedByMapcount; true, refs == entries);
        if !alone
            || folio.flags().contains(FolioFlags::SWAPCACHE)
            || plant!(PieceTakenForWhole; false, !are_all_beside(entries, locked, self.va, leaf, folio))
        {
            return false;
        }
        let mut run = locked.run(self.vma.mlocked());
        for va in pieces_beside(locked, self.va, leaf, folio) {
            // No right is lost, so nothing is owed.
            if let Some(debt) = run.protect(va, |leaf| leaf.with(LeafFlags::EXCLUSIVE)) {
                debt.settle();
            }
        }
        true
    }

    /// Splits the huge leaf under the fault, whose pages are copied one by one.
    ///
    /// Linux: `do_huge_pmd_wp_page`.
    #[cold]
    pub(super) fn split_huge(&self) -> FaultProgress {
        self.mm.split_huge_leaf(self.tables, self.va, self.vma.mlocked());
        // No race was lost: the next try has nothing to wait for.
        FaultProgress::Again(FaultKind::Minor)
    }

    /// Makes a shared page writable, or gives a leaf the rights of its mapping.
    pub(super) fn widen(&self, leaf: LeafView) -> FaultProgress {
        let Some(locked) = self.lock_if_same_leaf() else { return FaultProgress::RaceLost };
        let write = self.access() == Access::Write;
        if write && !leaf.is_special() {
            self.mm.frames().folio(leaf.pfn()).set_flags(FolioFlags::DIRTY);
        }
        let keep_write = write || leaf.rights().contains(Rights::WRITE);
        let mut rights = self.mapping_rights();
        rights.set(Rights::WRITE, keep_write && rights.contains(Rights::WRITE));
        self.widen_leaf(&locked, rights, write);
        FaultProgress::Done(FaultKind::Minor)
    }

    /// Makes the leaf of a page that is reused writable.
    #[inline]
    fn make_writable(&self, locked: &LockedTable<'_, P>, leaf: LeafView) {
        self.mm.tlb.count(Counter::PgReuse, 1);
        let rights = self.mapping_rights();
        if leaf.rights() | Rights::WRITE == rights {
            locked.run(self.vma.mlocked()).reuse(self.va);
            self.fix_widened(leaf.level());
        } else {
            self.widen_leaf(locked, rights, true);
        }
    }

    /// Raises a leaf's rights; a store makes it dirty, and exclusive if the mapping is private.
    ///
    /// Nothing is owed, because no right is lost: another CPU that still has the old entry faults
    /// once more and finds this one.
    fn widen_leaf(&self, locked: &LockedTable<'_, P>, rights: Rights, write: bool) {
        let mut flags = LeafFlags::ACCESSED;
        flags.set(LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY, write);
        flags.set(LeafFlags::EXCLUSIVE, write && !self.vma.is_shared());
        let debt = locked.run(self.vma.mlocked()).protect(self.va, |leaf| leaf.with_rights(rights).with(flags));
        if let Some(debt) = debt {
            debt.settle();
        }
        self.fix_widened(locked.level());
    }

    /// Makes this CPU forget the entry that refused the access.
    #[inline]
    fn fix_widened(&self, level: Level) {
        let table = self.space.table();
        self.mm.tlb.fix_spurious_fault(table.context(), self.va, level, table.ever_shared());
    }

    /// Replaces the page that `leaf` maps by a copy; splits a huge leaf first.
    ///
    /// A reference keeps the page while it is copied without the lock.
    fn replace_by_copy(&self, locked: LockedTable<'_, P>, leaf: LeafView) -> Result<FaultProgress, FaultError> {
        if leaf.level() > Level::PTE {
            drop(locked);
            return Ok(self.split_huge());
        }
        let old = self.mm.frames().folio(leaf.pfn()).get();
        drop(locked);
        let outcome = self.replace(Some(leaf.pfn()));
        self.mm.put_folio(old);
        outcome
    }

    /// Replaces `old`, or the zero page for `None`, by a page of this space's own.
    ///
    /// The caller holds a reference on `old`.
    pub(super) fn replace(&self, old: Option<Pfn>) -> Result<FaultProgress, FaultError> {
        let block = match old {
            Some(old) => {
                let block = self.alloc_page()?;
                self.mm.fx().copy(old, block.pfn(), Order::ZERO);
                self.mm.tlb.count(Counter::PwCowCopy, 1);
                block
            }
            None => self.cleared_page()?,
        };
        let Some(locked) = self.lock_if_same_leaf() else {
            self.mm.tlb.free(block);
            return Ok(FaultProgress::RaceLost);
        };
        // INV-COW-ORDER: clear the old entry and flush it before the new page is published.
        // Otherwise one CPU could store to the new page while another still reads the old one.
        self.mm.declare_reduced(self.space, PageRange::page(self.va), Rights::empty());
        let mut run = locked.run(self.vma.mlocked());
        if let Some(debt) = run.unmap(self.va) {
            if let Some(old) = debt.detached().folio() {
                self.mm.free_swap_cache(self.mm.frames().folio_of(old));
            }
            plant!(CowFlushLate => return Ok(self.map_unflushed(&mut run, block, debt)));
            plant!(CowNoFlush; core::mem::forget(debt), debt.settle());
        }
        self.map_exclusive(&mut run, block);
        Ok(FaultProgress::Done(FaultKind::Minor))
    }

    planted! {
        /// Maps the copy before the flush of the original.
        fn map_unflushed(
            &self,
            run: &mut pagewright_table::EntryRun<'_, '_, P>,
            copy: pagewright_tlb::frames::Block,
            debt: pagewright_tlb::Debt<'_, P, pagewright_table::OwnedLeaf>,
        ) -> FaultProgress {
            self.map_exclusive(run, copy);
            debt.settle();
            FaultProgress::Done(FaultKind::Minor)
        }
    }

    /// Locks the table if the entry is unchanged, except for bits that the walker sets.
    #[inline(always)]
    pub(super) fn lock_if_same_leaf(&self) -> Option<LockedTable<'_, P>> {
        self.found.lock_if_same_leaf()
    }

    pub(super) fn seen_leaf(&self) -> Option<LeafView> {
        self.found.entry.leaf()
    }
}
