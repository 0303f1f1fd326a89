//! The entry layer: edits of entries, each with everything that it accounts for.
//!
//! | edit | reference | mapcount | resident set, gauges, table's record | locked memory | debt |
//! | --- | --- | --- | --- | --- | --- |
//! | [`map`](EntryRun::map) | the caller's goes into the entry | +1 | + | + | none: flushes first what is unflushed there |
//! | [`unmap`](EntryRun::unmap), [`unmap_run`](LockedTable::unmap_run) | leaves with the debt | −1 | − | − | yes |
//! | [`protect`](EntryRun::protect), [`protect_run`](LockedTable::protect_run) | | | | | if rights are lost |
//! | [`unmap_for_migration`](EntryRun::unmap_for_migration), [`restore_migrated`] | | | | | of the first |
//! | [`copy_run`](LockedTable::copy_run) | +1 | +1 | + of the child | child: none | of the parent, if rights are lost |
//! | [`move_run`](LockedTable::move_run) | | | table's record | | yes |
//!
//! **INV-TABLE-COUNTS** An edit of an entry counts what it changes, in one place: reference,
//! mapcount, resident set, gauges, locked memory, and the record of the table.
//!
//! No other code stores an entry, so no edit can miss its accounting.
//!
//! An [`EntryRun`] is the edits of one table under one hold of its lock. What they change is added
//! up, and told to the table's record, the space and the CPU's gauges once, when the run ends.
//!
//! A huge leaf counts its pages in the resident set and one entry in the table's record. Swap
//! entries count as entries in swap. The zero page and other special leaves count nowhere.
//!
//! **INV-TABLE-TOUCHED** No dirty bit that a walker sets is lost while the contents of the page
//! matter. A leaf is replaced by a plain store only if a walker can set no bit of it any more, or
//! if it is cleared for good and either maps an anonymous page or is one that no walker makes
//! dirty. Otherwise the replacement is an exchange.
//!
//! Neighbours: `tables` finds and locks the table; `mm` decides what to edit, and knows swap slots.

mod code;
mod copy;
mod hooks;
mod last_leaf;
mod map;
mod migrate;
mod piece_run;
mod protect;
mod protect_run;
mod relocate;
mod relock;
mod settle;
mod unmap;
mod unmap_run;

pub use copy::CopyStop;
pub use hooks::EntryHooks;
pub use migrate::{restore_migrated, restore_migrated_by_page};
pub(crate) use piece_run::counts_of;

use crate::locked_table::{CountedIn, EditOwn, LockedTable, TableRight};
use pagewright_arch::SoftEntry;
use pagewright_plant::plant;
use pagewright_sync::{Backend, LineRef, LineUse, Platform};
use pagewright_tlb::Region;
use pagewright_tlb::frames::{EntryCounts, FOLIO_COUNTS, Folio, MapcountChange, RssKind, SWAP_ENTRIES};
use pagewright_types::{Counter, Gauge, Level, Pfn};
use piece_run::PieceRun;

/// Whether the mapping whose entries are edited is locked memory (`VM_LOCKED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlocked(pub bool);

/// The edits of one locked table, accounted for together when the run ends.
pub struct EntryRun<'t, 'h, P: Platform, R: TableRight = EditOwn> {
    table: &'t LockedTable<'h, P, R>,
    mlocked: Mlocked,
    counted: CountedIn,
    change: RunChange,
}

/// What a run has changed so far.
#[derive(Default)]
struct RunChange {
    live: i32,
    entries: EntryCounts<i32>,
    /// Anonymous pages that nothing mapped before, or maps any more.
    anon: i32,
    /// The same of pages of files and shared memory.
    mapped: i32,
    /// Pages of anonymous folios that became mapped whole, or are not any more.
    anon_thps: i32,
}

impl RunChange {
    #[inline]
    fn add(&mut self, kind: RssKind, sign: i32, pages: u32) {
        self.add_run(kind, sign, sign * pages as i32);
    }

    /// Adds `entries` that come (or go, if negative), and the `pages` that these make mapped.
    #[inline]
    fn add_run(&mut self, kind: RssKind, entries: i32, pages: i32) {
        self.entries[kind as usize] += entries;
        let gauge = if kind == RssKind::Anon { &mut self.anon } else { &mut self.mapped };
        *gauge += pages;
    }

    /// Adds an entry that comes (1) or goes (-1), and what it changed in its folio.
    #[inline]
    fn add_change(&mut self, kind: RssKind, sign: i32, change: MapcountChange) {
        self.add(kind, sign, change.pages);
        if kind == RssKind::Anon {
            self.anon_thps += sign * change.entire as i32;
        }
    }
}

impl<'t, 'h, P: Platform, R: TableRight> EntryRun<'t, 'h, P, R> {
    #[inline]
    pub(crate) fn new(table: &'t LockedTable<'h, P, R>, mlocked: Mlocked, counted: CountedIn) -> Self {
        Self { table, mlocked, counted, change: RunChange::default() }
    }

    /// The table that is edited.
    #[inline]
    pub fn table(&self) -> &'t LockedTable<'h, P, R> {
        self.table
    }

    /// Counts an entry that is about to map `pfn`; its reference is held.
    #[inline]
    fn count_mapped(&mut self, folio: Folio<'_>, pfn: Pfn) {
        let kind = folio.rss_kind();
        self.use_counts(folio);
        let change = match self.table.level() {
            Level::PTE => folio.map_page(folio.page_of(pfn)),
            _ => folio.map_entire(),
        };
        self.change.add_change(kind, 1, change);
        self.mlock(folio, 1);
    }

    /// Reverses [`Self::count_mapped`] for a leaf that was cleared; its reference is still held.
    #[inline]
    fn count_unmapped(&mut self, folio: Folio<'_>, pfn: Pfn) {
        let kind = folio.rss_kind();
        self.use_counts(folio);
        plant!(MapcountLost => return self.change.add(kind, -1, 0));
        let change = match self.table.level() {
            Level::PTE => folio.unmap_page(folio.page_of(pfn)),
            _ => folio.unmap_entire(),
        };
        self.change.add_change(kind, -1, change);
        self.munlock(folio, 1);
        self.defer_split(folio, change);
    }

    /// Queues an anonymous folio to be split if an unmap left some of its pages without an entry.
    ///
    /// The reference of the entry is still held.
    #[inline]
    fn defer_split(&self, folio: Folio<'_>, change: MapcountChange) {
        plant!(DeferredNever => return);
        if change.leaves_partly_mapped() && folio.is_anon() && self.frames().defer_split(folio) {
            self.frames().count(Counter::ThpDeferredSplitPage, 1);
        }
    }

    /// Uncounts a run of entries that were cleared; their references are still held.
    fn count_pieces_unmapped(&mut self, folio: Folio<'_>, run: &PieceRun) {
        let (kind, entries) = (folio.rss_kind(), run.pages.len());
        self.use_counts(folio);
        plant!(MapcountLost => return self.change.add_run(kind, -(entries as i32), 0));
        let change = folio.unmap_pages(run.pages.clone(), run.counts);
        self.change.add_run(kind, -(entries as i32), -(change.pages as i32));
        self.munlock(folio, entries as u32);
        self.defer_split(folio, change);
    }

    #[inline]
    fn count_soft(&mut self, soft: SoftEntry, sign: i32) {
        if soft.kind.is_swap() {
            self.change.entries[SWAP_ENTRIES] += sign;
        }
    }

    /// Reports a store to the references and the mapcount of a folio.
    #[inline]
    fn use_counts(&self, folio: Folio<'_>) {
        P::Locks::line(LineRef::Record(folio.pfn()), FOLIO_COUNTS, LineUse::Store);
    }

    #[inline]
    fn frames(&self) -> &'h pagewright_tlb::frames::Frames<P> {
        self.table.tables.tlb.frames()
    }
}

impl<P: Platform, R: TableRight> Drop for EntryRun<'_, '_, P, R> {
    // Inlined, so that a run whose edits count nothing costs nothing.
    #[inline(always)]
    fn drop(&mut self) {
        let RunChange { live, entries, anon, mapped, anon_thps } = self.change;
        if live != 0 {
            self.table.page().adjust_live(live);
        }
        if (entries, anon, mapped) != (EntryCounts::default(), 0, 0) {
            self.tell_counts(entries, anon, mapped);
        }
        if anon_thps != 0 {
            self.frames().adjust(Gauge::AnonThps, i64::from(anon_thps));
        }
    }
}

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Tells the table's record, the space and the gauges what the edits changed.
    #[inline(never)]
    fn tell_counts(&self, entries: EntryCounts<i32>, anon: i32, mapped: i32) {
        let page = self.table.page();
        if entries != EntryCounts::default() {
            page.adjust_counts(entries);
            plant!(RssDrift => if entries.iter().any(|entries| *entries < 0) { return });
            match self.counted {
                CountedIn::Space => {
                    let cpu = self.table.tables.tlb.fx().cpu();
                    self.table.tables.tree.adjust_rss::<P::Locks>(cpu, entries, self.table.level().pages() as i64);
                }
                CountedIn::Nowhere => {}
                CountedIn::Sharers => {
                    let edits = page.shared_edits();
                    page.set_shared_edits(core::array::from_fn(|kind| edits[kind] + entries[kind] as i16));
                    if let Some(family) = self.table.tables.family() {
                        let region = Region::of(self.table.address(0));
                        plant!(EditNotNoted; (), family.count_noted(region));
                    }
                }
            }
        }
        for (gauge, change) in [(Gauge::AnonPages, anon), (Gauge::Mapped, mapped)] {
            if change != 0 {
                self.frames().adjust(gauge, i64::from(change));
            }
        }
    }
}
