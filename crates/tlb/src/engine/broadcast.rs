//! Shootdown by broadcast invalidation (arm64; Linux's `arch/arm64/include/asm/tlbflush.h`).
//!
//! The invalidations themselves reach every CPU; what costs is the barrier that waits for them. One
//! barrier ends a flush, on the CPU that issued them: only its own DSB proves that they are done
//! (Arm ARM D8.14.5).

use super::{FlushInfo, Tlb};
use crate::context::TlbContext;
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget};
use pagewright_plant::{plant, planted};
use pagewright_sync::Platform;
use pagewright_types::{Counter, Level, VirtAddr};

/// Entries above which one invalidation of the whole tag is issued instead (`MAX_DVM_OPS`).
///
/// A CPU that receives more would be kept from its own work too long.
const MAX_DVM_OPS: u64 = 512;
/// Pages that one operation on a range can name (`MAX_TLBI_RANGE_PAGES`: 32 units of 2^16).
///
/// A longer range would take many operations: a gather over a sparse space would issue tens of
/// thousands.
const MAX_TLBI_RANGE_PAGES: u64 = 32 << 16;

impl<P: Platform> Tlb<P> {
    pub(super) fn flush_broadcast(&self, context: &TlbContext, flush: FlushInfo) {
        let tag = context.asid_tag();
        let last_level = !flush.freed_tables;
        let stride = flush.level.span();
        match flush.range {
            Some(range)
                if self.fx().caps().range_invalidate
                    && range.len() > stride
                    && range.pages() <= MAX_TLBI_RANGE_PAGES =>
            {
                self.invalidate_everywhere(InvalidateTarget::Range { tag, range, level: flush.level, last_level });
            }
            Some(range) if range.len().div_ceil(stride) < MAX_DVM_OPS => {
                let mut va = range.start();
                while va < range.end() {
                    self.invalidate_everywhere(InvalidateTarget::Page { tag, va, level: flush.level, last_level });
                    va = va.add(stride);
                }
            }
            _ => self.invalidate_everywhere(InvalidateTarget::Tag(tag)),
        }
        self.complete();
        if flush.freed_tables {
            self.await_walkers();
        }
    }

    /// Issues, without waiting, the invalidation of one leaf.
    ///
    /// What was stored is published already.
    pub(crate) fn issue_leaf(&self, context: &TlbContext, va: VirtAddr, level: Level) {
        self.invalidate_everywhere(InvalidateTarget::Page { tag: context.asid_tag(), va, level, last_level: true });
    }

    /// Issues, without waiting, the invalidation of everything a context has.
    ///
    /// What was stored is published already.
    pub(crate) fn issue_whole(&self, context: &TlbContext) {
        self.invalidate_everywhere(InvalidateTarget::Tag(context.asid_tag()));
    }

    pub(super) fn everything_broadcast(&self) {
        // Another CPU's barrier would prove nothing here, so everything is issued again; then every
        // debt is settled at once.
        let sampled = self.ledger().sample();
        self.fx().publish();
        plant!(CompleteElsewhere; (), self.invalidate_everywhere(InvalidateTarget::AllTags));
        self.complete();
        plant!(SampledAfterAct => self.settle_all_sampled_late());
        self.ledger().settle_all(sampled);
    }

    planted! {
        /// Settles also the debts that arose after the invalidations.
        fn settle_all_sampled_late(&self) {
            <P::Locks as pagewright_sync::Backend>::point();
            self.ledger().settle_all(self.ledger().sample());
        }
    }

    fn invalidate_everywhere(&self, target: InvalidateTarget) {
        self.under_each_tag(target, |target| {
            let scope = plant!(LocalOnly; InvalidateScope::Local, InvalidateScope::Broadcast);
            self.fx().invalidate(Invalidate { scope, target });
            if self.fx().caps().repeat_invalidate {
                // The first of the pair proves nothing, so no clock moves.
                self.fx().complete();
                self.count(Counter::NrTlbRemoteFlush, 1);
                self.fx().invalidate(Invalidate { scope, target });
            }
        });
    }

    /// Waits for what this CPU issued; settles every debt whose invalidations it had issued before.
    pub(crate) fn complete(&self) {
        let sampled = self.ledger().sample();
        plant!(NoComplete; self.fx().publish(), self.fx().complete());
        self.count(Counter::NrTlbRemoteFlush, 1);
        self.ledger().advance(self.fx().cpu(), sampled);
    }
}
