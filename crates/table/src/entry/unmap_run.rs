//! Clearing the entries of a range (`zap_pte_range`).
//!
//! One pass over the entries of a table. The page of a private mapping, which most entries map, has
//! one reference and one mapping: one exchange gives up both, and its entry is cleared by a plain
//! store, since the bits that a walker might set meanwhile say nothing that outlives the page. A
//! page of a file that a walker cannot mark as dirty is cleared by a plain store, too. Entries of a
//! large folio that follow each other are counted together.

use super::hooks::EntryHooks;
use super::last_leaf::LastLeaf;
use super::piece_run::PieceRun;
use super::{EntryRun, Mlocked};
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::LockedTable;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::{Folio, FolioFlags, FolioRef, RssKind};
use pagewright_tlb::{Gather, GatherRun};
use pagewright_types::{Level, PageRange, VirtAddr};

impl<'h, P: Platform> LockedTable<'h, P> {
    /// Clears the leaves and soft entries of `part` that `takes` accepts.
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
        hooks: &mut impl EntryHooks,
        mut takes: impl FnMut(VirtAddr, EntryView) -> bool,
        gather: &mut Gather<'_, P>,
    ) {
        debug_assert!(gather.is_of(self.context()), "INV-TLB-DEBT: debt of another space");
        gather.meet(self.table());
        if self.page().live() == 0 {
            return;
        }
        let level = self.level();
        let mut clearing = Clearing { run: self.run(mlocked), debts: gather.run(level), pieces: None };
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
                    if takes(self.address(index), EntryView::Leaf(LeafView::new(leaf, level, false))) {
                        clearing.clear(index, (pte, leaf), hooks);
                    }
                } else if let Entry::Soft(soft) = P::Isa::decode(level, pte)
                    && takes(self.address(index), EntryView::Soft(soft))
                {
                    clearing.run.unmap_soft(self.address(index));
                    hooks.release_soft(soft);
                }
            }
        }
        clearing.finish_pieces(hooks);
    }
}

/// An unmap of entries of one table.
struct Clearing<'t, 'h, 'g, 'c, P: Platform> {
    run: EntryRun<'t, 'h, P>,
    /// What the cleared entries owe and have detached.
    debts: GatherRun<'g, 'c, P>,
    /// Cleared entries of a large folio that are not uncounted yet.
    pieces: Option<PieceRun>,
}

impl<P: Platform> Clearing<'_, '_, '_, '_, P> {
    /// Clears a leaf.
    #[inline]
    #[allow(unsafe_code)]
    fn clear(&mut self, index: usize, (pte, leaf): (Pte, Leaf), hooks: &mut impl EntryHooks) {
        let (table, frames) = (self.run.table, self.run.frames());
        let va = table.address(index);
        plant!(FlushBeforeClear => self.run.flush_uncleared(va));
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
        self.run.change.live -= 1;
        if plant!(FlushBeforeClear; false, table.owes_when_cleared(pte, leaf)) {
            self.debts.owe(va);
        }
        table.free_deposit();
        let Some((folio, kind)) = mapped.zip(kind) else { return };
        if folio.is_large() && table.level() == Level::PTE {
            return self.take_piece(folio, leaf, hooks);
        }
        // SAFETY: INV-TABLE-OWNS – the leaf was cleared under the table's lock and is not restored,
        // so its reference has left the entry.
        let reference = unsafe { folio.ref_from_raw() };
        plant!(MapcountLost => return self.give_up_counted(leaf, reference, hooks));
        if self.run.mlocked.0 || folio.is_large() {
            return self.give_up_counted(leaf, reference, hooks);
        }
        self.run.use_counts(folio);
        let reference = if kind == RssKind::Anon {
            match self.debts.detach_last_entry(reference) {
                Ok(()) => return self.run.change.add(kind, -1, 1),
                Err(reference) => reference,
            }
        } else {
            // The cache has a reference, too, unless the page was removed from its file.
            if leaf.flags.contains(LeafFlags::DIRTY) {
                folio.set_flags(FolioFlags::DIRTY);
            }
            reference
        };
        self.run.change.add(kind, -1, u32::from(folio.unmap_small()));
        hooks.unmapped(folio);
        self.debts.detach_shared(reference);
    }

    /// Uncounts a leaf that was cleared, and gives up its reference.
    fn give_up_counted(&mut self, leaf: Leaf, reference: FolioRef, hooks: &mut impl EntryHooks) {
        let folio = self.run.frames().folio_of(&reference);
        self.run.count_unmapped(folio, leaf.pfn);
        if leaf.flags.contains(LeafFlags::DIRTY) && !folio.is_anon() {
            folio.set_flags(FolioFlags::DIRTY);
        }
        hooks.unmapped(folio);
        self.debts.detach(reference.into());
    }

    /// Adds a cleared entry of a large folio to the run before it, or begins a run.
    fn take_piece(&mut self, folio: Folio<'_>, leaf: Leaf, hooks: &mut impl EntryHooks) {
        let piece = PieceRun::of(folio, leaf);
        if !self.pieces.as_mut().is_some_and(|run| run.join(&piece)) {
            self.finish_pieces(hooks);
            self.pieces = Some(piece);
        }
        if leaf.flags.contains(LeafFlags::DIRTY) && !folio.is_anon() {
            folio.set_flags(FolioFlags::DIRTY);
        }
    }

    /// Uncounts the cleared entries of a large folio, and gives up their references.
    #[allow(unsafe_code)]
    fn finish_pieces(&mut self, hooks: &mut impl EntryHooks) {
        let Some(pieces) = self.pieces.take() else { return };
        let folio = self.run.frames().folio(pieces.head);
        self.run.count_pieces_unmapped(folio, &pieces);
        hooks.unmapped(folio);
        // SAFETY: INV-TABLE-OWNS – as in `clear`, of each entry of the run.
        self.debts.detach(unsafe { folio.refs_from_raw(pieces.pages.len() as u32) });
    }
}
