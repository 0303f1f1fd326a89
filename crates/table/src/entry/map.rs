//! Filling empty entries.
//!
//! **INV-TABLE-EMPTY** A leaf is installed only in an empty entry, and a table is unhooked only
//! when all its entries are empty. Otherwise references would be lost.

use super::EntryRun;
use super::code::publish_code;
use crate::locked_table::{CountedIn, TableRight};
use crate::owned_leaf::OwnedLeaf;
use pagewright_arch::{Isa, Leaf, LeafFlags, SoftEntry};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{MapcountChange, NewFolio};
use pagewright_types::{Level, PAGE_SIZE, Rights, VirtAddr};

impl<P: Platform, R: TableRight> EntryRun<'_, '_, P, R> {
    /// Maps a page, or a huge page in a table above the last level, at an empty entry.
    ///
    /// Owes no flush: no TLB holds an entry that was not present. If another operation cleared it
    /// and has not flushed yet, this flushes it first, in every space that owes it: the key of a
    /// shared table stands for all of them (INV-TLB-CLEARED).
    ///
    /// # Panics
    /// In debug builds when the entry is not empty or above the last level, or the table is shared
    /// and the leaf writable.
    #[inline(always)]
    pub fn map(&mut self, va: VirtAddr, leaf: OwnedLeaf) {
        debug_assert_eq!(self.table.level(), Level::PTE, "INV-HUGE-DEPOSIT: a huge leaf at {va} without a deposit");
        self.install(va, leaf);
    }

    /// Stores a leaf in an empty entry of any level.
    #[inline(always)]
    pub(crate) fn install(&mut self, va: VirtAddr, leaf: OwnedLeaf) {
        debug_assert!(self.table.is_empty(va), "INV-TABLE-EMPTY: a leaf over {:?} at {va}", self.table.entry(va));
        self.table.flush_before_install(va);
        let plain = leaf.leaf();
        let writable_for_all = self.counted == CountedIn::Sharers && plain.rights.contains(Rights::WRITE);
        debug_assert!(!writable_for_all, "INV-SHARE-FILL: a writable leaf for all sharers at {va}");
        publish_code(self.table.tables.tlb, self.table.level(), plain);
        if let Some(folio) = leaf.into_folio() {
            self.settle_before_stores(plain);
            self.count_mapped(self.frames().folio_of(&folio), plain.pfn);
            folio.into_raw();
        }
        self.table.put(va, P::Isa::leaf(self.table.level(), plain));
        self.change.live += 1;
    }

    /// Maps a folio that exists from now on, and is on its LRU list (`folio_add_new_anon_rmap`).
    ///
    /// The entry has its only reference. Otherwise as [`map`](Self::map).
    ///
    /// # Panics
    /// In debug builds also when the folio is not as large as the entry.
    #[inline]
    pub fn map_new(&mut self, va: VirtAddr, new: NewFolio, rights: Rights, flags: LeafFlags) {
        debug_assert_eq!(self.table.level(), Level::PTE, "INV-HUGE-DEPOSIT: a huge leaf at {va} without a deposit");
        self.install_new(va, new, rights, flags);
    }

    /// Stores the leaf of a new folio in an empty entry of any level.
    #[inline]
    pub(crate) fn install_new(&mut self, va: VirtAddr, new: NewFolio, rights: Rights, flags: LeafFlags) {
        debug_assert!(self.table.is_empty(va), "INV-TABLE-EMPTY: a leaf over {:?} at {va}", self.table.entry(va));
        let level = self.table.level();
        debug_assert_eq!(Some(new.block.order()), level.order(), "INV-TABLE-EMPTY: a folio of another size at {va}");
        self.table.flush_before_install(va);
        let reference = self.frames().new_mapped_folio(new);
        let folio = self.frames().folio_of(&reference);
        let pages = level.pages() as u32;
        let entire = if level > Level::PTE { pages } else { 0 };
        self.change.add_change(folio.rss_kind(), 1, MapcountChange { pages, entire, mapcount: 1 });
        self.mlock(folio, 1);
        let leaf = Leaf { pfn: reference.into_raw(), rights, flags };
        publish_code(self.table.tables.tlb, level, leaf);
        self.table.put(va, P::Isa::leaf(level, leaf));
        self.change.live += 1;
    }

    /// Maps the pages of a folio that exists from now on, from `va` on, by an entry each.
    ///
    /// The entries have its only references. All are in this table.
    ///
    /// # Panics
    /// In debug builds when one of them is not empty.
    pub fn map_new_pages(&mut self, va: VirtAddr, new: NewFolio, rights: Rights, flags: LeafFlags) {
        let (table, pages) = (self.table, new.block.order().frames());
        let at = |index: u32| va.add(u64::from(index) * PAGE_SIZE);
        for va in (0..pages).map(at) {
            debug_assert!(table.is_empty(va), "INV-TABLE-EMPTY: a leaf over {:?} at {va}", table.entry(va));
            table.flush_before_install(va);
        }
        let first = self.frames().new_folio_mapped_by_page(new).into_raw();
        let folio = self.frames().folio(first);
        self.change.add_run(folio.rss_kind(), pages as i32, pages as i32);
        self.mlock(folio, pages);
        for index in 0..pages {
            let leaf = Leaf { pfn: first.add(index), rights, flags };
            publish_code(table.tables.tlb, Level::PTE, leaf);
            table.put(at(index), P::Isa::leaf(Level::PTE, leaf));
        }
        self.change.live += pages as i32;
    }

    /// Stores a soft entry in an empty entry.
    ///
    /// Owes no flush, since no TLB caches one (INV-SOFT-UNSEEN). If an operation cleared the entry
    /// and has not flushed yet, that flush stays pending: the caller waits for it before it returns
    /// (INV-TLB-CLEARED), and the leaf that follows the soft entry flushes it first.
    ///
    /// # Panics
    /// In debug builds when the entry is not empty.
    pub fn map_soft(&mut self, va: VirtAddr, soft: SoftEntry) {
        debug_assert!(self.table.is_empty(va), "INV-TABLE-EMPTY: {soft:?} over {:?} at {va}", self.table.entry(va));
        if self.table.level() > Level::PTE {
            self.table.mark_huge();
        }
        self.table.store_not_present(va, P::Isa::soft(soft));
        self.count_soft(soft, 1);
        self.change.live += 1;
    }
}
