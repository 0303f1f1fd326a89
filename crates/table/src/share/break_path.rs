//! Breaking what other spaces share: a copy of each table on the way to an entry.
//!
//! ```text
//!   lock the own table above (O), then the shared one (X), then those below it on the way (Y, Z)
//!   O[i] := in transition     accesses fault and wait; lockless walks give up
//!   copy, last level first:   Z → Z'   each entry with its reference and its mapping; both lose the
//!                                      right to store and the exclusive bit
//!                             Y → Y'   Y'[j] ▶ Z'; every other child gets a share, and its pointers
//!                             X → X'   are write-protected in the old table and in the copy
//!   unlock Z and Y
//!   flush the whole span of the pointer in this space; wait for every counted walk
//!   O[i] := X'                own
//!   X: one share less         under X's lock, which is held since before the copy
//! ```
//!
//! **INV-SHARE-BREAK** While a break copies a table, the space's pointer is in transition. So an
//! edit for all sharers that finds the old table after its copy was made edits the copy, too.
//! Otherwise a page that was truncated meanwhile would be mapped again by the copy.
//!
//! Nothing is freed: the last share of X is never dropped here. If X had one share when it was
//! locked, it is [taken back](super::take_back) instead, and while X is locked no other space drops
//! its share.
//!
//! The old pointers of X to Y and of Y to Z stay as they were. The right to store through them is
//! gone one level further down, at their other children and at the leaves.
//!
//! **INV-SHARE-ATOMIC** A break that fails has changed nothing that a program can see.
//!
//! Only the copy of the last table, which comes first, can fail. Then it is discarded, and the
//! pointer gets its old value back.

use super::resident::Reach;
use super::{add_share, drop_share, span_of};
use crate::entry::{CopyStop, EntryHooks, EntryRun, Mlocked};
use crate::locked_table::{CountedIn, LockedTable};
use crate::own_tables::OwnTables;
use crate::reserve::TableReserve;
use crate::tables::{Descent, Tables};
use crate::{IN_TRANSITION, below};
use pagewright_arch::{Entry, Isa, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_tlb::{Debt, OwedFlush, RegionSet};
use pagewright_types::{Counter, Gauge, Level, PageRange, Pfn, VirtAddr};

/// Why a break stopped; what programs can see has not changed.
#[derive(Clone, Copy)]
enum BreakStop {
    /// It needs this many tables in its reserve.
    NeedsTables(usize),
    /// The references of a page exceed the limit for entries.
    TooManyRefs(VirtAddr),
    /// A page is being moved, whose entry would be copied.
    Migrating(VirtAddr),
}

/// What a break copies.
struct Break<'b, 'r, P: Platform, H> {
    tables: Tables<'b, P>,
    va: VirtAddr,
    /// An entry whose span is inside need not be broken.
    keep: PageRange,
    hooks: &'b mut H,
    reserve: &'b mut TableReserve<'r, P>,
    made: u64,
    /// Tables that it may still copy.
    ///
    /// The way may have grown since they were counted: a sharer makes a table that was missing
    /// (INV-SHARE-MAKE).
    left: usize,
    /// What is noted in the old tables, each read under its lock after its copy was made.
    edits: Reach,
}

impl<'h, P: Platform> Tables<'h, P> {
    /// Makes every table of `range` the space's own, with tables that `fill` allocates.
    ///
    /// Waits for pages that are being moved and whose entries are copied. The caller holds no table
    /// lock.
    ///
    /// # Errors
    /// That of `fill`, or [`CopyStop::TooManyRefs`]; what programs can see has not changed.
    pub fn own<E: From<CopyStop>>(
        &self,
        range: PageRange,
        hooks: &mut impl EntryHooks,
        mut fill: impl FnMut(&mut TableReserve<'_, P>, usize) -> Result<(), E>,
    ) -> Result<OwnTables<'h, P>, E> {
        let (mut rest, mut reserve) = (range, TableReserve::new(self.tlb));
        while self.tree.has_shared()
            && let Some((va, found)) = self.first_shared(rest)
        {
            let keep = PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO);
            let stopped = self.break_path(va, &found, keep, hooks, &mut reserve);
            self.resume_break(stopped, &mut reserve, &mut fill)?;
            rest = PageRange::new(va, range.end());
        }
        Ok(OwnTables::new(*self, range))
    }

    /// Breaks what is shared and only in part in `range`, at both of its ends.
    ///
    /// Every pointer that is shared afterwards lies in `range` with all that it spans, or outside.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub fn own_ends<E: From<CopyStop>>(
        &self,
        range: PageRange,
        hooks: &mut impl EntryHooks,
        mut fill: impl FnMut(&mut TableReserve<'_, P>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.tree.has_shared() || range.is_empty() {
            return Ok(());
        }
        let mut reserve = TableReserve::new(self.tlb);
        for va in [range.start(), range.last()] {
            loop {
                let found = self.descend(va, Level::PTE);
                if !found.shared || range.covers(span_of(va, found.level)) {
                    break;
                }
                let stopped = self.break_path(va, &found, range, hooks, &mut reserve);
                self.resume_break(stopped, &mut reserve, &mut fill)?;
            }
        }
        Ok(())
    }

    /// Provides what a break has stopped for; the caller tries again, unless this fails.
    fn resume_break<E: From<CopyStop>>(
        &self,
        stopped: Result<(), BreakStop>,
        reserve: &mut TableReserve<'_, P>,
        fill: &mut impl FnMut(&mut TableReserve<'_, P>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match stopped {
            Ok(()) => Ok(()),
            Err(BreakStop::NeedsTables(wanted)) => fill(reserve, wanted),
            Err(BreakStop::Migrating(va)) => {
                self.await_migration(va);
                Ok(())
            }
            Err(BreakStop::TooManyRefs(va)) => Err(CopyStop::TooManyRefs(va).into()),
        }
    }

    /// Takes back every table of `range` that no other space shares any more; copies none.
    pub fn take_back_part(&self, range: PageRange) {
        let mut rest = range;
        while let Some((va, found)) = self.first_shared(rest) {
            let parent = LockedTable::new(*self, found.slot.table, found.level, va);
            if self.lock_shared(&parent, va).is_some() {
                let next = span_of(va, found.level).end();
                rest = PageRange::new(next.min(range.end()), range.end());
            }
        }
    }

    /// Locks the table below the pointer for `va`, which says whether this space is its origin.
    ///
    /// `None` if no other space shares it; it is then taken back.
    pub(super) fn lock_shared(&self, parent: &LockedTable<'_, P>, va: VirtAddr) -> Option<(LockedTable<'h, P>, bool)> {
        let index = parent.index(va);
        let Entry::Table(pointer) = P::Isa::decode(parent.level(), parent.load(index)) else { return None };
        if !pointer.write_protected {
            return None;
        }
        let old = LockedTable::new(*self, pointer.pfn, below(parent.level()), va);
        if old.page().shares() == 1 {
            self.take_back(parent, index, &old, pointer.origin);
            return None;
        }
        Some((old, pointer.origin))
    }

    /// Breaks the shared pointer `found` on the way to `va`, or takes its table back.
    fn break_path(
        &self,
        va: VirtAddr,
        found: &Descent,
        keep: PageRange,
        hooks: &mut impl EntryHooks,
        reserve: &mut TableReserve<'_, P>,
    ) -> Result<(), BreakStop> {
        let level = found.level;
        let parent = LockedTable::new(*self, found.slot.table, level, va);
        let index = parent.index(va);
        let Some((old, _)) = self.lock_shared(&parent, va) else { return Ok(()) };
        let needed = self.tables_on_the_way(&old, va, keep);
        if reserve.len() < needed {
            return Err(BreakStop::NeedsTables(needed));
        }
        let shared = parent.load(index);
        let hide = || parent.store(index, P::Isa::soft(IN_TRANSITION));
        plant!(CopiedBeforeGap; (), hide());
        <P::Locks as Backend>::point();
        let left = plant!(MadeTableCopied; usize::MAX, needed);
        let mut copy = Break { tables: *self, va, keep, hooks, reserve, made: 0, left, edits: Reach::default() };
        let new = match copy.copy_table(&old) {
            Ok(new) => new,
            Err(stop) => {
                parent.store(index, plant!(FailedBreakOwned; P::Isa::table(TableEntry::own(old.table())), shared));
                self.tlb.fx().publish();
                return Err(stop);
            }
        };
        let (made, edits) = (copy.made, copy.edits);
        plant!(CopiedBeforeGap => hide());
        self.count_reached(edits);
        self.hook_copy(&parent, index, new, level);
        plant!(BreakNotCounted; (), self.count_path_change(RegionSet::of(PageRange::page(va))));
        // INV-SHARE-LEAVE: every CPU of this space was flushed, and every walk has ended.
        drop_share(self.tlb, old.table());
        drop((old, parent));
        // The space reaches as many tables as before.
        self.tlb.frames().adjust(Gauge::PageTablePages, made as i64);
        self.tlb.count(Counter::PwTableBroken, made);
        Ok(())
    }

    /// The tables from `old` down to the last that a break copies.
    fn tables_on_the_way(&self, old: &LockedTable<'_, P>, va: VirtAddr, keep: PageRange) -> usize {
        let (mut table, mut level, mut count) = (old.table(), old.level(), 1);
        while level > Level::PTE && !keep.covers(span_of(va, level)) {
            let slot = PteSlot { table, index: level.index_of(va) as u16 };
            let Entry::Table(next) = P::Isa::decode(level, self.tlb.fx().load(slot)) else { break };
            (table, level, count) = (next.pfn, below(level), count + 1);
        }
        count
    }

    /// Flushes all that a pointer in transition spans, and replaces it by one to `new`.
    fn hook_copy(&self, parent: &LockedTable<'_, P>, index: usize, new: Pfn, level: Level) {
        let va = parent.address(index);
        let owed = || Debt::new(self.tlb, self.context(), va, OwedFlush::LiveTable(level), ());
        plant!(BreakNotFlushed; core::mem::forget(owed()), owed().settle());
        plant!(BreakWalkersNotAwaited; (), self.tlb.await_walkers());
        // INV-TABLE-ZERO: the copies are visible to walkers before the pointer to them is.
        self.tlb.fx().publish();
        parent.store(index, P::Isa::table(TableEntry::own(new)));
        self.tlb.fx().publish();
    }
}

impl<P: Platform, H: EntryHooks> Break<'_, '_, P, H> {
    /// Copies a locked table, and those below it on the way.
    fn copy_table(&mut self, old: &LockedTable<'_, P>) -> Result<Pfn, BreakStop> {
        let (tables, level) = (self.tables, old.level());
        if let Some(va) = plant!(BreakCopiesMigration; None, old.first_migrating(old.range())) {
            return Err(BreakStop::Migrating(va));
        }
        self.left -= 1;
        // The reserve is counted, so what fails below puts nothing back; it discards the copy.
        let on_the_way = (level > Level::PTE && self.left > 0 && !self.keep.covers(span_of(self.va, level)))
            .then(|| P::Isa::decode(level, old.pte(self.va)))
            .and_then(|entry| if let Entry::Table(next) = entry { Some(next) } else { None });
        let below_it = match on_the_way {
            Some(next) => {
                let child = LockedTable::new(tables, next.pfn, below(level), self.va);
                Some(self.copy_table(&child)?)
            }
            None => None,
        };
        let new = LockedTable::new(tables, self.reserve.take_table(level, tables.context().id()), level, self.va);
        self.made += 1;
        // INV-HUGE-OWN: an upper table that is shared has nothing but pointers.
        if level == Level::PTE
            && let Err(stop) = old.copy_shared(&new, self.hooks)
        {
            plant!(FailedCopyKept; core::mem::forget(new), self.discard(new));
            let (CopyStop::NoFrame(va) | CopyStop::TooManyRefs(va) | CopyStop::PinnedHugeLeaf(va)) = stop;
            return Err(BreakStop::TooManyRefs(va));
        }
        let mut pointers = 0;
        if level > Level::PTE {
            for (index, pte) in old.live_entries() {
                let Entry::Table(child) = P::Isa::decode(level, pte) else { continue };
                pointers += 1;
                if let Some(copy) = below_it.filter(|_| index == level.index_of(self.va)) {
                    new.store(index, P::Isa::table(TableEntry::own(copy)));
                    continue;
                }
                add_share(tables.tlb, child.pfn);
                if !child.write_protected {
                    let origin = plant!(OriginLost; false, true);
                    let kept = plant!(OldPointerWritable; child, TableEntry { write_protected: true, origin, ..child });
                    old.store(index, P::Isa::table(kept));
                }
                let copied = TableEntry { write_protected: true, origin: plant!(OriginCopied; true, false), ..child };
                new.store(index, P::Isa::table(copied));
            }
        }
        new.page().adjust_live(pointers);
        let table = new.table();
        let noted = old.noted_edits();
        self.edits.add(noted);
        Ok(table)
    }

    /// Gives up a copy of a last-level table that no walker has seen, with all that it holds.
    #[allow(unsafe_code)]
    fn discard(&mut self, copy: LockedTable<'_, P>) {
        let (tables, table) = (self.tables, copy.table());
        for index in 0..Level::ENTRIES {
            let va = copy.address(index);
            match P::Isa::decode(copy.level(), copy.load(index)) {
                Entry::Empty | Entry::Table(_) => {}
                Entry::Soft(soft) => {
                    EntryRun::new(&copy, Mlocked(false), CountedIn::Nowhere).unmap_soft(va);
                    self.hooks.release_soft(soft);
                }
                Entry::Leaf(_) => EntryRun::new(&copy, Mlocked(false), CountedIn::Nowhere).discard(va),
            }
        }
        drop(copy);
        // SAFETY: INV-TABLE-OWNS – no entry points to the copy, which was never hooked.
        tables.tlb.free(unsafe { tables.tlb.frames().retire(table) });
    }
}
