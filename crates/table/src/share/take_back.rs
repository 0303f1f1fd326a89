//! Taking a table back whose other sharers have gone.
//!
//! The origin takes it back untouched: one store, whatever the size of the memory below. Any other
//! space may not use the rights that the leaves kept for the origin. It write-protects the pointers
//! of an upper table, which leaves the question to the next level, and strips the leaves of the
//! last.

use super::span_of;
use crate::locked_table::LockedTable;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_types::Counter;

impl<P: Platform> Tables<'_, P> {
    /// Makes the pointer at `index` of `parent` the space's own; `old` is its table, of one share.
    ///
    /// Both are locked. No flush is owed: the path allows more than before, and a CPU that still
    /// refuses a store faults once more.
    pub(crate) fn take_back(&self, parent: &LockedTable<'_, P>, index: usize, old: &LockedTable<'_, P>, origin: bool) {
        if plant!(TakenBackByAnyone; false, !origin) {
            strip(old);
            // INV-TABLE-ZERO: a walker that finds the table its own finds the entries as they are
            // now. It would hold what an older one allows, and nothing is flushed below.
            plant!(StrippedUnpublished; (), self.tlb.fx().publish());
        }
        let span = span_of(parent.address(index), parent.level());
        plant!(EditsFoldedFirst => self.fold_edits(old, pagewright_tlb::RegionSet::of(span)));
        parent.store(index, P::Isa::table(TableEntry::own(old.table())));
        self.tlb.fx().publish();
        // An edit for all that is still to come finds the path changed. One that was before it has
        // announced itself, and its note is there once its table can be locked.
        let edited = self.edited_in(span);
        if plant!(EditsFoldedFirst; false, !edited.is_empty()) {
            self.fold_edits(old, edited);
        }
        plant!(PathChangeNotCounted; (), self.count_path_change(edited));
        self.tlb.count(Counter::PwTableTakenBack, 1);
    }
}

/// Removes what the entries of a table allowed its origin.
fn strip<P: Platform>(table: &LockedTable<'_, P>) {
    for (index, pte) in table.live_entries() {
        match P::Isa::decode(table.level(), pte) {
            Entry::Table(next) => {
                let shared =
                    TableEntry { write_protected: true, origin: plant!(StripKeepsOrigin; next.origin, false), ..next };
                table.store(index, P::Isa::table(shared));
            }
            // The exchange keeps what a walker of this space notes meanwhile.
            Entry::Leaf(_) => table.strip_leaf(index),
            Entry::Soft(soft) if soft.shared() != soft => {
                table.store_not_present(table.address(index), P::Isa::soft(soft.shared()));
            }
            Entry::Soft(_) | Entry::Empty => {}
        }
    }
}
