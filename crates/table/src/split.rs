//! Replacing a huge leaf by a table of smaller ones that say the same (`__split_huge_pmd_locked`).
//!
//! ```text
//!   leaf ──▶ in transition ──▶ flush of the leaf ──▶ entries in its deposit ──▶ pointer to the deposit
//!            accesses fault and wait                 counts: pages first, then the whole
//! ```
//!
//! The table is the leaf's deposit, so a split allocates nothing and always succeeds. The leaf is
//! removed and flushed before the table is hooked: break-before-make of arm64, and on x86-64 no TLB
//! has entries of two sizes for an address.
//!
//! **INV-SPLIT-HIDDEN** A huge leaf that is being split never reads as empty: its entry is in
//! transition, every descent waits, and the lock of its table is held until the parts are in place.
//! Otherwise an operation that removes the pages would find none, and the split would bring them
//! back.
//!
//! **INV-TABLE-BBM** Where the architecture requires break-before-make, a huge leaf is cleared and
//! flushed before its parts are hooked (Arm ARM D8.16.1).

use crate::IN_TRANSITION;
use crate::entry::{Mlocked, counts_of};
use crate::locked_table::LockedTable;
use crate::own_tables::OwnTables;
use crate::share::span_of;
use pagewright_arch::{Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry};
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_tlb::frames::{EntryCounts, Folio, PageCounts, TableMarks};
use pagewright_tlb::{FlushInfo, Tlb};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, Gauge, Level, PAGE_SHIFT, PageRange, Pfn, Rights, VirtAddr};

impl<P: Platform> OwnTables<'_, P> {
    /// Splits the leaf of the PMD level over `va` into 512 leaves of the last level.
    ///
    /// They have its rights and flags, and one reference and one mapping each. Returns whether
    /// there was such a leaf.
    pub fn split_leaf(&self, va: VirtAddr, mlocked: Mlocked) -> bool {
        let Some(locked) = self.lock_level(va, Level::PMD) else { return false };
        if locked.level() != Level::PMD || locked.leaf(va).is_none() {
            return false;
        }
        self.split_locked(&locked, va, mlocked);
        true
    }

    /// Splits the leaf over `va` in a locked table of the PMD level.
    pub(crate) fn split_locked(&self, locked: &LockedTable<'_, P>, va: VirtAddr, mlocked: Mlocked) {
        let tlb = self.tlb;
        let level = locked.level();
        let child = locked.withdraw();
        // A judge would blame a call that returns meanwhile for what the flush below removes.
        let range = span_of(va, level);
        tlb.fx().declare(Fact::RightReduced { root: self.tree.root(), range, left: Rights::empty() });
        let hidden = plant!(SplitLeavesGap; Pte::EMPTY, P::Isa::soft(IN_TRANSITION));
        let (_, leaf) = locked.swap_leaf(va, hidden);
        self.flush_split(range, level);
        if !leaf.flags.contains(LeafFlags::SPECIAL) {
            let counts = counts_of(leaf.flags.contains(LeafFlags::EXCLUSIVE));
            self.count_parts(tlb.frames().folio(leaf.pfn), counts, mlocked);
        }
        fill_parts(tlb, locked.table(), child, leaf);
        locked.put(va, P::Isa::table(TableEntry::own(child)));
        tlb.fx().publish();
        tlb.count(Counter::ThpSplitPmd, 1);
    }

    /// Flushes a leaf of `level` over `range`.
    fn flush_split(&self, range: PageRange, level: Level) {
        let flush = |range, level| {
            self.tlb.flush(self.context(), FlushInfo { range: Some(range), level, freed_tables: false });
        };
        plant!(SplitNotFlushed => return);
        plant!(SplitLevelBelow => return flush(range, Level::PTE));
        plant!(SplitFlushesPage => return flush(PageRange::page(range.start()), Level::PTE));
        flush(range, level);
    }

    /// Counts the entries that map the pages of a folio instead of the one that mapped it whole.
    ///
    /// The one reference of the old leaf becomes the first part's; the other parts get their own.
    fn count_parts(&self, folio: Folio<'_>, counts: PageCounts, mlocked: Mlocked) {
        let entire = plant!(WholeUncountedFirst; uncount_whole_first::<P>(folio), folio.split_entire(counts).entire);
        if folio.is_anon() && entire > 0 {
            self.tlb.frames().adjust(Gauge::AnonThps, -i64::from(entire));
        }
        if plant!(SplitLosesLock; false, mlocked.0) {
            self.tlb.frames().mlock(folio, Level::ENTRIES as u32 - 1);
        }
    }
}

planted! {
    /// Uncounts the entry for a whole folio before it counts those of the pages.
    fn uncount_whole_first<P: Platform>(folio: Folio<'_>) -> u32 {
        let entire = folio.unmap_entire().entire;
        <P::Locks as pagewright_sync::Backend>::point();
        folio.map_page(0);
        folio.get_and_map_pages(1..folio.pages(), PageCounts::Shared);
        entire
    }
}

/// The flags of the parts of a leaf, which are its own.
fn flags_of_parts(flags: LeafFlags) -> LeafFlags {
    plant!(SplitLosesExclusive => return flags - LeafFlags::EXCLUSIVE);
    plant!(SplitLosesDirty => return flags - LeafFlags::DIRTY);
    plant!(SplitLosesAccessed => return flags - LeafFlags::ACCESSED);
    plant!(SplitLosesSoftDirty => return flags - LeafFlags::SOFT_DIRTY);
    flags
}

/// Fills `child`, which is empty, with the parts of a leaf of the PMD level of `parent`.
///
/// Moves what counts the leaf from one record to the other; the caller has counted the parts in
/// their folio, and holds the lock of `parent`. The entries are visible to walkers before the
/// caller stores the pointer to them (INV-TABLE-ZERO).
pub(crate) fn fill_parts<P: Platform>(tlb: &Tlb<P>, parent: Pfn, child: Pfn, leaf: Leaf) {
    let (from, to) = (tlb.frames().table(parent), tlb.frames().table(child));
    // The parts differ in their frames alone, so one is encoded.
    let part = Leaf { flags: flags_of_parts(leaf.flags), ..leaf };
    let (first, words) = (P::Isa::leaf(Level::PTE, part).raw(), tlb.fx().table_words(child));
    for index in 0..Level::ENTRIES {
        let part = Pte::from_raw(first + ((index as u64) << PAGE_SHIFT));
        match words {
            Some(words) => words.store(index, part),
            None => tlb.fx().store(PteSlot { table: child, index: index as u16 }, part),
        }
    }
    if words.is_some() {
        tlb.fx().note_stores(Level::ENTRIES as u32);
    }
    if plant!(SplitLosesMayPin; false, from.marks().contains(TableMarks::MAY_PIN)) {
        to.mark(TableMarks::MAY_PIN);
    }
    to.adjust_live(Level::ENTRIES as i32);
    if !leaf.flags.contains(LeafFlags::SPECIAL) {
        let mut entries = EntryCounts::default();
        let kind = tlb.frames().folio(leaf.pfn).rss_kind() as usize;
        entries[kind] = Level::ENTRIES as i32;
        to.adjust_counts(entries);
        entries[kind] = -1;
        from.adjust_counts(entries);
    }
    tlb.fx().publish();
}
