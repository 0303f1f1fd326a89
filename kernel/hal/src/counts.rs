//! Counters of the operations requested through [`pagewright_arch::Effects`].
//!
//! The simulated machine has the same counters under the same names (`pagewright-sim`, `event.rs`),
//! so that a run here and its replay there can be compared.
//!
//! Not guaranteed: a consistent snapshot of all counters while CPUs run.

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, Isa};
use pagewright_types::IsaKind;

pagewright_types::named_table! {
    /// A counted operation.
    pub enum EffectCounter {
        EntryStores = "pw_entry_stores", "Page-table entries stored or exchanged.";
        PageFlushes = "pw_page_flushes", "Local invalidations of a page or a range.";
        FullFlushes = "pw_full_flushes", "Local invalidations of whole tags, including those by a new root.";
        Tlbis = "pw_tlbis", "Invalidations of any kind (arm64).";
        Dsbs = "pw_dsbs", "Barriers that order stores to entries or complete invalidations (arm64).";
        IpisSent = "pw_ipis_sent", "Shootdown IPIs, one for each target.";
    }
}

static COUNTS: [AtomicU64; EffectCounter::COUNT] = [const { AtomicU64::new(0) }; EffectCounter::COUNT];

/// The value of a counter since boot, over all CPUs.
pub fn count(effect: EffectCounter) -> u64 {
    COUNTS[effect as usize].load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn add(effect: EffectCounter, times: u64) {
    COUNTS[effect as usize].fetch_add(times, Ordering::Relaxed);
}

/// Counts a barrier, which only arm64 needs.
#[inline]
pub(crate) fn barrier<I: Isa>() {
    if I::KIND == IsaKind::Aarch64 {
        add(EffectCounter::Dsbs, 1);
    }
}

/// Counts an invalidation.
pub(crate) fn invalidation<I: Isa>(op: Invalidate) {
    if I::KIND == IsaKind::Aarch64 {
        add(EffectCounter::Tlbis, 1);
        if op.scope == InvalidateScope::Broadcast {
            return;
        }
        // A local invalidation is followed by its own barrier.
        add(EffectCounter::Dsbs, 1);
    }
    match op.target {
        InvalidateTarget::Page { .. } | InvalidateTarget::Range { .. } | InvalidateTarget::PageOfAllTags { .. } => {
            add(EffectCounter::PageFlushes, 1)
        }
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => {
            add(EffectCounter::FullFlushes, 1)
        }
    }
}
