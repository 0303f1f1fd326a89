//! Descending: to one entry, or to every table under a range.

use crate::locked::Locked;
use crate::tree::PageTable;
use pagewright_arch::{Entry, Isa, Pte, Slot};
use pagewright_sync::Platform;
use pagewright_tlb::Tlb;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// Where a descent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The table reached.
    pub table: Pfn,
    /// Its level.
    pub level: Level,
    /// The entry for the address in it, as it was read.
    pub pte: Pte,
}

impl PageTable {
    /// Descends without locks towards a table of `level`; stops above where there is none.
    pub fn find<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr, level: Level) -> Found {
        let mut table = self.root();
        let mut at = Level::PGD;
        loop {
            let pte = tlb.fx().load(Slot { table, index: at.index_of(va) as u16 });
            if at == level {
                return Found { table, level: at, pte };
            }
            match P::Isa::decode(at, pte) {
                Entry::Table(next) => table = next.pfn,
                Entry::Leaf(_) | Entry::Empty | Entry::Soft(_) => return Found { table, level: at, pte },
            }
            at = Level::new(at.raw() - 1);
        }
    }

    /// Locks the table of `level` that holds the entry for `va`, or the table above that holds a leaf over it. `None`: there
    /// is no such table.
    pub fn lock<'a, P: Platform>(&'a self, tlb: &'a Tlb<P>, va: VirtAddr, level: Level) -> Option<Locked<'a, P>> {
        loop {
            let found = self.find(tlb, va, level);
            let is_leaf = matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_));
            if found.level != level && !is_leaf {
                return None;
            }
            let locked = Locked::new(self, tlb, found.table, found.level, va);
            // A leaf above may have been split before the lock was got.
            if found.level == level || matches!(locked.entry(va), Entry::Leaf(_)) {
                return Some(locked);
            }
        }
    }

    /// The tables under `range` that exist, first to last.
    pub fn tables<'a, P: Platform>(&'a self, tlb: &'a Tlb<P>, range: PageRange) -> Tables<'a, P> {
        Tables { tree: self, tlb, at: range.start(), end: range.end() }
    }
}

/// Visits the existing last-level tables under a range, each locked in turn; see [`PageTable::tables`].
pub struct Tables<'a, P: Platform> {
    tree: &'a PageTable,
    tlb: &'a Tlb<P>,
    at: VirtAddr,
    end: VirtAddr,
}

impl<'a, P: Platform> Iterator for Tables<'a, P> {
    /// The locked table, and the part of the range that it holds entries for. A table above PTE level comes with one leaf.
    type Item = (Locked<'a, P>, PageRange);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            let found = self.tree.find(self.tlb, self.at, Level::PTE);
            let is_leaf = matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_));
            let span = match (found.level == Level::PTE, is_leaf) {
                (true, _) => Level::PTE.table_span(),
                // A missing table or a leaf above: as far as that entry reaches.
                (false, _) => found.level.span(),
            };
            let start = self.at;
            let next = start.align_down(span).checked_add(span).map_or(self.end, |next| next.min(self.end));
            if found.level != Level::PTE && !is_leaf {
                self.at = next;
                continue;
            }
            let locked = Locked::new(self.tree, self.tlb, found.table, found.level, start);
            if found.level != Level::PTE && !matches!(locked.entry(start), Entry::Leaf(_)) {
                continue;
            }
            self.at = next;
            return Some((locked, PageRange::new(start, next)));
        }
        None
    }
}
