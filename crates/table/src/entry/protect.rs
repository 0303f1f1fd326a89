//! Changing entries that stay.
//!
//! **INV-TABLE-SAME-FRAME** An update of a leaf keeps its frame. To change the frame, the leaf is
//! cleared, its debt is settled, and another leaf is installed.

use super::EntryRun;
use super::code::publish_code;
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::{EditRight, LockedTable, TableRight};
use pagewright_arch::{Entry, Isa, Pte, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::{Debt, OwedFlush};
use pagewright_types::VirtAddr;

impl<'h, P: Platform, R: EditRight<'h, P>> EntryRun<'_, 'h, P, R> {
    /// Changes rights and flags of the leaf for `va`, atomically against the walker's updates.
    ///
    /// `edit` may be called several times. `None` if there is no leaf, or `edit` did not change it.
    #[inline(always)]
    pub fn protect(&mut self, va: VirtAddr, edit: impl Fn(LeafView) -> LeafView) -> Option<R::Debt<()>> {
        let table = self.table;
        let (tlb, level, index) = (table.tables.tlb, table.level(), table.index(va));
        let mut old = table.load(index);
        loop {
            let Entry::Leaf(leaf) = P::Isa::decode(level, old) else { return None };
            let edited = edit(LeafView::new(leaf, level, false)).leaf();
            debug_assert_eq!(leaf.pfn, edited.pfn, "INV-TABLE-SAME-FRAME: the view of another leaf");
            let new = P::Isa::leaf(level, edited);
            if new == old {
                return None;
            }
            publish_code(tlb, level, edited);
            self.settle_before_widening(leaf, edited);
            match table.compare_exchange(index, old, new) {
                Ok(()) => {
                    let owed = plant!(ProtectNoFlush; OwedFlush::Nothing, table.owed(old, new));
                    let debt = Debt::new(tlb, table.context(), va, owed, ()).at(table.slot(index));
                    return Some(table.right.owe(debt));
                }
                Err(now) => old = now,
            }
        }
    }

    /// Lets the only space that has a private page store to it (`wp_page_reuse`).
    ///
    /// The leaf for `va` must lack no other right of its mapping. It then has all of
    /// [`LeafFlags::STORED`](pagewright_arch::LeafFlags::STORED). Owes no flush, because no right
    /// is lost.
    #[inline(always)]
    pub fn reuse(&mut self, va: VirtAddr) {
        let table = self.table;
        self.settle_before_reuse(va);
        table.edit_leaf(table.index(va), |old| {
            let new = P::Isa::reused(old);
            debug_assert_eq!(table.owed(old, new), OwedFlush::Nothing, "INV-REPLACE: {old:?} is reused");
            new
        });
    }

    /// Replaces a soft entry by another of its kind.
    ///
    /// Owes no flush, since no TLB caches either (INV-SOFT-UNSEEN).
    ///
    /// # Panics
    /// In debug builds when the entry is not a soft one of that kind.
    pub fn change_soft(&mut self, va: VirtAddr, soft: SoftEntry) {
        debug_assert!(
            matches!(self.table.entry(va), EntryView::Soft(old) if old.kind == soft.kind),
            "INV-TABLE-EMPTY: {:?} at {va} becomes {soft:?}",
            self.table.entry(va)
        );
        self.table.store_not_present(va, P::Isa::soft(soft));
    }
}

impl<P: Platform, R: TableRight> LockedTable<'_, P, R> {
    /// Takes the right to store and the exclusive bit from a leaf below a shared pointer.
    ///
    /// Owes no flush, since no store was allowed through the path.
    pub(crate) fn strip_leaf(&self, index: usize) {
        self.edit_leaf(index, P::Isa::shared);
    }

    /// Replaces a leaf by what `edit` makes of it, atomically against the walker's updates.
    ///
    /// `edit` may be called several times. The caller knows that no flush is owed.
    #[inline(always)]
    fn edit_leaf(&self, index: usize, edit: impl Fn(Pte) -> Pte) {
        let mut old = self.load(index);
        while let Err(now) = self.compare_exchange(index, old, edit(old)) {
            old = now;
        }
    }
}
