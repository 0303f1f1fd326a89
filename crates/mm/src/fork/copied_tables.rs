//! Which tables a fork copies, counted by reason.
//!
//! A fork that shares no table has one reason for all of them. Otherwise it copies what
//! a mapping or a pin has kept from being shared. The counts are added once, after the copy.
//!
//! Not counted: tables of mappings whose pages a fault can find again, because nothing of them is
//! copied; a fork that fails.

use super::share_tables::may_share_all;
use crate::mm::Mm;
use crate::space::AddressMap;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::{Counter, Level, PageRange, VirtAddr};

/// The last-level tables and the leaves above that one fork copies.
pub(super) struct CopiedTables<'m, P: Platform> {
    map: &'m AddressMap<P>,
    /// The reason for all of them, if the fork shares none.
    all: Option<Counter>,
    /// The start of the last one, which may have entries of the next mapping, too.
    last: Option<VirtAddr>,
    /// Those of the reason for all.
    tables: u64,
    /// Those of a fork that shares others.
    mapping: u64,
    pinned: u64,
    huge: u64,
}

impl<'m, P: Platform> CopiedTables<'m, P> {
    pub(super) fn new(map: &'m AddressMap<P>, all: Option<Counter>) -> Self {
        Self { map, all, last: None, tables: 0, mapping: 0, pinned: 0, huge: 0 }
    }

    /// Notes that the entries of `span` are copied; spans come in order.
    ///
    /// They are `leaves` above the last level, or those of a last-level table.
    #[inline]
    pub(super) fn note(&mut self, span: PageRange, leaves: u64) {
        let start = span.start().align_down(Level::PTE.table_span());
        if self.last.replace(start) == Some(start) {
            return;
        }
        match self.all {
            Some(_) => self.tables += leaves.max(1),
            None if leaves > 0 => self.huge += leaves,
            None => self.note_not_shared(start),
        }
    }

    /// Notes a table that was not shared with others.
    ///
    /// Only a pin keeps a last-level table from being shared whose mappings all may be.
    #[cold]
    fn note_not_shared(&mut self, start: VirtAddr) {
        let may_share = may_share_all(self.map, PageRange::new(start, start.add(Level::PTE.table_span())));
        if plant!(CopyReasonsSwapped; !may_share, may_share) {
            self.pinned += 1;
        } else {
            self.mapping += 1;
        }
    }

    /// Adds the counts to the counters.
    pub(super) fn count(self, mm: &Mm<P>) {
        let not_shared = [
            (Counter::PwTableCopiedMapping, self.mapping),
            (Counter::PwTableCopiedPinned, self.pinned),
            (Counter::PwTableCopiedHuge, self.huge),
        ];
        let all = self.all.map(|reason| (reason, self.tables));
        for (reason, tables) in not_shared.into_iter().chain(all).filter(|(_, tables)| *tables > 0) {
            mm.tlb.count(reason, tables);
        }
    }
}
