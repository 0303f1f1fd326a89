//! Clearing the entries of a range (`zap_pte_range`).
//!
//! One pass over the entries of a table. The page of a private mapping, which most entries map, has
//! one reference and one mapping: one exchange gives up both, and its entry is cleared by a plain
//! store, since the bits that a walker might set meanwhile say nothing that outlives the page. A
//! page of a file that a walker cannot mark as dirty is cleared by a plain store, too.

use super::last_leaf::LastLeaf;
use super::{EntryRun, Mlocked};
use crate::leaf_view::LeafView;
use crate::locked_table::LockedTable;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioRef, RssKind};
use pagewright_tlb::{Gather, GatherRun};
use pagewright_types::{PageRange, VirtAddr};

/// Decisions of an unmap that the entry layer cannot make.
pub trait UnmapHooks {
    /// Whether the leaf for `va` is cleared.
    fn takes(&mut self, va: VirtAddr, leaf: LeafView) -> bool;

    /// Notes that an entry of a folio was cleared, and that others refer to the folio.
    fn unmapped(&mut self, folio: Folio<'_>);

    /// Whether a soft entry is cleared.
    fn takes_soft(&mut self, soft: SoftEntry) -> bool;

    /// Gives up what a soft entry held that was cleared.
    fn unmapped_soft(&mut self, soft: SoftEntry);
}

impl<'h, P: Platform> LockedTable<'h, P> {
    /// Clears the entries of `part` that `hooks` take.
    ///
    /// `gather` takes the references of the leaves, and the flush. A dirty page of a file or of
    /// shared memory is marked as dirty, as by [`EntryRun::unmap`].
    ///
    /// # Panics
    /// In debug builds when `gather` belongs to another space.
    #[inline(never)]
    pub fn unmap_run(
        &self,
        part: PageRange,
        mlocked: Mlocked,
        hooks: &mut impl UnmapHooks,
        gather: &mut Gather<'_, P>,
    ) {
        debug_assert!(gather.is_of(self.context()), "INV-TLB-DEBT: debt of another space");
        gather.meet(self.table());
        if self.page().live() == 0 {
            return;
        }
        let level = self.level();
        let mut run = self.run(mlocked);
        let mut debts = gather.run(level);
        let mut last = LastLeaf::default();
        for occupied in self.occupied(self.indices(part)) {
            for index in occupied {
                let pte = self.load(index);
                if pte.is_empty() {
                    continue;
                }
                let rights = last.of::<P::Isa>(pte, || match P::Isa::decode(level, pte) {
                    Entry::Leaf(leaf) => Some((leaf.rights, leaf.flags)),
                    Entry::Empty | Entry::Soft(_) | Entry::Table(_) => None,
                });
                if let Some(&(rights, flags)) = rights {
                    let leaf = Leaf { pfn: P::Isa::frame(pte), rights, flags };
                    if hooks.takes(self.address(index), LeafView::new(leaf, level, false)) {
                        run.clear(index, (pte, leaf), hooks, &mut debts);
                    }
                } else if let Entry::Soft(soft) = P::Isa::decode(level, pte)
                    && hooks.takes_soft(soft)
                {
                    run.unmap_soft(self.address(index));
                    hooks.unmapped_soft(soft);
                }
            }
        }
    }
}

impl<'h, P: Platform> EntryRun<'_, 'h, P> {
    /// Clears a leaf; its reference and its flush go to `debts`.
    #[inline]
    #[allow(unsafe_code)]
    fn clear(
        &mut self,
        index: usize,
        (pte, leaf): (Pte, Leaf),
        hooks: &mut impl UnmapHooks,
        debts: &mut GatherRun<'_, '_, P>,
    ) {
        let (table, frames) = (self.table, self.frames());
        let va = table.address(index);
        plant!(FlushBeforeClear => self.table.tables.tlb.flush(
            self.table.context(),
            pagewright_tlb::FlushInfo { range: Some(PageRange::page(va)), level: self.table.level(), freed_tables: false },
        ));
        let special = leaf.flags.contains(LeafFlags::SPECIAL);
        let mapped = if special { None } else { Some(frames.folio(leaf.pfn)) };
        let kind = mapped.map(Folio::rss_kind);
        // INV-TABLE-TOUCHED: only of a page of a file or of shared memory is the dirty bit needed.
        let bits_count = matches!(kind, Some(RssKind::File | RssKind::Shmem)) && leaf.may_be_dirtied();
        let leaf = if plant!(DirtyBitLost; false, bits_count) {
            table.swap_leaf(va, Pte::EMPTY).1
        } else {
            table.store(index, Pte::EMPTY);
            leaf
        };
        self.change.live -= 1;
        if plant!(FlushBeforeClear; false, table.owes_when_cleared(pte, leaf)) {
            debts.owe(va);
        }
        table.free_deposit();
        let Some((folio, kind)) = mapped.zip(kind) else { return };
        // SAFETY: INV-TABLE-OWNS – the leaf was cleared under the table's lock and is not restored,
        // so its reference has left the entry.
        let reference = unsafe { folio.ref_from_raw() };
        plant!(MapcountLost => return self.clear_counted(leaf, reference, hooks, debts));
        if self.mlocked.0 || folio.is_large() {
            return self.clear_counted(leaf, reference, hooks, debts);
        }
        self.use_counts(folio);
        let reference = if kind == RssKind::Anon {
            match debts.detach_last_entry(reference) {
                Ok(()) => return self.change.add(kind, -1, 1),
                Err(reference) => reference,
            }
        } else {
            // The cache has a reference, too, unless the page was removed from its file.
            if leaf.flags.contains(LeafFlags::DIRTY) {
                folio.set_flags(FolioFlags::DIRTY);
            }
            reference
        };
        self.change.add(kind, -1, u32::from(folio.unmap_small()));
        hooks.unmapped(folio);
        debts.detach_shared(reference);
    }

    /// Uncounts a leaf that was cleared, and gives up its reference.
    fn clear_counted(
        &mut self,
        leaf: Leaf,
        reference: FolioRef,
        hooks: &mut impl UnmapHooks,
        debts: &mut GatherRun<'_, '_, P>,
    ) {
        let folio = self.frames().folio_of(&reference);
        self.count_unmapped(folio, leaf.pfn);
        if leaf.flags.contains(LeafFlags::DIRTY) && !folio.is_anon() {
            folio.set_flags(FolioFlags::DIRTY);
        }
        hooks.unmapped(folio);
        debts.detach(reference);
    }
}
