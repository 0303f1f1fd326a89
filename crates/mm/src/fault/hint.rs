//! Accesses to leaves that a scan made inaccessible (`do_numa_page`).

use super::{Fault, FaultKind, FaultProgress, permits};
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EditForAll, LeafView, LockedTable};
use pagewright_types::{Access, Level, Rights};

impl<P: Platform> Fault<'_, P> {
    /// Judges whether the page of a hint moves, once, or gives the leaf the rights of its mapping.
    pub(super) fn serve_hint(&self) -> FaultProgress {
        let token = self.family_token();
        let table = if self.found.is_own() {
            self.found.lock_for_all()
        } else {
            self.tables.lock_for_all(self.va, token.as_ref())
        };
        // As the table says: a leaf that was found below a shared pointer seemed not exclusive.
        let hint = table.and_then(|table| {
            let leaf = table.leaf(self.va).filter(|leaf| table.level() == Level::PTE && leaf.rights().is_empty())?;
            Some((table, leaf))
        });
        let Some((table, leaf)) = hint else { return FaultProgress::RaceLost };
        if !self.hint_is_judged
            && let Some(folio) = self.mm.vm_normal_folio(leaf)
        {
            let page = self.mm.judge_hint(self.vma, folio);
            if page.moves.is_some() {
                return FaultProgress::Hinted(page);
            }
            self.mm.end_hint(self.space, page);
        }
        self.restore_hint(&table, leaf)
    }

    /// Gives a hint the rights that `mprotect` would give it.
    ///
    /// If the flush of the scan is pending, it is owed here: another TLB may still have a right
    /// that the leaf does not get back. Below a shared pointer, a private leaf gets no right to
    /// store, because it is for all sharers. Where translations of pages that move may linger, no
    /// leaf gets it: only a page that is read keeps them.
    fn restore_hint(&self, table: &LockedTable<'_, P, EditForAll<'_, P>>, leaf: LeafView) -> FaultProgress {
        let allowed = self.vma.leaf_rights(leaf.flags());
        let allowed = if self.mm.lets_moved_linger() { allowed - Rights::WRITE } else { allowed };
        let mut rights = plant!(HintGivesEveryRight; self.mapping_rights(), allowed);
        if self.is_shared() && !self.vma.is_shared() {
            rights -= Rights::WRITE;
        }
        let restored = |leaf: LeafView| leaf.with_rights(rights).with(LeafFlags::ACCESSED);
        if let Some(debt) = table.run(self.vma.mlocked()).protect(self.va, restored) {
            debt.settle();
        }
        let is_stored_below_shared = self.is_shared() && self.access() == Access::Write;
        if permits(rights, self.access()) && !is_stored_below_shared {
            FaultProgress::Done(FaultKind::Minor)
        } else {
            FaultProgress::Again(FaultKind::Minor)
        }
    }
}
