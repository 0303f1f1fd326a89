//! The resident set of a space whose tables other spaces edit, too.
//!
//! A space counts its own edits as it makes them. An edit for all sharers is noted in the record of
//! its table, and counts for each space that reaches the table. So
//!
//! ```text
//!   resident set = what the space counted + the noted edits of the tables that it reaches
//! ```
//!
//! The second part is summed up when the resident set is read. A space that stops to share a table
//! adds what is noted there to the first part, and one that takes a table back also clears the
//! note.
//!
//! INV-SHARE-COUNT: each edit for all counts once in each space that reaches its table. The note of
//! a table that is taken back is cleared after its pointer has changed, under the table's lock: an
//! edit that comes later finds the path changed.

use super::user_entries;
use crate::below;
use crate::locked_table::LockedTable;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::frames::EntryCounts;
use pagewright_types::{Level, Pfn};

impl<P: Platform> Tables<'_, P> {
    /// Sums up what edits for all sharers have changed in the tables that the space reaches.
    ///
    /// Nothing to do in a space that never shared a table, or has ended. The sum is exact while no
    /// CPU edits.
    pub fn sum_shared_edits(&self) {
        // The root of a space that has ended may be any frame.
        let ended = plant!(EndedSpaceSummed; false, self.tree.is_closed());
        if ended || !self.family.is_some_and(|family| family.was_edited()) {
            return;
        }
        let sum = self.tlb.walk_unheld(|| {
            let mut sum = EntryCounts::default();
            self.add_edits_below((self.tree.root(), Level::PGD), &mut sum);
            sum
        });
        self.tree.rss().set_shared(sum);
    }

    fn add_edits_below(&self, (table, level): (Pfn, Level), sum: &mut EntryCounts<i64>) {
        let edits = self.tlb.frames().table(table).shared_edits();
        for (sum, edits) in sum.iter_mut().zip(edits) {
            *sum += i64::from(edits) * level.pages() as i64;
        }
        if level > Level::PTE {
            for index in 0..user_entries::<P>(level) {
                let slot = PteSlot { table, index: index as u16 };
                if let Entry::Table(child) = P::Isa::decode(level, self.tlb.fx().load(slot)) {
                    self.add_edits_below((child.pfn, below(level)), sum);
                }
            }
        }
    }

    /// Counts in the space what is noted in a table that it stops to share.
    pub(super) fn add_edits_of(&self, table: &LockedTable<'_, P>) {
        let pages = table.level().pages() as i64;
        self.tree.rss().add(table.page().shared_edits().map(|edits| i64::from(edits) * pages));
    }

    /// Counts in the space what is noted in a table that it has to itself from now on, and below.
    pub(super) fn fold_edits(&self, table: &LockedTable<'_, P>) {
        self.add_edits_of(table);
        table.page().set_shared_edits(EntryCounts::default());
        if table.level() > Level::PTE {
            for index in 0..Level::ENTRIES {
                if let Entry::Table(child) = P::Isa::decode(table.level(), table.load(index))
                    && !child.write_protected
                {
                    let va = table.address(index);
                    self.fold_edits(&LockedTable::new(*self, child.pfn, below(table.level()), va));
                }
            }
        }
    }
}
