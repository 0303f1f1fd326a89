//! Migration entries: what stands for a leaf while its page is moved (`set_pmd_migration_entry`).
//!
//! A migration entry keeps everything that the leaf had: the reference, the mapping, the place in
//! the resident set, the lock of its memory. It holds the leaf, so that every bit comes back.
//!
//! ```text
//!   leaf ─ unmap_for_migration ─▶ migration entry ─ restore_migrated ─▶ leaf of the copy, or the leaf
//! ```
//!
//! **INV-MIGRATE-COUNT** The record of a table counts its migration entries; a table with one is
//! not freed.
//!
//! Only their migrator puts them back, by place. Taking a table back may strip an entry of its
//! right to store.
//!
//! Neighbours: `mm` decides what moves, keeps the places, and waits before it edits.

use super::EntryRun;
use super::code::publish_code;
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::{EditRight, LockedTable, TableRight};
use crate::page_table::PageTable;
use crate::split::fill_parts;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, Leaf, Pte, PteSlot, SoftEntry, TableEntry};
use pagewright_sync::{Platform, rank};
use pagewright_tlb::{Debt, Tlb};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, Level, PageRange, Pfn, VirtAddr};

impl<'h, P: Platform, R: EditRight<'h, P>> EntryRun<'_, 'h, P, R> {
    /// Replaces the leaf for `va` by a migration entry, unless `keep` returns true.
    ///
    /// `keep` is called when the entry no longer shows the leaf to lockless walkers. If it returns
    /// true, the leaf is restored and no flush is owed. `None` if there was no leaf of a folio, or
    /// it was restored. A huge leaf keeps its deposit.
    pub fn unmap_for_migration(&mut self, va: VirtAddr, keep: impl FnOnce(LeafView) -> bool) -> Option<R::Debt<()>> {
        let table = self.table;
        let seen = table.leaf(va).filter(|leaf| !leaf.is_special())?.leaf();
        let (old, leaf) = table.swap_leaf(va, P::Isa::soft(SoftEntry::migration(seen)));
        if keep(LeafView::new(leaf, table.level(), false)) {
            table.put(va, old);
            return None;
        }
        if leaf != seen {
            // A walker has set a bit since the leaf was read.
            table.put(va, P::Isa::soft(SoftEntry::migration(leaf)));
        }
        table.page().adjust_migrating(1);
        let debt = Debt::new(table.tables.tlb, table.context(), va, table.owed(old, Pte::EMPTY), ());
        Some(table.right.owe(debt.at(table.slot_of(va)).cleared(leaf.rights)))
    }
}

/// Puts the leaf back for which the migration entry at `place` stands, with the frame `to`.
///
/// The caller's flush of the entry is complete, so it owes none, whatever the entry's table owes
/// for others. If translations of the entry linger instead, the leaf covers them: it is read-only,
/// and the contents of `to` are equal (INV-LINGER-COVERS). Every space that reaches the table gets
/// the leaf.
///
/// Takes the lock of the table.
///
/// # Panics
/// INV-MIGRATE-COUNT: when there is no migration entry.
pub fn restore_migrated<P: Platform>(tlb: &Tlb<P>, place: PteSlot, to: Pfn) {
    let page = tlb.frames().table(place.table);
    let level = page.level();
    let store = || {
        let leaf = Leaf { pfn: to, ..migrating_leaf(tlb, level, place) };
        publish_code(tlb, level, leaf);
        tlb.fx().declare(Fact::EditInPlace { table: place.table, begins: true });
        tlb.fx().store(place, P::Isa::leaf(level, leaf));
        tlb.fx().publish();
        tlb.fx().declare(Fact::EditInPlace { table: place.table, begins: false });
        page.adjust_migrating(-1);
    };
    if level == Level::PTE {
        let _guard = page.lock::<rank::TableRank>();
        store();
    } else {
        let _guard = page.lock::<rank::TableUpperRank>();
        store();
    }
}

/// Puts leaves of the pages back for which the huge migration entry at `place` stands.
///
/// They are in the entry's deposit, which is hooked. The folio has been split, and each of its
/// pages counts the entry already. `tree` is of the only space that reaches the table.
///
/// As [`restore_migrated`], with its panics.
pub fn restore_migrated_by_page<P: Platform>(tlb: &Tlb<P>, tree: &PageTable, place: PteSlot) {
    let page = tlb.frames().table(place.table);
    let _guard = page.lock::<rank::TableUpperRank>();
    let leaf = migrating_leaf(tlb, page.level(), place);
    let child = tlb.frames().withdraw_table(place.table);
    tree.adjust_deposits(-1);
    fill_parts(tlb, place.table, child, leaf);
    page.adjust_migrating(-1);
    tlb.fx().store(place, P::Isa::table(TableEntry::own(child)));
    tlb.fx().publish();
    tlb.count(Counter::ThpSplitPmd, 1);
}

/// The leaf for which a migration entry stands.
fn migrating_leaf<P: Platform>(tlb: &Tlb<P>, level: Level, place: PteSlot) -> Leaf {
    let leaf = match P::Isa::decode(level, tlb.fx().load(place)) {
        Entry::Soft(soft) => soft.migrating(),
        Entry::Empty | Entry::Leaf(_) | Entry::Table(_) => None,
    };
    leaf.unwrap_or_else(|| panic!("INV-MIGRATE-COUNT: the migration entry at {place:?} is gone"))
}

impl<P: Platform, R: TableRight> LockedTable<'_, P, R> {
    /// The first address of `part` with a migration entry.
    #[inline]
    pub fn first_migrating(&self, part: PageRange) -> Option<VirtAddr> {
        if self.page().migrating() == 0 {
            return None;
        }
        self.entries(part).find(|va| self.entry(*va).is_migrating())
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Waits until the entry for `va` is no migration entry.
    ///
    /// The caller holds nothing that its migrator may wait for.
    #[cold]
    pub fn await_migration(&self, va: VirtAddr) {
        while self.peek(va).is_migrating() {
            self.tlb.fx().relax();
        }
    }

    /// The first address of the own tables of `range` with a migration entry.
    ///
    /// If the space is held for writing, no other appears there. Takes no lock.
    pub fn first_migrating(&self, range: PageRange) -> Option<VirtAddr> {
        let mut spans = self.found_spans(range);
        while let Some((span, found)) = spans.next_found() {
            if found.level > Level::PTE && EntryView::decode::<P::Isa>(found.level, found.pte, false).is_migrating() {
                return Some(span.start());
            }
            if found.level == Level::PTE && self.tlb.frames().table(found.slot.table).migrating() > 0 {
                let migrating = |va: &VirtAddr| self.peek(*va).is_migrating();
                if let Some(va) = span.iter().find(migrating) {
                    return Some(va);
                }
            }
        }
        None
    }
}
