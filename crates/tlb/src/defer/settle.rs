//! Settling deferred flushes: which CPUs still owe, and their flushes (INV-TLB-DEFERRED).
//!
//! A space remembers the epoch of its latest deferral, on arm64 with the CPU that issued the
//! invalidation ([`DeferredFlush`]), and the epoch up to which it has been flushed as a whole. A
//! deferral is settled if the second covers it, or if the clocks of the ledger say so. On x86 those
//! are the clocks of the CPUs that run the space and are not lazy, since the generation catches up
//! a CPU that joins later. On arm64 it is the clock of the CPU that issued.
//!
//! Neighbours: [`Batch::settle`] settles what its batch deferred. [`crate::Gather`] flushes what
//! others deferred when it is settled, and [`Tlb::flush_before_install`] before an entry is
//! installed.
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
            || self.owed_under(context, key).is_some()
            || context.unplaced().is_some_and(|deferred| !self.is_settled(context, deferred))
    }

    /// Whether a table of the space may have a key that is not settled.
    ///
    /// For a caller that would have to visit many tables to find it.
    pub fn may_owe_flush_anywhere(&self, context: &TlbContext) -> bool {
        self.use_context(context, LineUse::Load);
        context.deferred().is_some_and(|deferred| !self.is_settled(context, deferred))
    }

    /// Flushes a space if something deferred in it may be owed; returns whether it was.
    #[cold]
    pub(crate) fn flush_deferred(&self, context: &TlbContext) -> bool {
        let Some(epoch) = self.begin_settling(context) else { return false };
        self.flush(context, FlushInfo { range: None, level: Level::PTE, freed_tables: false });
        context.note_flushed(epoch);
        true
    }

    /// The epoch up to which a flush of the whole space settles, if it begins now.
    ///
    /// `None` if nothing deferred in the space is owed. The caller flushes, and then calls
    /// [`TlbContext::note_flushed`]. A flush that is deferred meanwhile has a later epoch: it was
    /// sampled after its entry was edited, so an edit that the flush may miss is sampled after the
    /// flush began.
    pub(crate) fn begin_settling(&self, context: &TlbContext) -> Option<u64> {
        let deferred = context.deferred()?;
        if self.is_settled(context, deferred) {
            return None;
        }
        plant!(EpochStillOpen => return Some(self.ledger().sample() + 1));
        // The key of what was deferred in the epoch that ends is the next number.
        let epoch = self.ledger().begin_epoch() + 1;
        P::Locks::point();
        Some(epoch)
    }

    /// Whether no CPU can hold what was deferred.
    ///
    /// The space was flushed since, or the clocks say so.
    ///
    /// Clocks say nothing while a batch lets translations linger and has not moved the generation:
    /// a CPU that runs another space may come back to what it has kept (INV-LINGER-GENERATION).
    pub(crate) fn is_settled(&self, context: &TlbContext, deferred: DeferredFlush) -> bool {
        let has_flushed = |cpu: CpuId| self.ledger().has_reached(cpu, deferred.epoch());
        context.is_flushed(deferred)
            || match (self.fx().caps().shootdown, deferred.issuer()) {
                (ShootdownKind::Ipi, _) => {
                    !plant!(ClocksBeforeGeneration; false, context.has_lingerers())
                        && context.cpus().iter().all(|cpu| self.is_lazy(cpu) || has_flushed(cpu))
                }
                (ShootdownKind::Broadcast, Some(issuer)) => has_flushed(plant!(OwnClockAsked; self.fx().cpu(), issuer)),
                (ShootdownKind::Broadcast, None) => self.fx().online().iter().all(has_flushed),
            }
    }

    pub(crate) fn is_lazy(&self, cpu: CpuId) -> bool {
        self.cpus.get(cpu).lazy.load(Ordering::SeqCst)
    }

    /// x86: flushes everything on the CPUs in `cpus` whose clocks are behind `epoch`.
    ///
    /// The generation catches up those that are lazy, and those that are offline flush before they
    /// run anything. Returns whether there was no CPU to flush.
    pub(crate) fn flush_behind(&self, cpus: CpuMask, epoch: u64) -> bool {
        let mut owing = cpus.and(&self.fx().online());
        owing.retain(|cpu| !self.is_lazy(cpu) && !self.ledger().has_reached(cpu, epoch));
        self.count(Counter::PwTlbSettledAlready, u64::from(cpus.without(&owing).count()));
        if owing.is_empty() {
            return true;
        }
        // A CPU that flushes from here on is not behind.
        self.ledger().begin_epoch();
        self.flush_everything(&owing);
        false
    }

    /// arm64: completes the invalidations that `issuer` has issued up to `epoch`.
    ///
    /// If `only` names a space, all of them are of that space. Another CPU's barrier would prove
    /// nothing (Arm ARM D8.14.5). So on another CPU, or if several CPUs have issued, they are
    /// issued again. Returns whether there was nothing to wait for.
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
                // What the flush settles is older than the epoch that begins.
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
    // Inlined: a call would have to copy half a kilobyte of `self`.
    #[inline]
    pub fn settle(mut self) {
        self.flush_and_free();
    }
}

impl<P: Platform> Batch<'_, P> {
    /// Waits for the deferred flushes; returns whether all were settled before.
    fn wait_for_flushes(&self) -> bool {
        match (self.tlb.fx().caps().shootdown, &self.only) {
            _ if self.tlb.ledger().clocks_have_reached(self.epoch) => true,
            (_, Some(only)) if only.is_flushed_up_to(self.epoch) => true,
            (ShootdownKind::Ipi, Some(only)) => !self.tlb.flush_deferred(only),
            (ShootdownKind::Ipi, None) => self.tlb.flush_behind(self.cpus, self.epoch),
            (ShootdownKind::Broadcast, only) => self.tlb.complete_issued(self.issuer, self.epoch, only.as_deref()),
        }
    }
}

impl<P: Platform> DetachedHolder<P> for Batch<'_, P> {
    fn detached(&mut self) -> (&mut DetachedList, &Frames<P>) {
        (&mut self.detached, self.tlb.frames())
    }

    fn flush_and_free(&mut self) {
        if self.entries > 0 {
            self.tlb.count(Counter::PwTlbBatchEntries, u64::from(self.entries));
            let settled = self.tlb.attribute_flushes(Counter::PwTlbBatchWaits, || self.wait_for_flushes());
            self.tlb.count(if settled { Counter::PwTlbBatchSettled } else { Counter::PwTlbBatchFlushed }, 1);
            self.tlb.ledger().close_batch(self.epoch);
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
        // Each of several issuers owes its own invalidations. The ledger cannot say so, and no one
        // CPU can complete those of all. So they are completed now.
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
