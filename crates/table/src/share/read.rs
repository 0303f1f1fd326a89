//! Looking at the entries of a table, whether other spaces share it or not.

use super::walk::{Walked, WalkedTable};
use crate::leaf_view::{EntryView, LeafView};
use crate::locked_table::LockedTable;
use crate::tables::Tables;
use pagewright_sync::Platform;
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// A locked table that can be read, by the path that its space has to it.
#[must_use]
pub struct ReadTable<'h, P: Platform> {
    table: LockedTable<'h, P>,
    shared: bool,
    sharers: u64,
}

impl<'h, P: Platform> ReadTable<'h, P> {
    fn new(walked: WalkedTable<'h, P>) -> Self {
        let WalkedTable { table, shared, sharers } = walked;
        Self { table, shared, sharers }
    }

    /// The level of the table.
    pub fn level(&self) -> Level {
        self.table.level()
    }

    /// The frame of the table.
    pub fn table(&self) -> Pfn {
        self.table.table()
    }

    /// The addresses under the table.
    pub fn range(&self) -> PageRange {
        self.table.range()
    }

    /// Whether other spaces may share the table.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The product of the share counts on the way.
    ///
    /// It is 1 if no other space reaches the table, and its inverses add up to 1 over all paths to
    /// the table. It is not the number of spaces that reach the table, and says nothing about other
    /// tables with entries of the same page.
    pub fn sharers(&self) -> u64 {
        self.sharers
    }

    /// The entry for `va`.
    pub fn entry(&self, va: VirtAddr) -> EntryView {
        EntryView::decode::<P::Isa>(self.table.level(), self.table.pte(va), self.shared)
    }

    /// The leaf for `va`, or `None` if the entry is anything else.
    pub fn leaf(&self, va: VirtAddr) -> Option<LeafView> {
        self.entry(va).leaf()
    }

    /// The first address of `part` under each entry, in order.
    pub fn entries(&self, part: PageRange) -> impl Iterator<Item = VirtAddr> + use<P> {
        self.table.entries(part)
    }
}

impl<'h, P: Platform> Tables<'h, P> {
    /// Locks the table of the last entry for `va`, to read it.
    ///
    /// `None` if there is neither a table of the last level nor a leaf above.
    pub fn read_lock(&self, va: VirtAddr) -> Option<ReadTable<'h, P>> {
        match self.lock_walked(va) {
            Walked::Table(walked) => Some(ReadTable::new(walked)),
            Walked::Nothing(_) => None,
        }
    }

    /// The tables with entries of `range`, each locked, and the part under each.
    pub fn read_locked(&self, range: PageRange) -> impl Iterator<Item = (ReadTable<'h, P>, PageRange)> + use<'h, P> {
        self.walked(range).map(|(walked, part)| (ReadTable::new(walked), part))
    }

    /// The tables with entries of `range`, each locked by a counted walk, and the part under each.
    pub(super) fn walked(
        &self,
        range: PageRange,
    ) -> impl Iterator<Item = (WalkedTable<'h, P>, PageRange)> + use<'h, P> {
        let (tables, mut at, end) = (*self, range.start(), range.end());
        core::iter::from_fn(move || {
            while at < end {
                let start = at;
                let next = |span| start.align_down(span).checked_add(span).map_or(end, |next: VirtAddr| next.min(end));
                match tables.lock_walked(start) {
                    Walked::Table(walked) => {
                        let level = walked.table.level();
                        at = next(if level == Level::PTE { level.table_span() } else { level.span() });
                        return Some((walked, PageRange::new(start, at)));
                    }
                    Walked::Nothing(level) => at = next(level.span()),
                }
            }
            None
        })
    }
}
