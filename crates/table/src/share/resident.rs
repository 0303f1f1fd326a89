//! The resident set of a space whose tables other spaces edit, too.
//!
//! A space counts its own edits as it makes them. An edit for all sharers is noted in the record of
//! its table, and counts for each space that reaches the table. So
//!
//! ```text
//!   resident set = what the space counted + the noted edits of the tables that it reaches
//! ```
//!
//! The second part is summed up when the resident set is read, unless it is as it was: no table of
//! the family has noted an edit since, and the space reaches the same tables. A space that stops to
//! share a table adds what is noted there to the first part, and one that takes a table back also
//! clears the note.
//!
//! INV-SHARE-COUNT: each edit for all counts once in each space that reaches its table. The note of
//! a table that is taken back is cleared after its pointer has changed, under the table's lock: an
//! edit that comes later finds the path changed.

use super::user_entries;
use crate::below;
use crate::locked_table::LockedTable;
use crate::tables::Tables;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::Family;
use pagewright_tlb::frames::EntryCounts;
use pagewright_types::{Level, Pfn};

/// What edits for all sharers have changed in the tables that a space reaches, as last summed up.
pub(crate) struct SharedSum {
    edits: EntryCounts<AtomicI64>,
    /// The noted edits of the family and the changes of paths at which it was summed up.
    summed_at: AtomicU64,
    /// Whether a CPU sums up.
    is_summing: AtomicBool,
    /// How often the space began to reach other tables.
    path_changes: AtomicU64,
}

impl SharedSum {
    /// Before the first sum.
    const NEVER: u64 = u64::MAX;

    pub(crate) fn new() -> Self {
        Self {
            edits: core::array::from_fn(|_| AtomicI64::new(0)),
            summed_at: AtomicU64::new(Self::NEVER),
            is_summing: AtomicBool::new(false),
            path_changes: AtomicU64::new(0),
        }
    }

    /// The sum of one kind.
    pub(crate) fn of(&self, kind: usize) -> i64 {
        self.edits[kind].load(Ordering::Relaxed)
    }

    /// Counts a change of the tables that the space reaches, after it was made.
    pub(crate) fn count_path_change(&self) {
        self.path_changes.fetch_add(1, Ordering::Release);
    }

    /// Edits noted and changes of paths; neither count falls, so their sum tells both apart.
    fn now<P: Platform>(&self, family: &Family<P>) -> u64 {
        family.noted().wrapping_add(self.path_changes.load(Ordering::Acquire))
    }

    fn is_of(&self, now: u64) -> bool {
        self.summed_at.load(Ordering::Acquire) == now
    }

    /// Lets this CPU sum up, if no other does.
    fn try_begin(&self) -> bool {
        !self.is_summing.swap(true, Ordering::Acquire)
    }

    /// Ends a sum of the state at `now`.
    fn end(&self, sum: EntryCounts<i64>, now: u64) {
        for (edits, sum) in self.edits.iter().zip(sum) {
            edits.store(sum, Ordering::Relaxed);
        }
        self.summed_at.store(now, Ordering::Release);
        self.is_summing.store(false, Ordering::Release);
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Sums up what edits for all sharers have changed in the tables that the space reaches.
    ///
    /// Nothing to do in a space that never shared a table, or has ended, or whose last sum still
    /// holds (INV-SHARE-SUM). The sum is exact while no CPU edits.
    pub fn sum_shared_edits(&self) {
        // The root of a space that has ended may be any frame.
        let ended = plant!(EndedSpaceSummed; false, self.tree.is_closed());
        let Some(family) = self.family.filter(|family| !ended && family.was_edited()) else { return };
        let shared = &self.tree.rss().shared;
        while !shared.is_of(shared.now(family)) {
            if !shared.try_begin() {
                self.tlb.fx().relax();
                continue;
            }
            // Read before the walk: what comes meanwhile is summed up the next time.
            let now = shared.now(family);
            let sum = self.tlb.walk_unheld(|| {
                let mut sum = EntryCounts::default();
                self.add_edits_below((self.tree.root(), Level::PGD), false, &mut sum);
                sum
            });
            shared.end(sum, now);
            return;
        }
    }

    /// Adds what a table and those below it have noted; those below one that `is_shared` are, too.
    ///
    /// The note of an own table is empty (INV-SHARE-COUNT).
    fn add_edits_below(&self, (table, level): (Pfn, Level), is_shared: bool, sum: &mut EntryCounts<i64>) {
        if is_shared {
            let edits = self.tlb.frames().table(table).shared_edits();
            for (sum, edits) in sum.iter_mut().zip(edits) {
                *sum += i64::from(edits) * level.pages() as i64;
            }
        }
        if level > Level::PTE {
            for index in 0..user_entries::<P>(level) {
                let slot = PteSlot { table, index: index as u16 };
                if let Entry::Table(child) = P::Isa::decode(level, self.tlb.fx().load(slot)) {
                    self.add_edits_below((child.pfn, below(level)), is_shared || child.write_protected, sum);
                }
            }
        }
    }

    /// Counts in the space what is noted in a table that it has to itself from now on, and below.
    pub(super) fn fold_edits(&self, table: &LockedTable<'_, P>) {
        self.tree.rss().add(table.noted_edits());
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

impl<P: Platform> LockedTable<'_, P> {
    /// What edits for all sharers have changed in the table, as they count in a resident set.
    pub(super) fn noted_edits(&self) -> EntryCounts<i64> {
        let pages = self.level().pages() as i64;
        self.page().shared_edits().map(|edits| i64::from(edits) * pages)
    }
}
