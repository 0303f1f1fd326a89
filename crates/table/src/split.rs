//! Replacing a huge leaf by a table of smaller ones that say the same (`__split_huge_pmd_locked`).
//!
//! ```text
//!   leaf ──▶ in transition ──▶ flush of the leaf ──▶ entries in its deposit ──▶ pointer to the deposit
//!            accesses fault and wait                 counts: pages first, then the whole
//! ```
//!
//! The table is the leaf's deposit, so a split allocates nothing and always succeeds. The leaf is
//! removed and flushed before the table is hooked: break-before-make of arm64, and on x86-64 no TLB
//! has entries of two sizes for an address. INV-SPLIT-HIDDEN: meanwhile the entry is *in
//! transition*. It never reads as empty, so an operation that removes the pages waits, and then
//! finds them.

use crate::entry::Mlocked;
use crate::locked_table::LockedTable;
use crate::own_tables::OwnTables;
use crate::share::span_of;
use crate::{IN_TRANSITION, below};
use pagewright_arch::{Isa, Leaf, LeafFlags, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::FlushInfo;
use pagewright_tlb::frames::{EntryCounts, Folio, RssKind, TableMarks};
use pagewright_types::{Gauge, Level, VirtAddr};

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

    fn split_locked(&self, locked: &LockedTable<'_, P>, va: VirtAddr, mlocked: Mlocked) {
        let tlb = self.tlb;
        let level = locked.level();
        let below = below(level);
        let child = locked.withdraw();
        let hidden = plant!(SplitLeavesGap; pagewright_arch::Pte::EMPTY, P::Isa::soft(IN_TRANSITION));
        let (_, leaf) = locked.swap_leaf(va, hidden);
        let range = span_of(va, level);
        let named = plant!(SplitLevelBelow; below, level);
        tlb.flush(self.context(), FlushInfo { range: Some(range), level: named, freed_tables: false });
        for index in 0..Level::ENTRIES {
            let part = Leaf { pfn: leaf.pfn.add(index as u32 * below.pages() as u32), ..leaf };
            tlb.fx().store(PteSlot { table: child, index: index as u16 }, P::Isa::leaf(below, part));
        }
        let page = tlb.frames().table(child);
        if locked.page().marks().contains(TableMarks::MAY_PIN) {
            page.mark(TableMarks::MAY_PIN);
        }
        page.adjust_live(Level::ENTRIES as i32);
        if !leaf.flags.contains(LeafFlags::SPECIAL) {
            let kind = self.count_parts(tlb.frames().folio(leaf.pfn), mlocked);
            let mut entries = EntryCounts::default();
            entries[kind as usize] = Level::ENTRIES as i32;
            page.adjust_counts(entries);
            entries[kind as usize] = -1;
            locked.page().adjust_counts(entries);
        }
        // INV-TABLE-ZERO: the entries are visible to walkers before the pointer to them is.
        tlb.fx().publish();
        locked.put(va, P::Isa::table(TableEntry::own(child)));
        tlb.fx().publish();
    }

    /// Counts the entries that map the pages of a folio instead of the one that mapped it whole.
    ///
    /// The one reference of the old leaf becomes the first part's; the other parts get their own.
    fn count_parts(&self, folio: Folio<'_>, mlocked: Mlocked) -> RssKind {
        let entire = folio.split_entire().entire;
        if folio.is_anon() && entire > 0 {
            self.tlb.frames().adjust(Gauge::AnonThps, -i64::from(entire));
        }
        if mlocked.0 {
            for _ in 1..Level::ENTRIES {
                self.tlb.frames().mlock(folio);
            }
        }
        folio.rss_kind()
    }
}
