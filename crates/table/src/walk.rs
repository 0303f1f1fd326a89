//! Descending: to one entry, or to every table under a range.

use crate::locked_table::LockedTable;
use crate::page_table::PageTable;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// The entry at which a lockless descent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// The table that holds the entry.
    pub table: Pfn,
    /// Its level.
    pub level: Level,
    /// The entry as it was read.
    pub pte: Pte,
}

impl PageTable {
    /// Descends without locks to the table of `level`, or to the last one on the way that exists.
    #[inline]
    pub fn find<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr, level: Level) -> FoundEntry {
        let mut table = self.root();
        let mut at = Level::PGD;
        loop {
            let pte = tlb.fx().load(PteSlot { table, index: at.index_of(va) as u16 });
            if at == level {
                return FoundEntry { table, level: at, pte };
            }
            match P::Isa::decode(at, pte) {
                Entry::Table(next) => table = next.pfn,
                Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => return FoundEntry { table, level: at, pte },
            }
            at = Level::new(at.raw() - 1);
        }
    }

    /// Locks the table of `level` that holds the entry for `va`.
    ///
    /// If a leaf above covers `va`, locks the table that holds that leaf. `None` if there is
    /// neither.
    pub fn lock<'a, P: Platform>(&'a self, tlb: &'a Tlb<P>, va: VirtAddr, level: Level) -> Option<LockedTable<'a, P>> {
        loop {
            let found = self.find(tlb, va, level);
            let is_leaf = matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_));
            if found.level != level && !is_leaf {
                return None;
            }
            let locked = self.lock_found(tlb, found, va);
            // A leaf above may have been split before the lock was got.
            if found.level == level || matches!(locked.entry(va), Entry::Leaf(_)) {
                return Some(locked);
            }
        }
    }

    /// Locks the table that [`PageTable::find`] found for `va`.
    ///
    /// The caller has held the space since, so the table is still hooked (INV-TABLE-STABLE); the
    /// entry may have changed.
    #[inline]
    pub fn lock_found<'a, P: Platform>(
        &'a self,
        tlb: &'a Tlb<P>,
        found: FoundEntry,
        va: VirtAddr,
    ) -> LockedTable<'a, P> {
        LockedTable::new(self, tlb, found.table, found.level, va)
    }

    /// The parts of `range` that have entries, in order, without locks.
    ///
    /// There is one for each last-level table and each leaf above that level.
    pub fn table_spans<'a, P: Platform>(&'a self, tlb: &'a Tlb<P>, range: PageRange) -> TableSpans<'a, P> {
        TableSpans { tree: self, tlb, at: range.start(), end: range.end() }
    }

    /// As [`PageTable::table_spans`], with the table of each locked.
    pub fn locked_tables<'a, P: Platform>(
        &'a self,
        tlb: &'a Tlb<P>,
        range: PageRange,
    ) -> impl Iterator<Item = (LockedTable<'a, P>, PageRange)> {
        self.table_spans(tlb, range).filter_map(move |span| Some((self.lock(tlb, span.start(), Level::PTE)?, span)))
    }
}

/// The iterator of [`PageTable::table_spans`].
pub struct TableSpans<'a, P: Platform> {
    tree: &'a PageTable,
    tlb: &'a Tlb<P>,
    at: VirtAddr,
    end: VirtAddr,
}

impl<P: Platform> Iterator for TableSpans<'_, P> {
    type Item = PageRange;

    fn next(&mut self) -> Option<PageRange> {
        while self.at < self.end {
            let found = self.tree.find(self.tlb, self.at, Level::PTE);
            let at_bottom = found.level == Level::PTE;
            let span = if at_bottom { Level::PTE.table_span() } else { found.level.span() };
            let start = self.at;
            self.at = start.align_down(span).checked_add(span).map_or(self.end, |next| next.min(self.end));
            if at_bottom || matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_)) {
                return Some(PageRange::new(start, self.at));
            }
        }
        None
    }
}
