//! The debts of one operation on one address space (Linux's `mmu_gather`, `mm/mmu_gather.c`).
//!
//! Edits are absorbed; then one flush settles all of them, and only then is anything freed
//! ([`crate::detached`]).
//!
//! A gather also flushes what a [`crate::Batch`] has deferred in a table that it has
//! [met](Gather::meet), because its operation may depend on entries that it found weakened or
//! cleared there (INV-TLB-DEFERRED), and what was deferred in the space without a place. The gather
//! of [`Debt::settle`] depends on the one entry that it flushes, so it flushes no other.
//!
//! **INV-TLB-CLEARED** An operation that finds an entry cleared by another operation that has not
//! flushed yet flushes it, before it returns and before it installs another leaf there. Otherwise a
//! thread could still read a page that its own `madvise` has dropped, or two threads could use two
//! pages at one address. An operation publishes the entries that it has cleared before it unlocks
//! the table, because no other CPU can do so.
//!
//! **INV-TLB-UPPER-EDIT** An operation that edits a table above the last level beside others
//! announces it before the first store. An operation that finds an entry there empty finds no table
//! below it and locks none. So it waits, before it returns, until walkers see the announced edits,
//! and then flushes the space.

use crate::context::{DeferredFlush, TlbContext};
use crate::debt::{Debt, OwedFlush};
use crate::defer::cover::{DependentOperation, EntryDeferral, FlushCover, assert_covers};
use crate::defer::key::{KeyedFlush, TablesOwe};
use crate::detached::{DetachedHolder, DetachedList, DetachedPiece, IntoDetachedPieces};
use crate::engine::{FlushInfo, Tlb};
use core::iter;
use pagewright_frame::{FolioRef, FolioRefs, Frames};
use pagewright_plant::{plant, planted};
use pagewright_sync::atomic::{Ordering, fence};
use pagewright_sync::{LineUse, Platform, bomb};
use pagewright_types::{Counter, Level, PageRange, Pfn, VirtAddr};

/// Debts of one operation on one space, settled together by one flush (Linux's `mmu_gather`).
///
/// # Panics
/// INV-TLB-DEBT: a debug build panics when a gather is dropped unsettled; see [`Debt`].
#[must_use = "a gather owes a TLB flush: settle it"]
pub struct Gather<'t, P: Platform> {
    tlb: &'t Tlb<P>,
    context: &'t TlbContext,
    range: Option<PageRange>,
    /// The smallest level at which an entry was edited: the stride of the flush.
    level: Level,
    /// Whether entries of several levels were edited.
    ///
    /// An invalidation that names a level need not remove translations of another.
    mixed: bool,
    freed_tables: bool,
    /// Whether each flush is of the whole space.
    full_space: bool,
    /// Whether the next flush is.
    widened: bool,
    /// Whether others may clear entries of the space, and fault, meanwhile.
    concurrent: bool,
    /// Whether entries were edited since the last [`Self::publish`].
    unpublished: bool,
    /// Whether it counts among those that edit tables above the last level.
    upper: bool,
    /// Whether walkers may not see such an edit yet.
    upper_unpublished: bool,
    /// What the tables owe that it has met, or whose keys were handed to it.
    owed: TablesOwe,
    detached: DetachedList,
}

impl<'t, P: Platform> Gather<'t, P> {
    /// Creates an empty gather for `context`.
    ///
    /// Its operation meets each table on which it depends.
    pub fn new(tlb: &'t Tlb<P>, context: &'t TlbContext) -> Self {
        Self {
            tlb,
            context,
            range: None,
            level: Level::PGD,
            mixed: false,
            freed_tables: false,
            full_space: false,
            widened: false,
            concurrent: false,
            unpublished: false,
            upper: false,
            upper_unpublished: false,
            owed: TablesOwe::default(),
            detached: DetachedList::new(),
        }
    }

    /// Creates a gather that flushes the whole space, for its exit (`tlb_gather_mmu_fullmm`).
    pub fn full_space(tlb: &'t Tlb<P>, context: &'t TlbContext) -> Self {
        let mut gather = Self::new(tlb, context);
        gather.full_space = true;
        gather
    }

    /// Creates an empty gather for a caller that shares the space with other operations.
    ///
    /// Until it is settled, others may fault and clear entries there. INV-TLB-CLEARED: an operation
    /// that finds an entry cleared and not flushed yet flushes it. Another concurrent gather that
    /// has met a table of this one flushes the whole space when it settles
    /// (`mm_tlb_flush_nested`). An install in a table that
    /// the gather has edited flushes its entry, and an install in any other table does not
    /// ([`Tlb::flush_before_install`]).
    pub fn concurrent(tlb: &'t Tlb<P>, context: &'t TlbContext) -> Self {
        tlb.use_context(context, LineUse::Store);
        context.inc_flush_pending();
        let mut gather = Self::new(tlb, context);
        gather.concurrent = true;
        gather
    }

    /// Notes that the operation depends on entries of `table`.
    ///
    /// It may find them cleared or weakened. The caller holds the lock of the table, and has not
    /// edited it yet.
    #[inline]
    pub fn meet(&mut self, table: Pfn) {
        plant!(TableNotMet => return);
        self.tlb.add_owed(self.context, table, &mut self.owed);
        if self.concurrent && self.tlb.frames().table(table).level() > Level::PTE {
            self.begin_upper_edit();
        }
    }

    /// Announces edits above the last level before the first is stored (INV-TLB-UPPER-EDIT).
    ///
    /// An operation that finds a huge leaf cleared finds no table below it, and so locks and meets
    /// none.
    #[cold]
    fn begin_upper_edit(&mut self) {
        plant!(UpperEditUnannounced => return);
        if !core::mem::replace(&mut self.upper, true) {
            self.context.inc_upper_gathers();
        }
        if !core::mem::replace(&mut self.upper_unpublished, true) {
            self.context.inc_upper_edits();
        }
        // The counts are visible before the edits.
        fence(Ordering::SeqCst);
    }

    fn end_upper_edit(&mut self) {
        if core::mem::take(&mut self.upper_unpublished) {
            self.context.dec_upper_edits();
        }
    }

    /// Waits until walkers see what other gathers have cleared above the last level.
    ///
    /// A flush by this CPU cannot publish the stores of another one.
    fn await_upper_edits(&mut self) {
        self.end_upper_edit();
        // An entry that the operation has found cleared was announced before it was cleared.
        fence(Ordering::SeqCst);
        plant!(UpperEditNotAwaited => return);
        while self.context.upper_edits() > 0 {
            self.tlb.fx().relax();
        }
    }

    /// Takes over the keys of `table`, which is freed or unhooked, or moves.
    ///
    /// The flush of this gather then covers every page below the table, unless the keys are settled
    /// (INV-TLB-KEY-LIFE). The caller holds the lock of the table, or the space exclusively.
    #[inline]
    pub fn hand_over(&mut self, table: Pfn) {
        plant!(KeysNotTaken => return);
        self.tlb.add_owed(self.context, table, &mut self.owed);
    }

    /// Notes that the operation depends on every entry of the space.
    ///
    /// For an operation that shares tables whose records it does not visit.
    pub fn meet_space(&mut self) {
        plant!(ForkMeetsNoSpace => return);
        if let Some(deferred) = self.context.deferred() {
            self.owed.add(KeyedFlush::of_space(deferred));
        }
    }

    /// Takes over a debt; flushes and frees early if there is no room for what it detached.
    ///
    /// # Panics
    /// In debug builds when the debt belongs to another context.
    #[inline]
    pub fn absorb<T: IntoDetachedPieces>(&mut self, debt: Debt<'_, P, T>) {
        debug_assert!(self.is_of(debt.context()), "INV-TLB-DEBT: debt of another space");
        let range = debt.range();
        let (owed, _, detached) = debt.dissolve();
        match owed {
            OwedFlush::Nothing => {}
            OwedFlush::Leaf(level) => self.extend(range, level),
            OwedFlush::Table(level) => {
                self.extend(range, level);
                self.freed_tables = true;
            }
            OwedFlush::LiveTable(_) => {
                self.extend(range, Level::PTE);
                self.freed_tables = true;
            }
        }
        detached.for_each_piece(&mut |piece| self.keep(piece));
    }

    /// As [`crate::GatherRun::detach_last_entry`], whose caller notes the flush itself.
    #[inline]
    pub(crate) fn detach_last_entry(&mut self, folio: FolioRef) -> Result<(), FolioRef> {
        self.detached.push_last_entry(self.tlb.frames(), folio)
    }

    /// Keeps a piece if there is room for it.
    ///
    /// # Errors
    /// The piece.
    #[inline]
    pub(crate) fn try_keep(&mut self, piece: DetachedPiece) -> Result<(), DetachedPiece> {
        self.detached.push(self.tlb.frames(), piece)
    }

    /// Keeps references to a folio that has others if there is room for them.
    ///
    /// # Errors
    /// The references.
    #[inline]
    pub(crate) fn try_keep_shared(&mut self, refs: FolioRefs) -> Result<(), FolioRefs> {
        self.detached.push_shared(refs)
    }

    /// Extends the range of the flush, for a caller that edits in bulk and detaches nothing.
    #[inline]
    pub fn extend(&mut self, range: PageRange, level: Level) {
        self.unpublished = true;
        self.mixed |= self.range.is_some() && self.level != level;
        self.range = Some(match self.range {
            None => range,
            Some(old) => PageRange::new(old.start().min(range.start()), old.end().max(range.end())),
        });
        self.level = self.level.min(level);
    }

    /// Publishes the edits of `table` to page-table walkers, and records them in the table.
    ///
    /// A concurrent gather does so before it releases the table's lock. An operation that finds the
    /// edit there and flushes it cannot publish the stores of another CPU (Arm ARM D8.2.6); and an
    /// install in the table flushes its entry while the record says that it may be unflushed.
    #[inline]
    pub fn publish(&mut self, table: Pfn) {
        if self.concurrent && core::mem::take(&mut self.unpublished) {
            plant!(GatherNotRecorded; (), self.tlb.note_gather(table));
            plant!(PublishedLate => return);
            self.tlb.fx().publish();
        }
        self.end_upper_edit();
    }

    /// Whether the gather takes debts of `context`.
    #[inline]
    pub fn is_of(&self, context: &TlbContext) -> bool {
        core::ptr::eq(context, self.context)
    }

    /// Whether the gather owes no flush and holds nothing that an edit detached.
    pub fn is_empty(&self) -> bool {
        self.range.is_none() && self.detached.is_empty()
    }

    /// Flushes and frees what was gathered so far, and continues (`tlb_flush_mmu`).
    ///
    /// For a caller that must flush before it releases a lock.
    pub fn settle_so_far(&mut self) {
        let is_owed = |deferred: &DeferredFlush| !self.tlb.is_settled(self.context, *deferred);
        let own = self.owed.own.filter(is_owed);
        let unplaced = self.context.unplaced().filter(is_owed);
        let depends = own.is_some() || unplaced.is_some();
        let epoch = if plant!(DeferredNotSeen; false, depends) { self.tlb.begin_settling(self.context) } else { None };
        if self.owed.family.is_some_and(|deferred| self.tlb.flush_family(self.context, deferred)) {
            self.tlb.count(Counter::PwTlbBatchOvertaken, 1);
        }
        if cfg!(debug_assertions) && depends {
            self.assert_covered(own.is_some(), unplaced.is_some());
        }
        if epoch.is_some() {
            // A gather that flushes anyway waits no more often.
            if self.range.is_none() {
                self.tlb.count(Counter::PwTlbBatchOvertaken, 1);
            }
            self.widen_to_space();
        }
        self.flush_and_free();
        if let Some(epoch) = epoch {
            self.context.note_flushed(epoch);
        }
    }

    /// Asserts that the flush of the space is enough for what the gather depends on.
    fn assert_covered(&self, own: bool, unplaced: bool) {
        let operations: &[_] = match self.concurrent {
            true => &[DependentOperation::ConcurrentGather],
            false => &[DependentOperation::Gather, DependentOperation::HandOver],
        };
        let states = [(own, EntryDeferral::Pending), (own, EntryDeferral::Weakened), (own, EntryDeferral::Lingering)];
        let states = states.into_iter().chain([(unplaced, EntryDeferral::Unplaced)]);
        for (_, state) in states.filter(|(owes, _)| *owes) {
            operations.iter().for_each(|operation| assert_covers(*operation, state, FlushCover::Space));
        }
    }

    /// Flushes what is owed, then frees what was detached (`tlb_finish_mmu`).
    pub fn settle(mut self) {
        if self.concurrent {
            self.await_upper_edits();
        }
        let gathered = self.owed.gathered || self.context.upper_gathers() > u32::from(self.upper);
        if self.concurrent && gathered && plant!(NestedNotSeen; false, self.context.is_flush_nested()) {
            self.widen_to_space();
            assert_covers(DependentOperation::ConcurrentGather, EntryDeferral::Gathered, FlushCover::Space);
        }
        self.settle_so_far();
    }

    /// Makes the next flush one of the whole space, even if nothing was gathered.
    #[cold]
    fn widen_to_space(&mut self) {
        self.widened = true;
        self.extend(PageRange::new(VirtAddr::ZERO, VirtAddr::ZERO), Level::PTE);
    }

    planted! {
        /// Drops the count of concurrent gathers before the debt is recorded.
        fn drop_count_first(&mut self) {
            if core::mem::take(&mut self.concurrent) {
                self.context.dec_flush_pending();
            }
            <P::Locks as pagewright_sync::Backend>::point();
        }
    }
}

impl<P: Platform> DetachedHolder<P> for Gather<'_, P> {
    fn detached(&mut self) -> (&mut DetachedList, &Frames<P>) {
        (&mut self.detached, self.tlb.frames())
    }

    fn flush_and_free(&mut self) {
        if let Some(range) = self.range.take() {
            let freed_tables = plant!(TableAsLeaf; false, core::mem::take(&mut self.freed_tables));
            // No level is named once tables went. For leaves of several levels Linux leaves the
            // hint out (`tlb_get_level`); they span 512 pages at least, for which the whole tag is
            // the usual choice anyway.
            let mixed = core::mem::take(&mut self.mixed) && !freed_tables;
            let whole = core::mem::take(&mut self.widened) || self.full_space || mixed;
            let flush = FlushInfo { range: (!whole).then_some(range), level: self.level, freed_tables };
            self.level = Level::PGD;
            self.tlb.flush(self.context, flush);
        }
        self.detached.release(self.tlb.frames());
    }
}

impl<P: Platform> Drop for Gather<'_, P> {
    fn drop(&mut self) {
        plant!(CountDroppedFirst => self.drop_count_first());
        let unsettled = !self.is_empty();
        if unsettled {
            let (frames, detached) = (self.tlb.frames(), &mut self.detached);
            self.tlb.abandon(self.context, iter::empty(), |sink| detached.drain(frames, sink));
        }
        self.end_upper_edit();
        // After the debt is recorded: an install in between would see neither.
        if self.upper {
            self.context.dec_upper_gathers();
        }
        if self.concurrent {
            self.tlb.use_context(self.context, LineUse::Store);
            self.context.dec_flush_pending();
        }
        if unsettled {
            bomb::dropped(format_args!("INV-TLB-DEBT: gather dropped unsettled"));
        }
    }
}
