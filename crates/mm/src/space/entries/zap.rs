//! Clears the entries of a range (`zap_page_range`, `unmap_page_range`).

use crate::mm::Mm;
use crate::space::entries::MmHooks;
use crate::space::{Space, Vma};
use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{EntryHooks, EntryView, LeafView, LockedTable, OwnTables, Tables};
use pagewright_tlb::{Batch, Gather};
use pagewright_types::{PageRange, Rights, VirtAddr};

/// Which entries of a range to clear (`struct zap_details`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zap {
    /// All, because the mapping is removed.
    Everything,
    /// All, because the space has ended and no CPU will run it.
    ///
    /// No loss of rights is declared.
    SpaceEnd,
    /// Pages and swap entries, but not markers, which belong to the mapping.
    Pages,
    /// Pages of files only, but not private copies, swap entries and markers.
    FilePages,
}

impl<P: Platform> Mm<P> {
    /// Clears the entries of `range` that `what` selects, in one mapping.
    ///
    /// `gather` absorbs the references and the flush that is owed.
    pub(crate) fn zap(
        &self,
        space: &Space<P>,
        tables: OwnTables<'_, P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        match what.1 {
            Zap::Everything | Zap::Pages => self.declare_reduced(space, range, Rights::empty()),
            Zap::SpaceEnd | Zap::FilePages => {}
        }
        let mut rest = range;
        loop {
            let mut migrating = None;
            for (table, part) in tables.locked(rest, what.0.mlocked()) {
                self.zap_table(space, &table, what, part, gather);
                gather.publish(table.table());
                migrating = migrating.or_else(|| table.first_migrating(part));
            }
            let Some(va) = migrating else { return };
            tables.await_migration(va);
            rest = PageRange::new(va, rest.end());
        }
    }

    /// Clears the entries of `range` that `what` selects, for every space that shares their tables.
    ///
    /// A file that is truncated loses its pages in every space, so no table has to be broken.
    /// `batch` absorbs the references and the flushes that the sharers owe, and those that reclaim
    /// owes of entries which it has cleared before.
    pub(crate) fn zap_for_all(
        &self,
        space: &Space<P>,
        tables: Tables<'_, P>,
        what: (&Vma<P>, Zap),
        range: PageRange,
        batch: &mut Batch<'_, P>,
    ) {
        let mut rest = range;
        while let Some(va) = self.zap_part_for_all(space, tables, what, rest, batch) {
            tables.await_migration(va);
            rest = PageRange::new(va, rest.end());
        }
    }

    /// As [`zap_for_all`](Self::zap_for_all), but for pages that are being moved.
    ///
    /// Returns the address of the first of these.
    fn zap_part_for_all(
        &self,
        space: &Space<P>,
        tables: Tables<'_, P>,
        (vma, what): (&Vma<P>, Zap),
        range: PageRange,
        batch: &mut Batch<'_, P>,
    ) -> Option<VirtAddr> {
        let (context, token) = (space.table().context(), tables.family_token());
        let filter = ZapFilter { mm: self, space, what };
        let (mut hooks, mut migrating) = (MmHooks(self), None);
        for (table, part) in tables.locked_for_all(range, token.as_ref()) {
            if what == Zap::Pages {
                self.declare_reduced(space, part, Rights::empty());
            }
            for va in table.entries(part) {
                match table.entry(va) {
                    entry if !filter.takes(va, entry) => {}
                    EntryView::Leaf(_) => {
                        let debt = table.run(vma.mlocked()).unmap(va);
                        let Some(debt) = debt else { continue };
                        if let Some(folio) = debt.detached().folio() {
                            hooks.unmapped(self.frames().folio_of(folio));
                        }
                        debt.absorb_into(batch, context);
                    }
                    EntryView::Soft(soft) => {
                        table.run(vma.mlocked()).unmap_soft(va);
                        hooks.release_soft(soft);
                    }
                    EntryView::Empty | EntryView::Table => {}
                }
            }
            plant!(ZapForAllIgnoresPending; (), table.absorb_pending(batch, context));
            migrating = migrating.or_else(|| table.first_migrating(part));
        }
        migrating
    }

    /// Clears the entries of `part` that `what` selects, all under one table.
    ///
    /// The caller has declared the loss of rights, except for [`Zap::FilePages`], where only this
    /// function knows which entries lose them.
    #[inline]
    pub(in crate::space) fn zap_table(
        &self,
        space: &Space<P>,
        table: &LockedTable<'_, P>,
        what: (&Vma<P>, Zap),
        part: PageRange,
        gather: &mut Gather<'_, P>,
    ) {
        let (vma, what) = what;
        let filter = ZapFilter { mm: self, space, what };
        table.unmap_run(part, vma.mlocked(), &mut MmHooks(self), |va, entry| filter.takes(va, entry), gather);
    }
}

impl Zap {
    /// Returns whether a soft entry is cleared.
    pub(in crate::space) fn takes_soft(self, soft: SoftEntry) -> bool {
        match soft.kind {
            SoftKind::Marker => matches!(self, Self::Everything | Self::SpaceEnd),
            SoftKind::Swap => self != Self::FilePages,
            // INV-MIGRATE-WAIT: the caller waits for it, and comes again.
            SoftKind::Migration => plant!(ZapDropsMigration; true, false),
            SoftKind::InTransition => unreachable!("INV-SPLIT-HIDDEN: an entry in transition is cleared"),
        }
    }
}

/// Which leaves a zap clears.
struct ZapFilter<'a, P: Platform> {
    mm: &'a Mm<P>,
    space: &'a Space<P>,
    what: Zap,
}

impl<P: Platform> ZapFilter<'_, P> {
    /// Whether an entry is cleared; declares the loss of rights where only this is known of it.
    #[inline]
    fn takes(&self, va: VirtAddr, entry: EntryView) -> bool {
        match entry {
            EntryView::Leaf(leaf) => self.what != Zap::FilePages || self.takes_page_of_file(va, leaf),
            EntryView::Soft(soft) => self.what.takes_soft(soft),
            EntryView::Empty | EntryView::Table => false,
        }
    }

    fn takes_page_of_file(&self, va: VirtAddr, leaf: LeafView) -> bool {
        let of_file = self.mm.vm_normal_folio(leaf).is_some_and(|folio| !folio.is_anon());
        if of_file {
            self.mm.declare_reduced(self.space, PageRange::page(va), Rights::empty());
        }
        of_file
    }
}
