//! The resident set of a space whose tables other spaces edit, too.
//!
//! A space counts its own edits as it makes them. An edit for all sharers is noted in the record of
//! its table, and counts for each space that reaches the table. So
//!
//! ```text
//!   resident set = what the space counted + the noted edits of the tables that it reaches
//!   tables       = what the space counted + the tables made for all among those that it reaches
//! ```
//!
//! The second part is summed up when the first is read, region by region
//! ([`Region`](pagewright_tlb::Region)). A region is left out if it is as it was: no table of the
//! family has noted an edit there since, and the space reaches the same tables. So a read after an
//! edit looks at the tables of one GiB in 64, at most 512 in a space of 64 GiB. A space that stops
//! to share a table adds what is noted there to the first part, and one that takes a table back
//! also clears the note. That a table was made for all is one of the notes.
//!
//! **INV-SHARE-COUNT** An edit of a shared table for all its sharers, and a table made for all of
//! them, counts once in each space that reaches the table, also when the space takes the table back
//! or leaves it. A space that has ended counts none.
//!
//! The note of a table that is taken back is cleared after its pointer has changed, under the
//! table's lock: an edit that comes later finds the path changed.
//!
//! **INV-SHARE-SUM** The shared part of a resident set is summed up again after an edit for all
//! sharers, and after the space has begun to reach other tables, in the regions in which either
//! happened: a GiB in a space of up to 64.

use super::user_entries;
use crate::below;
use crate::locked_table::LockedTable;
use crate::peek::assert_not_freed;
use crate::tables::Tables;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use pagewright_arch::{Entry, Isa, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Arc, Platform, try_boxed};
use pagewright_tlb::frames::{EntryCounts, TableMarks, TablePage};
use pagewright_tlb::{Family, Region, RegionSet};
use pagewright_types::{Level, PageRange, Pfn};

/// What edits for all sharers have changed in the tables that a space reaches, as last summed up.
pub(crate) struct SharedSum {
    edits: EntryCounts<AtomicI64>,
    /// Tables that were made for all.
    tables: AtomicI64,
    /// Whether a CPU sums up.
    is_summing: AtomicBool,
}

impl SharedSum {
    pub(crate) fn new() -> Self {
        Self {
            edits: core::array::from_fn(|_| AtomicI64::new(0)),
            tables: AtomicI64::new(0),
            is_summing: AtomicBool::new(false),
        }
    }

    /// The sum of one kind.
    pub(crate) fn of(&self, kind: usize) -> i64 {
        self.edits[kind].load(Ordering::Relaxed)
    }

    /// The number of tables that were made for all.
    pub(crate) fn tables(&self) -> i64 {
        self.tables.load(Ordering::Relaxed)
    }

    /// Forgets what was summed up, of a space that reaches no table any more.
    ///
    /// The caller holds the space for writing, so no CPU sums up.
    pub(crate) fn clear(&self) {
        self.edits.iter().chain([&self.tables]).for_each(|sum| sum.store(0, Ordering::Relaxed));
    }

    /// Lets this CPU sum up, if no other does.
    fn try_begin(&self) -> bool {
        !self.is_summing.swap(true, Ordering::Acquire)
    }

    fn end(&self) {
        self.is_summing.store(false, Ordering::Release);
    }
}

/// Tables that a space reaches, and what entries of such tables count as in its resident set.
#[derive(Clone, Copy, Default)]
pub(super) struct Reach {
    pub(super) tables: i64,
    pub(super) entries: EntryCounts<i64>,
}

impl Reach {
    /// Adds the tables and entries of `other`.
    pub(super) fn add(&mut self, other: Self) {
        self.tables += other.tables;
        self.entries.iter_mut().zip(other.entries).for_each(|(sum, entries)| *sum += entries);
    }
}

/// The part of a [`SharedSum`] that is in one region.
#[derive(Default)]
struct RegionSum {
    /// Pages, which are fewer than 2^29 in a region.
    edits: EntryCounts<AtomicI32>,
    /// Tables that were made for all.
    tables: AtomicI32,
    /// The noted edits of the family and the changes of paths at which it was summed up.
    summed_at: AtomicU64,
    /// How often the space began to reach other tables.
    path_changes: AtomicU64,
}

/// A space's membership in a family, with the sums of its regions.
pub(crate) struct Membership<P: Platform> {
    family: Arc<Family<P>>,
    regions: Box<[RegionSum]>,
}

impl<P: Platform> Membership<P> {
    /// The membership of a space that reaches no shared table yet.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub(crate) fn try_new(family: &Arc<Family<P>>) -> Result<Self, AllocError> {
        let regions = try_boxed(Region::COUNT, core::iter::repeat_with(RegionSum::default))?;
        Ok(Self { family: family.clone(), regions })
    }

    /// The spaces with which the space may share tables.
    pub(crate) fn family(&self) -> &Arc<Family<P>> {
        &self.family
    }

    /// Edits noted in a region, and changes of paths.
    ///
    /// Neither count falls, so their sum tells both apart.
    fn now(&self, region: Region) -> u64 {
        let changes = self.regions[region.index()].path_changes.load(Ordering::Acquire);
        self.family.noted(region).wrapping_add(changes)
    }

    /// The regions of `edited` whose sum does not hold any more.
    fn stale(&self, edited: RegionSet) -> impl Iterator<Item = Region> {
        let is_stale =
            |region: &Region| self.regions[region.index()].summed_at.load(Ordering::Acquire) != self.now(*region);
        edited.iter().filter(is_stale)
    }

    /// Replaces the sum of a region, of the state at `now`.
    fn replace(&self, total: &SharedSum, region: Region, sum: Reach, now: u64) {
        let of = &self.regions[region.index()];
        let replace = |(total, part): (&AtomicI64, &AtomicI32), sum: i64| {
            let old = part.swap(sum as i32, Ordering::Relaxed);
            total.fetch_add(sum - i64::from(old), Ordering::Relaxed);
        };
        total.edits.iter().zip(&of.edits).zip(sum.entries).for_each(|(edits, sum)| replace(edits, sum));
        replace((&total.tables, &of.tables), sum.tables);
        of.summed_at.store(now, Ordering::Release);
    }
}

impl<P: Platform> Tables<'_, P> {
    /// Sums up what edits for all sharers have changed in the tables that the space reaches.
    ///
    /// Nothing to do in a space that never shared a table, or has ended, or whose last sum still
    /// holds (INV-SHARE-SUM). The sum is exact while no CPU edits.
    ///
    /// INV-MM-PEAK: the peak is at least the size at each call. What other spaces add and remove in
    /// between is not noted.
    pub fn sum_shared_edits(&self) {
        // The root of a space that has ended may be any frame.
        let ended = plant!(EndedSpaceSummed; false, self.tree.is_closed());
        let Some(member) = self.member.filter(|_| !ended) else { return };
        self.sum_stale_regions(member);
        self.tree.rss().note_size();
    }

    /// Sums up the regions whose sums do not hold any more.
    fn sum_stale_regions(&self, member: &Membership<P>) {
        let (edited, shared) = (member.family.edited(), &self.tree.rss().shared);
        while member.stale(edited).next().is_some() {
            if !shared.try_begin() {
                self.tlb.fx().relax();
                continue;
            }
            for region in member.stale(edited) {
                // Read before the walk: what comes meanwhile is summed up the next time.
                let now = member.now(region);
                let sum = self.tlb.walk_unheld(|| {
                    let mut sum = Reach::default();
                    self.add_edits_below((self.tree.root(), Level::PGD), false, region, &mut sum);
                    sum
                });
                member.replace(shared, region, sum, now);
            }
            shared.end();
            return;
        }
    }

    /// Counts tables and entries among those of the space alone.
    pub(super) fn count_reached(&self, reach: Reach) {
        self.tree.rss().add(reach.entries);
        self.tree.add_reached(reach.tables);
    }

    /// Counts a change of the tables that the space reaches, after it was made.
    pub(super) fn count_path_change(&self, regions: RegionSet) {
        let Some(member) = self.member else { return };
        for region in regions.iter() {
            member.regions[region.index()].path_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The regions of `span` with edits for all that may not have seen what was stored before.
    pub(super) fn edited_in(&self, span: PageRange) -> RegionSet {
        self.family().map_or_else(RegionSet::default, |family| family.edited().intersect(RegionSet::of(span)))
    }

    /// Adds what a table and those below it have noted in a region.
    ///
    /// What is below a table that `is_shared` is shared, too.
    /// The note of an own table is empty (INV-SHARE-COUNT), and of one that spans regions.
    fn add_edits_below(&self, (table, level): (Pfn, Level), is_shared: bool, region: Region, sum: &mut Reach) {
        if is_shared && level < Level::PUD {
            sum.add(noted_in::<P>(self.tlb.frames().table(table), level));
        }
        if level > Level::PTE {
            for index in entries_of::<P>(level, region) {
                let slot = PteSlot { table, index: index as u16 };
                let pte = self.tlb.fx().load(slot);
                assert_not_freed(self.tlb, table);
                if let Entry::Table(child) = P::Isa::decode(level, pte) {
                    let is_shared = is_shared || child.write_protected;
                    self.add_edits_below((child.pfn, below(level)), is_shared, region, sum);
                }
            }
        }
    }

    /// Counts in the space what is noted in a table that it has to itself from now on, and below.
    ///
    /// Tables that are not in `regions` have noted nothing.
    pub(super) fn fold_edits(&self, table: &LockedTable<'_, P>, regions: RegionSet) {
        let level = table.level();
        self.count_reached(table.noted_edits());
        table.page().set_shared_edits(EntryCounts::default());
        plant!(MadeMarkKept; (), table.page().unmark(TableMarks::MADE_FOR_ALL));
        if level > Level::PTE {
            for (index, pte) in table.live_entries() {
                let Some(child) = P::Isa::own_table(pte) else { continue };
                let va = table.address(index);
                // Below that level, all of a table is in one region.
                if level != Level::PUD || regions.contains(Region::of(va)) {
                    self.fold_edits(&LockedTable::new(*self, child, below(level), va), regions);
                }
            }
        }
    }
}

/// The entries of a table of `level` below which a region may be.
fn entries_of<P: Platform>(level: Level, region: Region) -> impl Iterator<Item = usize> {
    let (first, step) = if level == Level::PUD { (region.index(), Region::COUNT) } else { (0, 1) };
    (first..user_entries::<P>(level)).step_by(step)
}

impl<P: Platform> LockedTable<'_, P> {
    /// What edits for all sharers have changed in the table, as they count in a resident set.
    pub(super) fn noted_edits(&self) -> Reach {
        noted_in::<P>(self.page(), self.level())
    }
}

/// What is noted in the record of a table of `level` for all spaces that reach it.
fn noted_in<P: Platform>(page: TablePage<'_, P::Locks>, level: Level) -> Reach {
    Reach {
        tables: i64::from(page.marks().contains(TableMarks::MADE_FOR_ALL)),
        entries: page.shared_edits().map(|edits| i64::from(edits) * level.pages() as i64),
    }
}
