//! Deferred flushes of many entries in many spaces, settled together.
//!
//! Linux: `tlbflush_unmap_batch`, `mm/rmap.c`.
//!
//! ```text
//!   edit ──▶ Debt ──absorb──▶ Batch ──settle──▶ x86: one IPI to each CPU of the union that still owes
//!                               │               arm64: one DSB, on the CPU that issued
//!                               └ x86: generation moves, CPUs are noted
//!                                 arm64: DSB ISHST and TLBI, no CPU waits
//! ```
//!
//! The caller releases the locks of tables and spaces between the edits and [`Batch::settle`].
//! Until then another operation can find an entry cleared or weakened that a TLB still holds as it
//! was.
//!
//! **INV-TLB-DEFERRED** An operation that depends on an entry whose flush is deferred flushes the
//! space first: each gather that has met the entry's table, when it settles, and each installation
//! in that entry. The debt of one entry alone depends on no other. A flush that completes settles
//! only what was deferred before it began.
//!
//! The entry, the record of its table and the space remember the deferral, under the table's lock.
//! A [`crate::Gather`] asks each table that it meets, and flushes the whole space when it is
//! settled. An install asks the table and the entry, by [`Tlb::flush_before_install`]. Linux asks
//! the space each time it takes the lock (`flush_tlb_batched_pending`), and has missed one.
//!
//! A batch defers nothing where that spares no wait ([`BatchPolicy`]): then it flushes each entry
//! when it absorbs the debt, and only holds what was detached.
//!
//! Not guaranteed: a deferred flush of tables, in which walkers may be. A batch refuses their
//! debts.

use crate::context::{DeferredFlush, TlbContext};
use crate::debt::Debt;
use crate::defer::cover::{DependentOperation, EntryDeferral, FlushCover, assert_covers};
use crate::defer::key::{KeyedFlush, TablesOwe};
use crate::detached::{DetachedHolder, DetachedList, IntoDetachedPieces};
use crate::engine::{BatchPolicy, FlushInfo, Tlb};
use core::iter;
use pagewright_arch::ShootdownKind;
use pagewright_plant::plant;
use pagewright_sync::{Arc, Backend, LineUse, Platform};
use pagewright_types::{Counter, CpuId, CpuMask, Level, PageRange, Pfn};

/// Debts of any number of spaces, settled together by one wait (Linux's `tlbflush_unmap_batch`).
///
/// # Panics
/// INV-TLB-DEBT: a debug build panics when a batch is dropped unsettled; see [`Debt`].
#[must_use = "a batch owes a TLB flush: settle it"]
pub struct Batch<'t, P: Platform> {
    pub(super) tlb: &'t Tlb<P>,
    /// Whether this machine defers flushes, asked once.
    defers_flushes: bool,
    /// Entries whose flush is deferred.
    pub(super) entries: u32,
    /// x86: the CPUs that may hold one of them.
    pub(super) cpus: CpuMask,
    /// The epoch that a clock must have reached for its CPU to owe none of them.
    pub(super) epoch: u64,
    /// arm64: the CPU that has issued their invalidations; `None` if several CPUs have.
    pub(super) issuer: Option<CpuId>,
    /// The only space so far, if there is just one.
    ///
    /// Only its own translations are flushed then, and those of other spaces stay.
    pub(super) only: Option<Arc<TlbContext>>,
    pub(super) detached: DetachedList,
}

impl<'t, P: Platform> Batch<'t, P> {
    /// Creates an empty batch.
    pub fn new(tlb: &'t Tlb<P>) -> Self {
        let (cpus, detached) = (CpuMask::EMPTY, DetachedList::new());
        Self {
            tlb,
            defers_flushes: tlb.defers_flushes(),
            entries: 0,
            cpus,
            epoch: 0,
            issuer: None,
            only: None,
            detached,
        }
    }

    /// Number of entries whose flush is deferred.
    pub fn len(&self) -> u32 {
        self.entries
    }

    /// Whether the batch owes no flush and holds nothing that an edit detached.
    pub fn is_empty(&self) -> bool {
        self.entries == 0 && self.detached.is_empty()
    }

    /// Takes over a debt of `context`: defers its flush, or flushes at once.
    ///
    /// The caller still holds the lock of the edited table. The batch holds what the edit detached
    /// until it is settled, with one reference for a folio that comes several times in a row.
    ///
    /// # Panics
    /// In debug builds when the debt belongs to another context; always when it is a table's.
    pub fn absorb<T: IntoDetachedPieces>(&mut self, context: &Arc<TlbContext>, debt: Debt<'_, P, T>) {
        debug_assert!(core::ptr::eq(debt.context(), &raw const **context), "INV-TLB-DEBT: debt of another space");
        // A gather meets tables of the last level, and of leaves, but not those above them.
        let has_place = plant!(HugeDeferralPlaced; true, debt.level() == Some(Level::PTE));
        let place = debt.slot().filter(|_| has_place);
        let (flush, detached) = debt.into_deferrable();
        if let Some(deferred) = flush.and_then(|flush| self.defer_or_flush(context, flush)) {
            match place {
                Some(slot) => self.tlb.note_pending(context, slot, deferred),
                None => context.defer_unplaced(deferred),
            }
        }
        detached.for_each_piece(&mut |piece| self.keep(piece));
    }

    /// Takes over a debt that several spaces owe: `context` and `others`, which reach its table.
    ///
    /// The key of the table then stands for every space. Otherwise as [`absorb`](Self::absorb).
    pub(crate) fn absorb_of_family<'m, T: IntoDetachedPieces>(
        &mut self,
        context: &'m Arc<TlbContext>,
        others: impl Iterator<Item = &'m Arc<TlbContext>>,
        debt: Debt<'_, P, T>,
    ) {
        debug_assert!(
            debt.level().is_none_or(|level| level == Level::PTE),
            "INV-SHARE-OWN: a huge leaf is edited for all"
        );
        let slot = debt.slot();
        let (flush, detached) = debt.into_deferrable();
        if let Some(flush) = flush {
            let mut deferred: Option<DeferredFlush> = None;
            for member in others.chain(iter::once(context)) {
                if let Some(one) = self.defer_or_flush(member, flush) {
                    member.defer(one);
                    deferred = Some(deferred.map_or(one, |all| all.and(one)));
                }
            }
            if let (Some(slot), Some(deferred)) = (slot, deferred) {
                self.tlb.note_pending_of_family(context, slot, deferred);
            }
        }
        detached.for_each_piece(&mut |piece| self.keep(piece));
    }

    /// Adds a flush of the space if an entry of `table` was edited and may not be flushed yet.
    ///
    /// For a caller that depends on entries that it found cleared or weakened there
    /// (INV-TLB-CLEARED, INV-TLB-DEFERRED; Linux's `flush_tlb_batched_pending`). It holds the lock
    /// of the table, and `context` is the only space that reaches it
    /// ([`FamilyToken::absorb_pending`](crate::FamilyToken::absorb_pending) otherwise).
    pub fn absorb_pending(&mut self, context: &Arc<TlbContext>, table: Pfn) {
        self.absorb_pending_of(core::slice::from_ref(context), table);
    }

    /// As [`absorb_pending`](Self::absorb_pending), for a table that all of `sharers` reach.
    pub(crate) fn absorb_pending_of(&mut self, sharers: &[Arc<TlbContext>], table: Pfn) {
        let mut of_family = None;
        for context in sharers {
            let mut owed = TablesOwe::default();
            self.tlb.add_owed(context, table, &mut owed);
            of_family = owed.family;
            self.absorb_owed(context, owed);
        }
        if let Some(deferred) = of_family.filter(|_| plant!(FamilyKeyNotTakenAlong; false, true)) {
            self.absorb_merged(sharers, deferred);
        }
        for state in [EntryDeferral::Pending, EntryDeferral::Lingering, EntryDeferral::Gathered, EntryDeferral::Merged]
        {
            assert_covers(DependentOperation::AbsorbPending, state, FlushCover::Space);
        }
    }

    /// Adds the flush of a merged key, on the CPUs that run one of the spaces that reach its table.
    ///
    /// The others owe nothing: a space that left the table has flushed all that it spans, and a CPU
    /// that begins to run a space is caught up by the generation, which the deferral has advanced.
    fn absorb_merged(&mut self, sharers: &[Arc<TlbContext>], deferred: DeferredFlush) {
        if self.will_flush(sharers, deferred) {
            return;
        }
        if self.tlb.fx().caps().shootdown == ShootdownKind::Ipi {
            for context in sharers {
                context.move_for_lingerers();
                self.cpus.insert_all(&context.cpus());
            }
        }
        self.open();
        self.join(deferred, if let [only] = sharers { Some(only) } else { None });
    }

    /// Adds a flush of the space, unless the flush of the batch settles what the space owes.
    fn absorb_owed(&mut self, context: &Arc<TlbContext>, mut owed: TablesOwe) {
        let unplaced = plant!(UnplacedNotTakenAlong; None, context.unplaced());
        if let Some(unplaced) = unplaced.filter(|deferred| !self.tlb.is_settled(context, *deferred)) {
            owed.add(KeyedFlush::of_space(unplaced));
        }
        if plant!(DeferredNotTakenAlong; true, self.covers(context, owed)) {
            return;
        }
        // What is deferred is recorded already: this flush repeats that of other operations.
        self.absorb_space(context);
    }

    /// Whether the flush of this batch settles what a table owes.
    ///
    /// Usually the batch itself has deferred all of it.
    fn covers(&self, context: &Arc<TlbContext>, owed: TablesOwe) -> bool {
        if owed.gathered && context.is_flush_pending() {
            return false;
        }
        owed.own.is_none_or(|deferred| self.will_flush(core::slice::from_ref(context), deferred))
    }

    /// Whether settling this batch flushes `deferred` on each CPU that runs one of `spaces`.
    fn will_flush(&self, spaces: &[Arc<TlbContext>], deferred: DeferredFlush) -> bool {
        // If there is one space so far, its own clock decides whether any CPU is waited for.
        let is_flushed = |context: &Arc<TlbContext>| self.only.as_ref().is_none_or(|only| Arc::ptr_eq(only, context));
        // What lingers has not moved the generation, so CPUs that left the space are not told.
        let has_moved = |context: &Arc<TlbContext>| plant!(LingeringTakenForOwn; true, !context.has_lingerers());
        self.entries > 0
            && deferred.epoch() <= self.epoch
            && spaces.iter().all(|context| is_flushed(context) && has_moved(context))
            && match self.tlb.fx().caps().shootdown {
                ShootdownKind::Ipi => spaces.iter().all(|context| self.cpus.contains_all(&context.cpus())),
                // One barrier ends all that its CPU has issued.
                ShootdownKind::Broadcast => deferred.issuer().is_some() && deferred.issuer() == self.issuer,
            }
    }

    /// Adds a flush of the whole space.
    pub(super) fn absorb_space(&mut self, context: &Arc<TlbContext>) {
        let flush = FlushInfo { range: None, level: Level::PTE, freed_tables: false };
        if let Some(deferred) = self.defer_or_flush(context, flush) {
            context.defer(deferred);
        }
    }

    /// Whether the flush of an edit in the space is deferred, and not made at once.
    #[inline]
    pub(super) fn would_defer(&self, context: &TlbContext) -> bool {
        self.defers_flushes && self.tlb.others_may_hold(context, self.tlb.fx().cpu())
    }

    /// Defers a flush, or makes it at once and returns `None`.
    #[inline]
    fn defer_or_flush(&mut self, context: &Arc<TlbContext>, flush: FlushInfo) -> Option<DeferredFlush> {
        if self.would_defer(context) {
            return Some(self.defer(context, self.tlb.fx().cpu(), flush));
        }
        self.tlb.count(Counter::PwTlbBatchAtOnce, 1);
        self.tlb.flush(context, flush);
        None
    }

    #[inline]
    fn defer(&mut self, context: &Arc<TlbContext>, me: CpuId, flush: FlushInfo) -> DeferredFlush {
        let tlb = self.tlb;
        self.open();
        let (deferred, mask) = tlb.defer_flush(context, me, flush.range, |tlb| match flush.range {
            Some(range) => tlb.issue_leaf(context, range.start(), flush.level),
            None => tlb.issue_whole(context),
        });
        self.cpus.insert_all(&mask);
        self.join(deferred, Some(context));
        deferred
    }

    /// Counts the batch as open, before it defers its first flush.
    #[inline]
    fn open(&self) {
        if self.entries == 0 {
            self.tlb.ledger().open_batch();
        }
    }

    /// Adds `deferred` to the batch; `context` owes it, or several spaces if that is `None`.
    #[inline]
    fn join(&mut self, deferred: DeferredFlush, context: Option<&Arc<TlbContext>>) {
        let issuer = deferred.issuer();
        if self.entries == 0 {
            (self.issuer, self.only) = (issuer, context.cloned());
        } else {
            if self.issuer != issuer {
                self.issuer = plant!(LatestIssuerCompletes; issuer, None);
            }
            let is_same = |only: &Arc<TlbContext>| context.is_some_and(|context| Arc::ptr_eq(only, context));
            if self.only.as_ref().is_some_and(|only| !is_same(only)) {
                self.only = None;
            }
        }
        self.epoch = self.epoch.max(deferred.epoch());
        self.entries += 1;
    }
}

impl<P: Platform> Tlb<P> {
    /// Whether this machine defers flushes, with the CPUs that are online.
    fn defers_flushes(&self) -> bool {
        !self.fx().caps().repeat_invalidate
            && match self.batch {
                BatchPolicy::Never => false,
                BatchPolicy::Auto => self.fx().online().count() > 1,
                BatchPolicy::Always => true,
            }
    }

    /// Defers the flush of an edit, which `issue` broadcasts; x86: returns the CPUs that owe it.
    ///
    /// The caller holds the lock of the edited table.
    #[inline]
    pub(super) fn defer_flush(
        &self,
        context: &TlbContext,
        me: CpuId,
        range: Option<PageRange>,
        issue: impl FnOnce(&Self),
    ) -> (DeferredFlush, CpuMask) {
        self.fx().publish();
        plant!(PublishSettles => self.ledger().advance(me, self.ledger().sample()));
        self.tell_secondaries(context, range);
        self.use_context(context, LineUse::Store);
        let (issuer, mask) = match self.fx().caps().shootdown {
            ShootdownKind::Ipi => {
                // INV-TLB-SWITCH: the generation moves before the mask is read.
                let mask = plant!(
                    BatchMaskBeforeBump;
                    { let mask = context.cpus(); P::Locks::point(); context.bump(); mask },
                    { context.bump(); P::Locks::point(); context.cpus() }
                );
                (None, mask)
            }
            ShootdownKind::Broadcast => {
                issue(self);
                (Some(me), CpuMask::EMPTY)
            }
        };
        // INV-LEDGER-SAMPLE: read after the edit, so that an act whose sample is younger comes
        // after the edit.
        (DeferredFlush::new(self.ledger().sample(), issuer), mask)
    }

    /// Whether a CPU other than `me` may hold translations of the space (`should_defer_flush`).
    ///
    /// On arm64 that is not known, so it counts as true.
    #[inline]
    fn others_may_hold(&self, context: &TlbContext, me: CpuId) -> bool {
        self.fx().caps().shootdown == ShootdownKind::Broadcast || self.batch == BatchPolicy::Always || {
            let mut others = context.cpus();
            others.remove(me);
            !others.is_empty()
        }
    }
}
