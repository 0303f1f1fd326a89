//! Clearing entries.

use super::EntryRun;
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::EditRight;
use crate::owned_leaf::OwnedLeaf;
use pagewright_arch::{Isa, Leaf, LeafFlags, Pte, SoftEntry};
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_tlb::{Debt, OwedFlush};
use pagewright_types::VirtAddr;

impl<'h, P: Platform, R: EditRight<'h, P>> EntryRun<'_, 'h, P, R> {
    /// Clears the leaf for `va` (`ptep_get_and_clear`); its debt owns the leaf and its reference.
    ///
    /// A dirty page of a file or of shared memory is marked as dirty: if reclaim is writing it, the
    /// mark keeps reclaim from freeing it. `None` if there is no leaf; then nothing changed.
    #[inline]
    pub fn unmap(&mut self, va: VirtAddr) -> Option<R::Debt<OwnedLeaf>> {
        self.table.leaf(va)?;
        plant!(FlushBeforeClear => self.flush_uncleared(va));
        let (old, leaf) = self.table.swap_leaf(va, Pte::EMPTY);
        self.change.live -= 1;
        let owed = plant!(FlushBeforeClear; OwedFlush::Nothing, self.table.owed(old, Pte::EMPTY));
        Some(self.removed(va, leaf, owed))
    }

    planted! {
        /// Flushes a leaf that a walk may cache again before it is cleared.
        pub(super) fn flush_uncleared(&self, va: VirtAddr) {
            let (table, range) = (self.table, Some(pagewright_types::PageRange::page(va)));
            let flush = pagewright_tlb::FlushInfo { range, level: table.level(), freed_tables: false };
            table.tables.tlb.flush(table.context(), flush);
        }
    }

    /// As [`unmap`](Self::unmap), except that the leaf is restored if `keep` returns true.
    ///
    /// `keep` is called when the entry no longer shows the leaf to lockless walkers. `None` if
    /// there was no leaf, or it was restored; then no flush is owed.
    pub fn unmap_unless(&mut self, va: VirtAddr, keep: impl FnOnce(LeafView) -> bool) -> Option<R::Debt<OwnedLeaf>> {
        let debt = self.replace(va, Pte::EMPTY, keep)?;
        self.change.live -= 1;
        Some(debt)
    }

    /// Replaces the leaf for `va` by the soft entry that `soft` makes of it.
    ///
    /// The debt owns the leaf and its reference. `keep` is called when the entry no longer shows
    /// the leaf to lockless walkers. If it returns true, the leaf is restored and no flush is owed.
    /// `None` if there was no leaf, or it was restored.
    pub fn unmap_to_soft(
        &mut self,
        va: VirtAddr,
        soft: impl FnOnce(LeafView) -> SoftEntry,
        keep: impl FnOnce(LeafView) -> bool,
    ) -> Option<R::Debt<OwnedLeaf>> {
        let soft = soft(self.table.leaf(va)?);
        let debt = self.replace(va, P::Isa::soft(soft), keep)?;
        self.count_soft(soft, 1);
        Some(debt)
    }

    /// Puts `new`, which no TLB ever sees, in the place of the leaf for `va`, or leaves it.
    fn replace(&mut self, va: VirtAddr, new: Pte, keep: impl FnOnce(LeafView) -> bool) -> Option<R::Debt<OwnedLeaf>> {
        self.table.leaf(va).filter(|leaf| !leaf.is_special())?;
        let (old, leaf) = self.table.swap_leaf(va, new);
        if keep(LeafView::new(leaf, self.table.level(), false)) {
            self.table.put(va, old);
            return None;
        }
        Some(self.removed(va, leaf, self.table.owed(old, new)))
    }

    /// Takes over a leaf that was just removed, and uncounts it.
    #[inline]
    #[allow(unsafe_code)]
    fn removed(&mut self, va: VirtAddr, leaf: Leaf, owed: OwedFlush) -> R::Debt<OwnedLeaf> {
        let table = self.table;
        table.free_deposit();
        if !leaf.flags.contains(LeafFlags::SPECIAL) {
            let folio = self.frames().folio(leaf.pfn);
            self.count_unmapped(folio, leaf.pfn);
            if leaf.flags.contains(LeafFlags::DIRTY) && !folio.is_anon() {
                folio.set_flags(FolioFlags::DIRTY);
            }
        }
        // SAFETY: INV-TABLE-OWNS – an exchange has removed the leaf, and it is not restored.
        let owned = unsafe { OwnedLeaf::removed(self.frames(), leaf) };
        let debt = Debt::new(table.tables.tlb, table.context(), va, owed, owned);
        table.right.owe(debt.at(table.slot_of(va)).cleared(leaf.rights))
    }

    /// Clears a leaf that no walker has seen, and drops its reference.
    #[allow(unsafe_code)]
    pub(crate) fn discard(&mut self, va: VirtAddr) {
        let (_, leaf) = self.table.swap_leaf(va, Pte::EMPTY);
        self.change.live -= 1;
        if !leaf.flags.contains(LeafFlags::SPECIAL) {
            self.count_unmapped(self.frames().folio(leaf.pfn), leaf.pfn);
        }
        // SAFETY: INV-TABLE-OWNS – an exchange has removed the leaf, and it is not restored.
        let owned = unsafe { OwnedLeaf::removed(self.frames(), leaf) };
        if let Some(block) = owned.into_folio().and_then(|folio| self.frames().put(folio)) {
            self.table.tables.tlb.free(block);
        }
    }

    /// Clears a soft entry and returns it.
    ///
    /// Owes no flush, since no TLB caches one (INV-SOFT-UNSEEN). `None` if the entry is not a soft
    /// one; then nothing changed.
    pub fn unmap_soft(&mut self, va: VirtAddr) -> Option<SoftEntry> {
        let EntryView::Soft(soft) = self.table.entry(va) else { return None };
        self.table.store_not_present(va, Pte::EMPTY);
        self.count_soft(soft, -1);
        self.change.live -= 1;
        Some(soft)
    }
}
