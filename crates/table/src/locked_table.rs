//! A table under its lock: [`LockedTable`], and the rights by which it is locked.
//!
//! **INV-TABLE-WEAKENED** An edit of a leaf without rights owes a flush if another is pending in
//! the space. The leaf may have lost its rights by an edit that is not flushed yet; otherwise its
//! page would be freed while a CPU still uses it.

use crate::entry::{EntryRun, Mlocked};
use crate::leaf_view::{EntryView, LeafView};
use crate::occupied::{OccupiedParts, PresentEntries};
use crate::tables::Tables;
use core::cell::Cell;
use core::ops::Range;
use pagewright_arch::{Entry, Isa, Leaf, Pte, PteSlot, Replacement, TableWords};
use pagewright_plant::plant;
use pagewright_sync::{Platform, WordGuard, rank};
use pagewright_tlb::frames::TablePage;
use pagewright_tlb::{Debt, IntoDetachedPieces, OwedFlush, TlbContext};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// The lock held, by the table's level.
enum Guard<'a, P: Platform> {
    Upper { _guard: WordGuard<'a, rank::TableUpperRank, P::Locks> },
    Last { _guard: WordGuard<'a, rank::TableRank, P::Locks> },
}

/// The right by which a table is locked; this crate has all that there are.
pub trait TableRight {
    /// Whether the path to the table allows less than its entries say.
    #[inline]
    fn limits_entries(&self) -> bool {
        false
    }

    /// Ends what edits by this right began; the table is about to be unlocked.
    #[inline]
    fn end_edits<P: Platform>(&self, _fx: &P, _table: Pfn) {}
}

/// Whose resident set the edits of a table change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedIn {
    /// That of the space through which the table was found.
    Space,
    /// None: the table is copied for its space, or the copy is discarded.
    Nowhere,
    /// That of every space which reaches the table; its record says by how much.
    Sharers,
}

/// A right that includes edits.
pub trait EditRight<'h, P: Platform>: TableRight + Sized {
    /// What an edit owes that clears or weakens an entry.
    type Debt<T: IntoDetachedPieces>;

    /// Begins edits of a table, and says whose resident set they change.
    fn begin_edits(table: &LockedTable<'h, P, Self>) -> CountedIn;

    /// Makes the debt of one space a debt of every space for which the edit holds.
    fn owe<T: IntoDetachedPieces>(&self, debt: Debt<'h, P, T>) -> Self::Debt<T>;
}

/// The right to edit a table that no other space reaches.
pub struct EditOwn;

impl TableRight for EditOwn {}

impl<'h, P: Platform> EditRight<'h, P> for EditOwn {
    type Debt<T: IntoDetachedPieces> = Debt<'h, P, T>;

    #[inline]
    fn begin_edits(_table: &LockedTable<'h, P>) -> CountedIn {
        CountedIn::Space
    }

    #[inline(always)]
    fn owe<T: IntoDetachedPieces>(&self, debt: Debt<'h, P, T>) -> Debt<'h, P, T> {
        debt
    }
}

/// A locked table: its entries can be read, and edited by an [`EntryRun`] if the right allows it.
///
/// | right | gives | an edit owes |
/// | --- | --- | --- |
/// | [`EditOwn`] | edits of a table of this space alone | a [`Debt`] of the space |
/// | [`EditForAll`](crate::EditForAll) | edits for every space that reaches the table | a [`FamilyDebt`](pagewright_tlb::FamilyDebt) of all of them |
/// | [`ReadOnly`](crate::ReadOnly) | no edit | |
///
/// A table that was locked to read it cannot be edited:
///
/// ```compile_fail,E0599
/// # use pagewright_table::{LockedTable, Mlocked, ReadOnly};
/// # fn edit<P: pagewright_sync::Platform>(table: LockedTable<'_, P, ReadOnly>) {
/// table.run(Mlocked(false)); // the bounds of the method are not satisfied
/// # }
/// ```
///
/// Any address under an entry names it.
#[must_use]
pub struct LockedTable<'h, P: Platform, R: TableRight = EditOwn> {
    pub(crate) tables: Tables<'h, P>,
    table: Pfn,
    level: Level,
    base: VirtAddr,
    /// The entries, if the machine lets them be accessed as words.
    pub(crate) words: Option<TableWords<'h>>,
    /// Entries stored through `words`.
    stores: Cell<u32>,
    pub(crate) right: R,
    _guard: Guard<'h, P>,
}

impl<'h, P: Platform> LockedTable<'h, P> {
    /// Locks `table`, of `level`, which holds the entry for `va`.
    #[inline(always)]
    pub(crate) fn new(tables: Tables<'h, P>, table: Pfn, level: Level, va: VirtAddr) -> Self {
        Self::lock((tables, table, level), va, EditOwn)
    }
}

impl<'h, P: Platform, R: TableRight> LockedTable<'h, P, R> {
    /// Locks a table of a level, which holds the entry for `va`.
    #[inline(always)]
    pub(crate) fn lock(at: (Tables<'h, P>, Pfn, Level), va: VirtAddr, right: R) -> Self {
        let (tables, table, level) = at;
        let page = tables.tlb.frames().table(table);
        let guard = match level {
            Level::PTE => Guard::Last { _guard: page.lock::<rank::TableRank>() },
            _ => Guard::Upper { _guard: page.lock::<rank::TableUpperRank>() },
        };
        Self::guarded(at, va, right, guard)
    }

    /// Locks a table as [`lock`](Self::lock) does, unless it is locked.
    #[inline]
    pub(crate) fn try_lock(at: (Tables<'h, P>, Pfn, Level), va: VirtAddr, right: R) -> Option<Self> {
        let (tables, table, level) = at;
        let page = tables.tlb.frames().table(table);
        let guard = match level {
            Level::PTE => Guard::Last { _guard: page.try_lock::<rank::TableRank>()? },
            _ => Guard::Upper { _guard: page.try_lock::<rank::TableUpperRank>()? },
        };
        Some(Self::guarded(at, va, right, guard))
    }

    #[inline(always)]
    fn guarded(
        (tables, table, level): (Tables<'h, P>, Pfn, Level),
        va: VirtAddr,
        right: R,
        guard: Guard<'h, P>,
    ) -> Self {
        let words = tables.tlb.fx().table_words(table);
        let base = va.align_down(level.table_span());
        Self { tables, table, level, base, words, stores: Cell::new(0), right, _guard: guard }
    }

    /// The level of the table: its entries span [`Level::span`] bytes.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The frame of the table.
    #[inline]
    pub fn table(&self) -> Pfn {
        self.table
    }

    /// The space as the TLBs see it.
    #[inline]
    pub fn context(&self) -> &'h pagewright_sync::Arc<TlbContext> {
        self.tables.context()
    }

    /// The addresses under the table.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.base, self.base.add(self.level.table_span()))
    }

    /// The first address of `part` under each entry, in order.
    #[inline]
    pub fn entries(&self, part: PageRange) -> impl Iterator<Item = VirtAddr> + use<P, R> {
        let (step, end) = (self.level.span(), part.end());
        let next = move |va: &VirtAddr| Some(va.align_down(step).add(step)).filter(|next| *next < end);
        core::iter::successors((!part.is_empty()).then_some(part.start()), next)
    }

    /// The entry for `va`.
    ///
    /// In a table that was locked to read it, as the path allows it to be used; else as it says.
    #[inline]
    pub fn entry(&self, va: VirtAddr) -> EntryView {
        EntryView::decode::<P::Isa>(self.level, self.pte(va), self.right.limits_entries())
    }

    /// The leaf for `va`, or `None` if the entry is anything else.
    #[inline]
    pub fn leaf(&self, va: VirtAddr) -> Option<LeafView> {
        self.entry(va).leaf()
    }

    /// Whether the entry for `va` stands for a page: it is a leaf, or soft.
    #[inline]
    pub(crate) fn holds_page(&self, va: VirtAddr) -> bool {
        match self.entry(va) {
            EntryView::Leaf(_) | EntryView::Soft(_) => true,
            EntryView::Empty | EntryView::Table => false,
        }
    }

    /// Whether the entry for `va` is empty.
    #[inline]
    pub fn is_empty(&self, va: VirtAddr) -> bool {
        self.entry(va) == EntryView::Empty
    }

    /// Begins a run of edits for a mapping, which may be locked memory.
    #[inline]
    pub fn run(&self, mlocked: Mlocked) -> EntryRun<'_, 'h, P, R>
    where
        R: EditRight<'h, P>,
    {
        EntryRun::new(self, mlocked, R::begin_edits(self))
    }

    /// The place of the entry for `va`, which is the same for every space that reaches it.
    #[inline]
    pub fn slot_of(&self, va: VirtAddr) -> PteSlot {
        self.slot(self.index(va))
    }

    #[inline]
    pub(crate) fn page(&self) -> TablePage<'h, P::Locks> {
        self.tables.tlb.frames().table(self.table)
    }

    /// The entries that are not empty, as they are when each is reached.
    ///
    /// It stops at the last of them, by their number in the record. An empty entry that is pending
    /// is a word of its own and none of that number. The caller empties none and fills none while
    /// it iterates.
    pub(crate) fn live_entries(&self) -> impl Iterator<Item = (usize, Pte)> + use<'h, P, R> {
        let (level, live) = (self.level, self.page().live() as usize);
        let is_live = move |pte: Pte| plant!(PendingTakenForLive; true, P::Isa::decode(level, pte) != Entry::Empty);
        let present = PresentEntries::new(self.fx(), self.table, self.occupied(0..Level::ENTRIES));
        present.filter(move |(_, pte)| is_live(*pte)).take(live)
    }

    /// The parts of `indices` that have entries, and a few empty ones between them.
    #[inline]
    pub(crate) fn occupied(&self, indices: Range<usize>) -> OccupiedParts<'h> {
        OccupiedParts::new(self.words, indices)
    }

    /// The entries under `part`, by their index in the table.
    #[inline]
    pub(crate) fn indices(&self, part: PageRange) -> Range<usize> {
        debug_assert!(!part.is_empty() && self.range().covers(part), "{part} is not under this table");
        self.level.index_of(part.start())..self.level.index_of(part.last()) + 1
    }

    /// The first address under an entry, or the end of the table for the index past the last.
    #[inline]
    pub(crate) fn address(&self, index: usize) -> VirtAddr {
        self.base.add(index as u64 * self.level.span())
    }

    /// The index of the entry for `va`.
    #[inline]
    pub(crate) fn index(&self, va: VirtAddr) -> usize {
        debug_assert!(va.raw().wrapping_sub(self.base.raw()) < self.level.table_span(), "{va} is not under this table");
        self.level.index_of(va)
    }

    #[inline]
    pub(crate) fn slot(&self, index: usize) -> PteSlot {
        PteSlot { table: self.table, index: index as u16 }
    }

    #[inline]
    pub(crate) fn fx(&self) -> &'h P {
        self.tables.tlb.fx()
    }

    #[inline]
    pub(crate) fn load(&self, index: usize) -> Pte {
        self.words.map_or_else(|| self.fx().load(self.slot(index)), |words| words.load(index))
    }

    #[inline]
    pub(crate) fn store(&self, index: usize, pte: Pte) {
        match self.words {
            Some(words) => {
                words.store(index, pte);
                self.note_store();
            }
            None => self.fx().store(self.slot(index), pte),
        }
    }

    #[inline]
    pub(crate) fn swap(&self, index: usize, pte: Pte) -> Pte {
        match self.words {
            Some(words) => {
                self.note_store();
                words.swap(index, pte)
            }
            None => self.fx().swap(self.slot(index), pte),
        }
    }

    /// Stores `new` if the entry is `current`.
    ///
    /// # Errors
    /// The entry found instead, if it differs; nothing was stored.
    #[inline]
    pub(crate) fn compare_exchange(&self, index: usize, current: Pte, new: Pte) -> Result<(), Pte> {
        match self.words {
            Some(words) => words.compare_exchange(index, current, new).inspect(|()| self.note_store()),
            None => self.fx().compare_exchange(self.slot(index), current, new),
        }
    }

    #[inline]
    fn note_store(&self) {
        self.stores.set(self.stores.get() + 1);
    }

    #[inline]
    pub(crate) fn pte(&self, va: VirtAddr) -> Pte {
        self.load(self.index(va))
    }

    #[inline]
    pub(crate) fn put(&self, va: VirtAddr, pte: Pte) {
        self.store(self.index(va), pte);
    }

    /// Stores an entry that no TLB caches; if the old one is pending, the new one is, too.
    ///
    /// The flush of the leaf that was cleared there is deferred still, and the leaf that is stored
    /// next waits for it (INV-TLB-PLACE).
    #[inline]
    pub(crate) fn store_not_present(&self, va: VirtAddr, pte: Pte) {
        let pending = plant!(PendingMarkLost; None, P::Isa::pending(self.pte(va)));
        self.put(va, pending.and_then(|pending| P::Isa::mark_pending(pte, pending)).unwrap_or(pte));
    }

    /// Replaces the leaf for `va` by `new`, and returns it with every bit that a walker will set.
    ///
    /// The exchange is atomic against the walker.
    #[inline]
    pub(crate) fn swap_leaf(&self, va: VirtAddr, new: Pte) -> (Pte, Leaf) {
        let old = self.swap(self.index(va), new);
        match P::Isa::decode(self.level, old) {
            Entry::Leaf(leaf) => (old, leaf),
            Entry::Empty | Entry::Soft(_) | Entry::Table(_) => {
                unreachable!("INV-TABLE-LOCKED: the entry at {va} was edited without its table's lock")
            }
        }
    }

    /// What putting `new` for `old` owes.
    ///
    /// Break-before-make never arises here: frames change by unmap and map, with the debt settled
    /// in between.
    #[inline(always)]
    pub(crate) fn owed(&self, old: Pte, new: Pte) -> OwedFlush {
        match P::Isa::replacement(self.level, old, new) {
            Replacement::Harmless => OwedFlush::Nothing,
            Replacement::FlushIfPending => self.owed_if_pending(),
            Replacement::Flush => OwedFlush::Leaf(self.level),
            Replacement::BreakFirst => unreachable!("INV-TABLE-BBM: {old:?} replaced by {new:?} in one step"),
        }
    }

    /// Whether clearing `leaf`, which was encoded as `pte`, owes a flush.
    #[inline]
    pub(crate) fn owes_when_cleared(&self, pte: Pte, leaf: Leaf) -> bool {
        let owes = !leaf.rights.is_empty() || self.owed_if_pending() != OwedFlush::Nothing;
        debug_assert_eq!(owes, self.owed(pte, Pte::EMPTY) != OwedFlush::Nothing, "INV-REPLACE: clearing {pte:?}");
        owes
    }

    /// What an edit of a leaf without rights owes.
    ///
    /// INV-TABLE-WEAKENED: if a flush of the table's entries is pending, it may be this leaf's, and
    /// a TLB then holds the rights that it had. Whatever takes rights away records its flush in the
    /// table before it releases the lock, so it is seen here. The caller's own concurrent gather
    /// counts, too, if it has edited the table before.
    #[cold]
    fn owed_if_pending(&self) -> OwedFlush {
        let pending = self.tables.tlb.may_owe_flush(self.context(), self.table);
        plant!(WeakenedTakenUnflushed => return OwedFlush::Nothing);
        if pending { OwedFlush::Leaf(self.level) } else { OwedFlush::Nothing }
    }

    /// Flushes all entries of the table that were cleared or weakened and may not be flushed yet.
    pub(crate) fn flush_pending(&self) {
        self.tables.tlb.flush_pending_table(self.context(), self.table);
    }

    /// Flushes the entry for `va` if it was cleared and may not be flushed yet (INV-TLB-CLEARED).
    #[inline]
    pub(crate) fn flush_before_install(&self, va: VirtAddr) {
        self.tables.tlb.flush_before_install(self.context(), self.slot_of(va), va, self.level);
    }
}

impl<P: Platform, R: TableRight> Drop for LockedTable<'_, P, R> {
    #[inline]
    fn drop(&mut self) {
        self.right.end_edits(self.fx(), self.table);
        if self.stores.get() > 0 {
            self.fx().note_stores(self.stores.get());
        }
    }
}
