//! Paying deferred flushes: which CPUs have paid, and flushes of the others (INV-TLB-DEFERRED).
//!
//! A space remembers the epoch of its latest deferral, on arm64 with the CPU that issued the
//! invalidation ([`DeferredFlush`]), and the epoch up to which it has been flushed as a whole. A
//! deferral is paid if the second covers it, or if the clocks of the ledger say so: on x86 those of
//! the CPUs that run the space, unless they are lazy, since a CPU that joins later is caught up by
//! the generation; on arm64 that of the CPU that issued.
//!
//! Neighbours: [`Batch::settle`] pays what its batch deferred. [`crate::Gather`] pays when it is
//! settled, and [`Tlb::flush_before_install`] before an entry is installed.
//!
//! Not guaranteed: that a space that was flushed is known to be; then it is flushed once more.

use crate::context::{DeferredFlush, TlbContext};
use crate::defer::Batch;
use crate::defer::key::has_gather;
use crate::detached::{DetachedHolder, DetachedList};
use crate::engine::{FlushInfo, Tlb};
use core::sync::atomic::Ordering;
use pagewright_arch::ShootdownKind;
use pagewright_frame::Frames;
use pagewright_plant::plant;
use pagewright_sync::{Backend, LineUse, Platform, bomb};
use pagewright_types::{Counter, CpuId, CpuMask, DebtKey, Level, Pfn};

impl<P: Platform> Tlb<P> {
    /// Whether an entry of `table` may have been cleared or weakened and not flushed yet.
    ///
    /// For an edit of an entry whose own word does not say which rights a TLB may hold. The caller
    /// holds the lock of the table.
    pub fn may_owe_flush(&self, context: &TlbContext, table: Pfn) -> bool {
        self.use_context(context, LineUse::Load);
        let (key, _) = self.frames().table(table).pending();
        has_gather(key) && context.is_flush_pending()
            || self.unpaid(context, key).is_some()
            || context.unplaced().is_some_and(|deferred| !self.has_paid(context, deferred))
    }

    /// Whether a table of the space may have a key that is not paid.
    ///
    /// For a caller that would have to visit many tables to find it.
    pub fn may_owe_flush_anywhere(&self, context: &TlbContext) -> bool {
        self.use_context(context, LineUse::Load);
        context.deferred().is_some_and(|deferred| !self.has_paid(context, deferred))
    }

    /// Flushes a space if something deferred in it may not be paid; returns whether it was not.
    #[cold]
    pub(crate) fn flush_deferred(&self, context: &TlbContext) -> bool {
        let Some(epoch) = self.begin_paying(context) else { return false };
        self.flush(context, FlushInfo { range: None, level: Level::PTE, freed_tables: false });
        context.note_flushed(epoch);
        true
    }

    /// If something deferred in the space is not paid: the epoch up to which a flush of the whole
    /// space pays, if it begins now.
    ///
    /// The caller flushes, and then calls [`TlbContext::note_flushed`]. What is deferred meanwhile
    /// bears a later epoch: it was sampled after its entry was edited, so an edit that the flush may
    /// miss is sampled after the flush began.
    pub(crate) fn begin_paying(&self, context: &TlbContext) -> Option<u64> {
        let deferred = context.deferred()?;
        if self.has_paid(context, deferred) {
            return None;
        }
        plant!(EpochStillOpen => return Some(self.ledger().sample() + 1));
        // The key of what was deferred in the epoch that ends is the next number.
        let epoch = self.ledger().begin_epoch() + 1;
        P::Locks::point();
        Some(epoch)
    }

    /// Whether no CPU can hold what was deferred: the space was flushed since, or the clocks say so.
    ///
    /// Clocks say nothing while a batch lets translations linger and has not moved the generation:
    /// a CPU that runs another space may come back to what it has kept (INV-LINGER-GENERATION).
    pub(crate) fn has_paid(&self, context: &TlbContext, deferred: DeferredFlush) -> bool {
        let paid = |cpu: CpuId| self.ledger().has_reached(cpu, deferred.epoch());
        context.is_flushed(deferred)
            || match (self.fx().caps().shootdown, deferred.issuer()) {
                (ShootdownKind::Ipi, _) => {
                    !plant!(ClocksBeforeGeneration; false, context.has_lingerers())
                        && context.cpus().iter().all(|cpu| self.is_lazy(cpu) || paid(cpu))
                }
                (ShootdownKind::Broadcast, Some(issuer)) => paid(plant!(OwnClockAsked; self.fx().cpu(), issuer)),
                (ShootdownKind::Broadcast, None) => self.fx().online().iter().all(paid),
            }
    }

    pub(crate) fn is_lazy(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu).lazy.load(Ordering::SeqCst)
    }

    /// x86: makes the CPUs in `cpus` that have not paid up to `epoch` forget everything.
    ///
    /// Those that are lazy are caught up by generation, those that are offline flush before they
    /// run anything. Returns whether all had paid.
    pub(crate) fn flush_unpaid(&self, cpus: CpuMask, epoch: u64) -> bool {
        let mut owing = cpus.and(&self.fx().online());
        owing.retain(|cpu| !self.is_lazy(cpu) && !self.ledger().has_reached(cpu, epoch));
        self.count(Counter::PwTlbPaidAlready, u64::from(cpus.without(&owing).count()));
        if owing.is_empty() {
            return true;
        }
        // Whoever flushes from here on has paid.
        self.ledger().begin_epoch();
        self.flush_everything(&owing);
        false
    }

    /// arm64: ends what `issuer` has issued up to `epoch`, all of it of one space if `only` names
    /// it. Another CPU's barrier would prove nothing (Arm ARM D8.14.5), so elsewhere, or if several
    /// have issued, it is issued again. Returns whether there was nothing to wait for.
    pub(crate) fn complete_issued(&self, issuer: Option<CpuId>, epoch: u64, only: Option<&TlbContext>) -> bool {
        match only {
            _ if issuer.is_some_and(|issuer| self.ledger().has_reached(issuer, epoch)) => return true,
            // An operation that depended on one of the entries has flushed the space.
            Some(context) if context.is_flushed_up_to(epoch) => return true,
            _ if issuer == Some(self.fx().cpu()) => {
                self.ledger().begin_epoch();
                self.complete();
            }
            Some(context) => {
                return plant!(CompleteElsewhere; { self.complete(); false }, !self.flush_deferred(context));
            }
            None => {
                // What all CPUs have paid is older than the epoch that begins.
                self.ledger().begin_epoch();
                self.flush_everything(&CpuMask::EMPTY);
            }
        }
        false
    }
}

impl<P: Platform> Batch<'_, P> {
    /// Waits until no CPU can use an old entry, then frees what was detached.
    ///
    /// # Panics
    /// In debug builds when the caller may not wait for other CPUs.
    // In the caller, who would have to copy half a kilobyte of `self` for a call.
    #[inline]
    pub fn settle(mut self) {
        self.pay();
    }
}

impl<P: Platform> Batch<'_, P> {
    /// Waits for the deferred flushes; returns whether all had been paid.
    fn wait_for_flushes(&self) -> bool {
        match (self.tlb.fx().caps().shootdown, &self.only) {
            _ if self.tlb.ledger().has_passed(self.epoch) => true,
            (_, Some(only)) if only.is_flushed_up_to(self.epoch) => true,
            (ShootdownKind::Ipi, Some(only)) => !self.tlb.flush_deferred(only),
            (ShootdownKind::Ipi, None) => self.tlb.flush_unpaid(self.cpus, self.epoch),
            (ShootdownKind::Broadcast, only) => self.tlb.complete_issued(self.issuer, self.epoch, only.as_deref()),
        }
    }
}

impl<P: Platform> DetachedHolder<P> for Batch<'_, P> {
    fn detached(&mut self) -> (&mut DetachedList, &Frames<P>) {
        (&mut self.detached, self.tlb.frames())
    }

    fn pay(&mut self) {
        if self.entries > 0 {
            self.tlb.count(Counter::PwTlbBatchEntries, u64::from(self.entries));
            let paid = self.tlb.attribute_flushes(Counter::PwTlbBatchWaits, || self.wait_for_flushes());
            self.tlb.count(if paid { Counter::PwTlbBatchPaid } else { Counter::PwTlbBatchFlushed }, 1);
        }
        (self.entries, self.cpus, self.epoch, self.only) = (0, CpuMask::EMPTY, 0, None);
        self.detached.release(self.tlb.frames());
    }
}

impl<P: Platform> Drop for Batch<'_, P> {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let owing = self.issuer.map_or(self.cpus, CpuMask::of);
        // Several issuers owe together what each of them owes, which the ledger can't say; nor can
        // one of their CPUs pay it.
        let key = if self.issuer.is_none() && self.tlb.fx().caps().shootdown == ShootdownKind::Broadcast {
            self.tlb.complete_issued(None, self.epoch, None);
            DebtKey::NONE
        } else {
            self.tlb.ledger().open(owing)
        };
        let (tlb, detached) = (self.tlb, &mut self.detached);
        tlb.park_dropped(key, |sink| detached.drain(tlb.frames(), sink));
        bomb::dropped(format_args!("INV-TLB-DEBT: batch of {} entries dropped unsettled", self.entries));
    }
}
