//! Sharing the tables of a parent with its child (`copy_pmd_range` with `MMF_COW_PTE`).
//!
//! A pointer is shared at the highest level at which every mapping below it may be shared. The
//! parent's pointer is write-protected, the child gets one like it, and the table a share more.
//! Nothing below is read or written. What cannot be shared is left out: the caller copies it.
//!
//! ```text
//!   write-protect the parent's pointer ─▶ full barrier ─▶ marked as pinned?
//!       no: share      yes: judge each leaf under the lock, and the marks of the tables below
//!                           none pinned: share
//!                           else: restore the pointer, and share its children instead
//! ```
//!
//! `gup_fast` marks the tables on its path, pins, and compares the path after a full barrier. So
//! either fork sees the mark, or the pin is given up (INV-SHARE-PIN).

use super::{add_share, span_of, user_entries};
use crate::below;
use crate::locked_table::LockedTable;
use crate::mmap_lock::MmapWrite;
use crate::reserve::TableReserve;
use crate::tables::Tables;
use pagewright_arch::{Entry, Isa, LeafFlags, Pte, PteSlot, TableEntry};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Backend, FullBarrier, Platform};
use pagewright_tlb::frames::{EntryCounts, NoFrames, TableMarks};
use pagewright_tlb::{Debt, Family, Gather, OwedFlush, Tlb};
use pagewright_types::judge::Fact;
use pagewright_types::{Counter, Level, PageRange, Pfn, Rights, VirtAddr};

/// The marks that say what is in a table or below it.
const KEPT_MARKS: TableMarks = TableMarks::MAY_PIN.union(TableMarks::HOLDS_HUGE);

/// One sharing of tables.
struct Sharing<'s, 'h, 'g, P: Platform, S, F> {
    parent: Tables<'h, P>,
    child: Tables<'h, P>,
    may_share: S,
    fill: F,
    gather: &'s mut Gather<'g, P>,
    reserve: TableReserve<'h, P>,
    /// What the parent keeps for itself.
    kept: EntryCounts<i64>,
    kept_tables: i64,
    /// Whether nothing is left to copy.
    complete: bool,
}

impl<P: Platform, M> MmapWrite<'_, P, M> {
    /// Makes a child that shares nothing yet a member of this space's family.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted.
    pub fn add_to_family(&mut self, child: &mut MmapWrite<'_, P, M>) -> Result<(), AllocError> {
        let family = match self.family() {
            Some(family) => family.clone(),
            None => {
                let family = Family::try_new()?;
                plant!(FamilyJoinedLate; (), self.join_family(&family)?);
                family
            }
        };
        child.join_family(&family)
    }

    /// Shares with a new child, which no CPU runs, the tables that `may_share` allows.
    ///
    /// That says whether every mapping under a range may be shared. `fill` allocates a table for a
    /// reserve. The child is a [member](Self::add_to_family) of the family. `gather`, of this
    /// space, takes the flush of the pointers that were write-protected. Returns whether all tables
    /// are shared.
    ///
    /// # Errors
    /// [`NoFrames`] for a table of the child; the caller ends the child.
    pub fn share_tables(
        &self,
        child: &MmapWrite<'_, P, M>,
        tlb: &Tlb<P>,
        may_share: impl Fn(PageRange) -> bool,
        fill: impl Fn(&mut TableReserve<'_, P>) -> Result<(), NoFrames>,
        gather: &mut Gather<'_, P>,
    ) -> Result<bool, NoFrames> {
        let (parent, child) = (self.tables(tlb), child.tables(tlb));
        parent.tree.note_shared();
        child.tree.note_shared();
        let (reserve, kept) = (TableReserve::new(tlb), EntryCounts::default());
        let all = parent.tree.rss().own();
        // The records of the tables below a shared pointer are not visited.
        gather.meet_space();
        let mut sharing =
            Sharing { parent, child, may_share, fill, gather, reserve, kept, kept_tables: 0, complete: true };
        let roots = (parent.tree.root(), child.tree.root());
        let shared = sharing.share_below(roots, Level::PGD, VirtAddr::ZERO);
        if let Err(refused) = shared {
            // The child ends, and leaves what it got.
            child.count_shared();
            return Err(refused);
        }
        let (kept, kept_tables, complete) = (sharing.kept, sharing.kept_tables, sharing.complete);
        child.tree.add_reached(parent.tree.reached() - kept_tables);
        child.tree.rss().add(core::array::from_fn(|kind| all[kind] - kept[kind]));
        Ok(complete)
    }

    /// Lets later calls assume that no pointer is shared, if none is.
    ///
    /// A fork that copied all tables calls it, or each later one would look at every table again.
    pub fn note_if_none_shared(&self, tlb: &Tlb<P>) {
        let tables = self.tables(tlb);
        if !tables.tree.has_shared() {
            return;
        }
        if plant!(SharingForgotten; true, tables.first_shared(P::Isa::USER).is_none()) {
            tables.tree.note_none_shared();
        }
    }
}

impl<P, S, F> Sharing<'_, '_, '_, P, S, F>
where
    P: Platform,
    S: Fn(PageRange) -> bool,
    F: Fn(&mut TableReserve<'_, P>) -> Result<(), NoFrames>,
{
    /// Shares what may be shared below two tables of one level; `base` is their first address.
    ///
    /// Returns the marks that the table needs: those of what stays the parent's below it.
    fn share_below(&mut self, (from, to): (Pfn, Pfn), level: Level, base: VirtAddr) -> Result<TableMarks, NoFrames> {
        self.keep(from, level);
        let mut marks = TableMarks::empty();
        // Fork holds the space for writing, so its own tables do not change.
        for (index, pte) in self.parent.present_in(from, 0..user_entries::<P>(level)) {
            let va = base.add(index as u64 * level.span());
            let pointer = match P::Isa::decode(level, pte) {
                Entry::Table(pointer) => pointer,
                Entry::Empty => continue,
                Entry::Leaf(_) | Entry::Soft(_) => {
                    // Any may be pinned.
                    self.complete = false;
                    marks |= TableMarks::MAY_PIN | TableMarks::HOLDS_HUGE;
                    continue;
                }
            };
            let holds_huge = plant!(HugeShared; false, self.marks(pointer.pfn).contains(TableMarks::HOLDS_HUGE));
            let parent = LockedTable::new(self.parent, from, level, va);
            if !holds_huge && (self.may_share)(span_of(va, level)) && self.try_share(&parent, index, pointer) {
                drop(parent);
                self.give_to_child(to, level, va, pointer.pfn);
                continue;
            }
            drop(parent);
            if level == Level::PMD {
                self.complete = false;
                self.keep(pointer.pfn, Level::PTE);
                marks |= self.marks(pointer.pfn) & KEPT_MARKS;
                continue;
            }
            // The pointer is own: a table that is shared already has nothing that forbids it.
            let child = self.child_table(to, level, va)?;
            // A lockless walk marks the lowest table first. So it marks this one again, or the walk
            // below sees its mark.
            let page = self.parent.tlb.frames().table(pointer.pfn);
            page.unmark(KEPT_MARKS);
            let below_marks = self.share_below((pointer.pfn, child), below(level), va);
            plant!(PinMarkLost; (), page.mark(below_marks.unwrap_or(KEPT_MARKS)));
            marks |= below_marks?;
            self.drop_if_empty(to, level, va, child);
        }
        Ok(marks)
    }

    /// Counts a table that the parent keeps for itself.
    fn keep(&mut self, table: Pfn, level: Level) {
        let own = self.parent.counts_of(table, level);
        self.kept = core::array::from_fn(|kind| self.kept[kind] + own[kind]);
        self.kept_tables += 1 + i64::from(self.parent.tlb.frames().table(table).deposits());
    }

    fn marks(&self, table: Pfn) -> TableMarks {
        self.parent.tlb.frames().table(table).marks()
    }

    fn marked_after(&self, table: Pfn, barrier: FullBarrier) -> bool {
        self.parent.tlb.frames().table(table).marks_after(barrier).contains(TableMarks::MAY_PIN)
    }

    /// Write-protects a pointer of the parent and adds a share; false if a page may be pinned.
    fn try_share(&mut self, parent: &LockedTable<'_, P>, index: usize, pointer: TableEntry) -> bool {
        let (tlb, level) = (self.parent.tlb, parent.level());
        if !pointer.write_protected {
            let (root, range) = (self.parent.tree.root(), span_of(parent.address(index), level));
            tlb.fx().declare(Fact::RightReduced { root, range, left: Rights::RX });
            let own = parent.load(index);
            let shared = TableEntry { write_protected: true, origin: true, ..pointer };
            parent.store(index, P::Isa::table(shared));
            // Pairs with the barrier between the pin and the second look at the path in `gup_fast`.
            let barrier = FullBarrier::execute();
            <P::Locks as Backend>::point();
            if plant!(ForkSharesPinned; false, self.marked_after(pointer.pfn, barrier))
                && !self.judge(parent, index, pointer, barrier)
            {
                parent.store(index, own);
                return false;
            }
            let owed = OwedFlush::LiveTable(level);
            let debt = Debt::new(tlb, self.parent.context(), parent.address(index), owed, ());
            plant!(ShareNotFlushed; core::mem::forget(debt), self.gather.absorb(debt));
        }
        add_share(tlb, pointer.pfn);
        tlb.count(Counter::PwTableShared, 1);
        true
    }

    /// Whether no page below a marked table is pinned; then the mark is removed.
    ///
    /// The tables below are asked for their marks, and the leaves of the table for their pins.
    fn judge(&self, parent: &LockedTable<'_, P>, index: usize, pointer: TableEntry, barrier: FullBarrier) -> bool {
        let (tlb, level) = (self.parent.tlb, below(parent.level()));
        let table = LockedTable::new(self.parent, pointer.pfn, level, parent.address(index));
        let pinned = table.live_entries().any(|(_, pte)| match P::Isa::decode(level, pte) {
            Entry::Leaf(leaf) => {
                !leaf.flags.contains(LeafFlags::SPECIAL) && tlb.frames().folio(leaf.pfn).maybe_pinned_after(barrier)
            }
            Entry::Table(child) => self.marked_after(child.pfn, barrier),
            // Its migrator may find that the page is pinned.
            Entry::Soft(soft) => soft.migrating().is_some(),
            Entry::Empty => false,
        });
        if !pinned {
            table.page().unmark(TableMarks::MAY_PIN);
        }
        !pinned
    }

    /// Stores the child's pointer to a table that it shares.
    fn give_to_child(&self, to: Pfn, level: Level, va: VirtAddr, table: Pfn) {
        let child = LockedTable::new(self.child, to, level, va);
        let index = child.index(va);
        debug_assert_eq!(child.load(index), Pte::EMPTY, "INV-TABLE-EMPTY: a child has a table at {va}");
        let origin = plant!(OriginGivenToChild; true, false);
        child.store(index, P::Isa::table(TableEntry { pfn: table, write_protected: true, origin }));
        child.page().adjust_live(1);
    }

    /// The child's own table below the entry of `level` for `va`, which is made if it is missing.
    fn child_table(&mut self, to: Pfn, level: Level, va: VirtAddr) -> Result<Pfn, NoFrames> {
        (self.fill)(&mut self.reserve)?;
        let child = LockedTable::new(self.child, to, level, va);
        let table = self.reserve.take_table(below(level), self.child.context().id());
        self.child.tlb.fx().publish();
        child.store(child.index(va), P::Isa::table(TableEntry::own(table)));
        child.page().adjust_live(1);
        self.child.tree.adjust_tables(self.child.tlb, 1);
        Ok(table)
    }

    /// Frees a table of the child again that nothing was put into.
    ///
    /// No CPU has walked it, so nothing is owed.
    fn drop_if_empty(&self, to: Pfn, level: Level, va: VirtAddr, table: Pfn) {
        let tlb = self.child.tlb;
        if tlb.frames().table(table).live() == 0 {
            let slot = PteSlot { table: to, index: level.index_of(va) as u16 };
            tlb.free(self.child.clear_pointer(slot, table));
        }
    }
}
