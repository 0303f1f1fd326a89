//! The tables of a space that is held: descending, and adding tables.
//!
//! ```text
//!            root (PGD) ── PUD ── PMD ── PTE ── leaf
//!   find     without a lock: the hold keeps every own table hooked (INV-TABLE-STABLE)
//!   lock     the table that holds the entry, then read it again: a leaf above may have been split
//!   edit     under that lock, and only under it (INV-TABLE-LOCKED)
//! ```
//!
//! [`Tables::find`] gives the last entry on the way to an address, at any level: a leaf, a soft
//! entry or an empty one. [`FoundEntry`] also says what the path is: through pointers of this space
//! alone, or through one below which other spaces share all tables ([`crate::share`]). Nothing
//! below that one is stable while the space is held for reading.
//!
//! [`Tables`] itself edits nothing.
//!
//! **INV-TABLE-OWN** An entry is edited for one space only if every entry on the path to it is that
//! space's alone. Below an entry that other spaces share, a leaf is seen without the right to write
//! and without exclusivity. Examples of `Tables` that must not compile show it.
//!
//! An edit for one space needs [`OwnTables`], which only [`Tables::own`] and its kin make, after
//! they broke what was shared. So a call that forgets to break a shared table does not compile:
//!
//! ```compile_fail,E0599
//! # fn edit<P: pagewright_sync::Platform>(tables: pagewright_table::Tables<'_, P>) {
//! let locked = tables.lock(pagewright_types::VirtAddr::ZERO); // no method found
//! # }
//! ```
//!
//! Nor does the view of a leaf that ignores the path:
//!
//! ```compile_fail,E0616
//! # fn raw(leaf: pagewright_table::LeafView) -> pagewright_arch::Leaf {
//! leaf.leaf
//! # }
//! ```
//!
//! **INV-TABLE-LOCKED** An entry is edited only under the lock of its table. Beside that, only the
//! hardware walker writes entries: it sets accessed and dirty.
//!
//! Not guaranteed: that an entry that was read without its table's lock is unchanged.

use crate::leaf_view::EntryView;
use crate::locked_table::{EditOwn, LockedTable, TableRight};
use crate::occupied::{OccupiedParts, PresentEntries};
use crate::own_tables::OwnTables;
use crate::page_table::PageTable;
use crate::share::Membership;
use core::ops::Range;
use pagewright_arch::{Entry, Isa, Pte, PteSlot};
use pagewright_plant::plant;
use pagewright_sync::{Arc, FullBarrier, Platform};
use pagewright_tlb::frames::TableMarks;
use pagewright_tlb::{Family, Tlb, TlbContext};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// The tables of a space that is held for reading or writing.
///
/// It borrows from the guard ([`MmapRead`](crate::MmapRead), [`MmapWrite`](crate::MmapWrite)), so
/// it cannot outlive the hold.
pub struct Tables<'h, P: Platform> {
    pub(crate) tree: &'h PageTable,
    pub(crate) tlb: &'h Tlb<P>,
    /// What the space has of its family; none before its first fork.
    pub(crate) member: Option<&'h Membership<P>>,
}

impl<P: Platform> Clone for Tables<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Tables<'_, P> {}

/// The last entry on the way to an address, as a descent without locks has read it.
///
/// The descent ends at the level asked for, or above it at an entry that points to no table. The
/// entry is [own](Self::is_own), [shared](Self::is_shared), or empty above a table that is missing.
pub struct FoundEntry<'h, P: Platform> {
    /// The level of the entry.
    pub level: Level,
    /// What the entry says, as the path to it allows.
    pub entry: EntryView,
    tables: Tables<'h, P>,
    table: Pfn,
    va: VirtAddr,
    pte: Pte,
    path: FoundPath,
}

/// The path to an entry that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FoundPath {
    /// Entries of this space alone.
    Own,
    /// A pointer that other spaces share is on it.
    Shared,
    /// The same as `Own`; the entry is empty, and the table below it is missing.
    Missing,
}

impl<'h, P: Platform> FoundEntry<'h, P> {
    /// Whether the entry is in a table of this space alone, which can be locked.
    #[inline(always)]
    pub fn is_own(&self) -> bool {
        self.path == FoundPath::Own
    }

    /// Whether the entry is below a pointer that other spaces share.
    ///
    /// It can be read, and its table [broken](Tables::own).
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.path == FoundPath::Shared
    }

    /// Whether all entries of `range`, which is under the entry's table, read as empty.
    ///
    /// They may change at once.
    pub fn is_empty_now(&self, range: PageRange) -> bool {
        let indices = self.level.index_of(range.start())..self.level.index_of(range.last()) + 1;
        self.tables.present_in(self.table, indices).all(|(_, pte)| P::Isa::decode(self.level, pte) == Entry::Empty)
    }

    /// Locks the own table of the entry, unless the entry has changed since it was found.
    #[inline(always)]
    pub fn lock_if_unchanged(&self) -> Option<LockedTable<'h, P>> {
        self.lock_by(EditOwn).filter(|locked| self.is_unchanged_in(locked))
    }

    /// Locks the own table of the entry, if this is the leaf that was found.
    ///
    /// A walker may have set bits of it since.
    #[inline(always)]
    pub fn lock_if_same_leaf(&self) -> Option<LockedTable<'h, P>> {
        self.lock_by(EditOwn).filter(|locked| P::Isa::same_but_touched(locked.pte(self.va), self.pte))
    }

    /// Locks the own table of the entry by a right.
    #[inline(always)]
    pub(crate) fn lock_by<R: TableRight>(&self, right: R) -> Option<LockedTable<'h, P, R>> {
        self.is_own().then(|| LockedTable::lock((self.tables, self.table, self.level), self.va, right))
    }

    /// Whether the entry is in the locked table as it was found.
    #[inline(always)]
    pub(crate) fn is_unchanged_in<R: TableRight>(&self, locked: &LockedTable<'h, P, R>) -> bool {
        locked.pte(self.va) == self.pte
    }
}

/// Where a descent stopped: the entry, and the path to it.
pub(crate) struct Descent {
    pub(crate) slot: PteSlot,
    pub(crate) level: Level,
    pub(crate) pte: Pte,
    /// Whether the entry is a pointer below which other spaces share all tables.
    pub(crate) shared: bool,
}

impl<'h, P: Platform> Tables<'h, P> {
    #[inline]
    pub(crate) fn new(tree: &'h PageTable, tlb: &'h Tlb<P>, member: Option<&'h Membership<P>>) -> Self {
        Self { tree, tlb, member }
    }

    /// The spaces with which it may share tables.
    #[inline]
    pub(crate) fn family(&self) -> Option<&'h Family<P>> {
        self.member.map(|member| &**member.family())
    }

    /// The engine of the machine.
    #[inline]
    pub fn tlb(&self) -> &'h Tlb<P> {
        self.tlb
    }

    /// The space as the TLBs see it.
    #[inline]
    pub fn context(&self) -> &'h Arc<TlbContext> {
        self.tree.context()
    }

    /// Descends to the entry of `level` for `va`, or to the last on the way that is no own pointer.
    ///
    /// Waits while another CPU replaces a pointer on the way.
    // Callers know the level, which leaves a few instructions for each step.
    #[inline(always)]
    pub(crate) fn descend(&self, va: VirtAddr, level: Level) -> Descent {
        if self.tree.is_closed() {
            let slot = PteSlot { table: self.tree.root(), index: Level::PGD.index_of(va) as u16 };
            return Descent { slot, level: Level::PGD, pte: Pte::EMPTY, shared: false };
        }
        let (slot, at, pte) = self.last_on_own_path(va, level);
        if at == level {
            return Descent { slot, level: at, pte, shared: false };
        }
        self.stop_above(va, level, (slot.table, at, pte))
    }

    /// What a descent to `level` that stopped above it found.
    // A function of its own, so that the common descent has no loop.
    #[inline(never)]
    fn stop_above(&self, va: VirtAddr, level: Level, (table, at, pte): (Pfn, Level, Pte)) -> Descent {
        let (mut slot, mut at, mut pte) = (PteSlot { table, index: at.index_of(va) as u16 }, at, pte);
        loop {
            let entry = if at > level { P::Isa::decode(at, pte) } else { Entry::Empty };
            match entry {
                Entry::Soft(soft) if soft.kind.is_in_transition() => self.tlb.fx().relax(),
                Entry::Table(_) => return Descent { slot, level: at, pte, shared: true },
                Entry::Empty | Entry::Leaf(_) | Entry::Soft(_) => {
                    return Descent { slot, level: at, pte, shared: false };
                }
            }
            (slot, at, pte) = self.last_on_own_path(va, level);
        }
    }

    /// The entry of `level` for `va`, or the last on the way that is no own pointer.
    #[inline(always)]
    fn last_on_own_path(&self, va: VirtAddr, level: Level) -> (PteSlot, Level, Pte) {
        let entry = |table: Pfn, at: Level| {
            let slot = PteSlot { table, index: at.index_of(va) as u16 };
            (slot, at, self.tlb.fx().load(slot))
        };
        let mut table = self.tree.root();
        for at in [Level::PGD, Level::PUD, Level::PMD] {
            let found = entry(table, at);
            match P::Isa::own_table(found.2) {
                Some(next) if at > level => table = next,
                _ => return found,
            }
        }
        entry(table, Level::PTE)
    }

    /// The entries of a table that are not empty, each read without its lock when it is reached.
    #[inline]
    pub(crate) fn present_in(&self, table: Pfn, indices: Range<usize>) -> PresentEntries<'h, P> {
        let fx = self.tlb.fx();
        PresentEntries::new(fx, table, OccupiedParts::new(fx.table_words(table), indices))
    }

    /// Descends to the entry of `level` for `va`, without locks.
    #[inline(always)]
    pub fn find(&self, va: VirtAddr, level: Level) -> FoundEntry<'h, P> {
        let Descent { slot, level: at, pte, shared } = self.descend(va, level);
        let found = |level, entry, path| FoundEntry { level, entry, tables: *self, table: slot.table, va, pte, path };
        if shared {
            let (entry, level) = self.read_shared(va);
            return found(level, entry, FoundPath::Shared);
        }
        let entry = EntryView::decode::<P::Isa>(at, pte, false);
        let is_missing = at > level && entry == EntryView::Empty;
        found(at, entry, if is_missing { FoundPath::Missing } else { FoundPath::Own })
    }

    /// Reads the entry for `va` without a lock, whatever the path and the level.
    #[inline]
    pub fn peek(&self, va: VirtAddr) -> EntryView {
        let Descent { level, pte, shared, .. } = self.descend(va, Level::PTE);
        if shared { self.read_shared(va).0 } else { EntryView::decode::<P::Isa>(level, pte, false) }
    }

    /// Whether the space has leaves of the PMD level.
    ///
    /// The caller holds the space for writing, or finds those that were mapped before it held it.
    #[inline]
    pub fn has_huge_leaves(&self) -> bool {
        self.tree.deposits() > 0
    }

    /// The parts of `range` that have own entries, in order, without locks.
    ///
    /// There is one for each own last-level table, and for each own leaf or soft entry above that
    /// level.
    pub fn spans(&self, range: PageRange) -> impl Iterator<Item = PageRange> + use<'h, P> {
        let mut spans = self.found_spans(range);
        core::iter::from_fn(move || spans.next_found().map(|(span, _)| span))
    }

    /// As [`spans`](Self::spans), each with the descent that found it.
    pub(crate) fn found_spans(&self, range: PageRange) -> FoundSpans<'h, P> {
        FoundSpans { tables: *self, at: range.start(), end: range.end() }
    }

    /// As [`spans`](Self::spans), each with the number of its leaves above the last level.
    ///
    /// Neighbouring leaves above the last level that are in one table are one part.
    pub fn runs(&self, range: PageRange) -> impl Iterator<Item = (PageRange, u64)> + use<'h, P> {
        let (tables, mut spans) = (*self, self.found_spans(range));
        core::iter::from_fn(move || {
            let (span, Descent { mut slot, level, .. }) = spans.next_found()?;
            let (mut end, mut leaves) = (span.start(), 0);
            while level > Level::PTE
                && end < spans.end
                && usize::from(slot.index) < Level::ENTRIES
                && matches!(tables.entry_of(level, slot), Entry::Leaf(_))
            {
                end = part_end(end, level, spans.end);
                slot.index += 1;
                leaves += 1;
            }
            spans.at = spans.at.max(end);
            Some((PageRange::new(span.start(), spans.at), leaves))
        })
    }

    /// The entry of a table of `level`, without its lock.
    fn entry_of(&self, level: Level, slot: PteSlot) -> Entry {
        P::Isa::decode(level, self.tlb.fx().load(slot))
    }

    /// The tables of `range` for edits of this space, if all of them are its own already.
    #[inline]
    pub fn try_own(&self, range: PageRange) -> Option<OwnTables<'h, P>> {
        (!self.tree.has_shared() || self.first_shared(range).is_none()).then(|| OwnTables::new(*self, range))
    }

    /// The tables of `range`, which the caller has made [own](Self::own) under the same hold.
    ///
    /// # Panics
    /// INV-TABLE-OWN: when other spaces share one.
    #[inline]
    pub fn owned(&self, range: PageRange) -> OwnTables<'h, P> {
        let own = self.try_own(range);
        own.unwrap_or_else(|| unreachable!("INV-TABLE-OWN: a table of {range} is shared"))
    }

    /// Locks each own table of `range`, and leaves out those that other spaces share.
    pub fn own_part(&self, range: PageRange) -> impl Iterator<Item = (LockedTable<'h, P>, PageRange)> + use<'h, P> {
        OwnTables::new(*self, range).locked_parts(range, None)
    }

    /// The first address of `range` below a shared pointer, and that pointer.
    pub(crate) fn first_shared(&self, range: PageRange) -> Option<(VirtAddr, Descent)> {
        let mut at = range.start();
        while at < range.end() {
            let found = self.descend(at, Level::PTE);
            if found.shared {
                return Some((at, found));
            }
            let Descent { slot, level, .. } = found;
            let span = if level == Level::PTE { Level::PTE.table_span() } else { level.span() };
            at = at.align_down(span).checked_add(span)?;
            // The empty entries and the leaves that follow in the same table need no descents.
            let mut index = slot.index + 1;
            while level > Level::PTE
                && at < range.end()
                && usize::from(index) < Level::ENTRIES
                && matches!(self.entry_of(level, PteSlot { index, ..slot }), Entry::Empty | Entry::Leaf(_))
            {
                at = at.checked_add(span)?;
                index += 1;
            }
        }
        None
    }

    /// Marks the way to `to`, where a page below `table` has moved, if that page may be pinned.
    ///
    /// After the page's old entry, or the pointer above it, was removed: a lockless walk that pins
    /// the page has then set its mark, or it sees the removal and gives the pin up.
    pub(crate) fn carry_pin_mark(&self, table: Pfn, to: VirtAddr) {
        // Pairs with the barrier between the pin and the second look at the path in `gup_fast`.
        let barrier = FullBarrier::execute();
        if self.tlb.frames().table(table).marks_after(barrier).contains(TableMarks::MAY_PIN) {
            plant!(PinMovedUnmarked; (), self.tree.mark_pinned(self.tlb, &self.tree.peek(self.tlb, to)));
        }
    }

    /// The number of tables that [`OwnTables::ensure`] would take from its reserve.
    ///
    /// Other CPUs may add tables concurrently, but remove none.
    pub fn missing(&self, va: VirtAddr, level: Level) -> usize {
        let found = self.descend(va, level);
        match P::Isa::decode(found.level, found.pte) {
            Entry::Empty => usize::from(found.level.raw() - level.raw()),
            Entry::Leaf(_) | Entry::Soft(_) | Entry::Table(_) => 0,
        }
    }

    /// The same, once what is mapped at `va` has been unmapped: a huge leaf leaves no table there.
    pub fn missing_once_unmapped(&self, va: VirtAddr, level: Level) -> usize {
        let found = self.descend(va, level);
        match P::Isa::decode(found.level, found.pte) {
            Entry::Empty | Entry::Leaf(_) | Entry::Soft(_) => usize::from(found.level.raw() - level.raw()),
            Entry::Table(_) => 0,
        }
    }
}

/// The end of the part of `at..end` about which the entry that a descent found says all.
///
/// An entry of the last level stands for its whole table.
#[inline]
pub(crate) fn part_end(at: VirtAddr, level: Level, end: VirtAddr) -> VirtAddr {
    let span = if level == Level::PTE { level.table_span() } else { level.span() };
    at.align_down(span).checked_add(span).map_or(end, |next| next.min(end))
}

/// The parts of a range that have own entries.
pub(crate) struct FoundSpans<'h, P: Platform> {
    pub(crate) tables: Tables<'h, P>,
    pub(crate) at: VirtAddr,
    pub(crate) end: VirtAddr,
}

impl<P: Platform> FoundSpans<'_, P> {
    /// The next part, and the descent that found it.
    #[inline]
    pub(crate) fn next_found(&mut self) -> Option<(PageRange, Descent)> {
        while self.at < self.end {
            let found = self.tables.descend(self.at, Level::PTE);
            let start = self.at;
            self.at = part_end(start, found.level, self.end);
            if found.level == Level::PTE
                || matches!(P::Isa::decode(found.level, found.pte), Entry::Leaf(_) | Entry::Soft(_))
            {
                return Some((PageRange::new(start, self.at), found));
            }
        }
        None
    }
}
