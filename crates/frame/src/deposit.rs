//! Deposited tables: what a huge leaf needs to be split without an allocation.
//!
//! Linux's `pgtable_trans_huge_deposit`.
//!
//! The record of a table above the last level has a list of empty last-level tables, one for each
//! leaf of the PMD level in it. They are tables in use, which no entry points to and no walker
//! reaches. The list begins in the words that a last-level table has for edits for all sharers: a
//! table with huge leaves is never shared.
//!
//! ```text
//!   record of the holder      prev = first deposit   next = number of deposits
//!   record of a deposit       next = the deposit after it
//! ```
//!
//! Protocol: the list changes under the lock of the table that has it.
//!
//! Not guaranteed: that there are as many deposits as huge leaves. The layer that stores the leaves
//! sees to it (INV-HUGE-DEPOSIT).

use crate::frames::Frames;
use crate::table_page::TablePage;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, Platform};
use pagewright_types::{Level, Pfn};

impl<P: Platform> Frames<P> {
    /// Adds an empty last-level table to the deposits of `holder`, whose lock the caller has.
    ///
    /// # Panics
    /// In debug builds when `holder` is a last-level table, or `table` is not, or has entries.
    pub fn deposit_table(&self, holder: Pfn, table: Pfn) {
        let (holder, table) = (self.table(holder), self.table(table));
        debug_assert!(holder.level() > Level::PTE, "INV-HUGE-DEPOSIT: {holder:?} holds no huge leaf");
        debug_assert!(
            table.level() == Level::PTE && table.live() == 0,
            "INV-HUGE-DEPOSIT: {table:?} is deposited with entries"
        );
        let first = holder.record().prev.load(Ordering::Relaxed);
        table.record().next.store(first, Ordering::Relaxed);
        holder.record().prev.store(table.pfn().raw(), Ordering::Relaxed);
        holder.record().next.store(holder.deposits() + 1, Ordering::Relaxed);
    }

    /// Takes a table from the deposits of `holder`, whose lock the caller has.
    ///
    /// It is as [`new_table`](Self::new_table) made it: empty, and no walker has seen it.
    ///
    /// # Panics
    /// When there is none.
    pub fn withdraw_table(&self, holder: Pfn) -> Pfn {
        let holder = self.table(holder);
        let deposits = holder.deposits();
        assert!(deposits > 0, "INV-HUGE-DEPOSIT: {holder:?} has a huge leaf without a deposit");
        let table = self.table(Pfn::new(holder.record().prev.load(Ordering::Relaxed)));
        holder.record().prev.store(table.record().next.load(Ordering::Relaxed), Ordering::Relaxed);
        holder.record().next.store(deposits - 1, Ordering::Relaxed);
        table.record().next.store(0, Ordering::Relaxed);
        table.pfn()
    }

    /// The deposits of `holder`, the latest first.
    ///
    /// The caller has its lock, or no CPU edits.
    pub fn deposited_tables(&self, holder: Pfn) -> impl Iterator<Item = Pfn> {
        let holder = self.table(holder);
        let mut next = holder.record().prev.load(Ordering::Relaxed);
        (0..holder.deposits()).map(move |_| {
            let table = Pfn::new(next);
            next = self.table(table).record().next.load(Ordering::Relaxed);
            table
        })
    }
}

impl<L: Backend> TablePage<'_, L> {
    /// The number of deposited tables; 0 for a last-level table.
    ///
    /// The caller has the lock, or no CPU edits.
    #[inline]
    pub fn deposits(&self) -> u32 {
        if self.level() > Level::PTE { self.record().next.load(Ordering::Relaxed) } else { 0 }
    }
}
