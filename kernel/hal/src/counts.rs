//! What the memory manager asked of this machine through [`pagewright_arch::Effects`], counted.
//!
//! The lab's machine counts the same under the same names (`pagewright-sim`, `event.rs`), so that a
//! run here and its replay there can be compared.
//!
//! Not guaranteed: one moment for all figures while CPUs run.

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Invalidate, InvalidateScope, InvalidateTarget, Isa};
use pagewright_types::{IsaKind, named_table};

named_table! {
    /// Something that was asked for.
    pub enum Effect {
        EntryStores = "pw_entry_stores", "Page-table entries stored or exchanged.";
        PageFlushes = "pw_page_flushes", "Invalidations of one page or a range on the CPU that asked.";
        FullFlushes = "pw_full_flushes", "Invalidations of whole tags on the CPU that asked, by a new root too.";
        Tlbis = "pw_tlbis", "Invalidations of any kind (arm64).";
        Dsbs = "pw_dsbs", "Barriers that order stores to entries or complete invalidations (arm64).";
        IpisSent = "pw_ipis_sent", "Kicks, one for each target.";
    }
}

static COUNTS: [AtomicU64; Effect::COUNT] = [const { AtomicU64::new(0) }; Effect::COUNT];

/// How often something was asked for since boot, by all CPUs.
pub fn count(effect: Effect) -> u64 {
    COUNTS[effect as usize].load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn add(effect: Effect, times: u64) {
    COUNTS[effect as usize].fetch_add(times, Ordering::Relaxed);
}

/// A barrier of arm64's; x86-64 needs none.
#[inline]
pub(crate) fn barrier<I: Isa>() {
    if I::KIND == IsaKind::Aarch64 {
        add(Effect::Dsbs, 1);
    }
}

/// An invalidation.
pub(crate) fn invalidation<I: Isa>(op: Invalidate) {
    if I::KIND == IsaKind::Aarch64 {
        add(Effect::Tlbis, 1);
        if op.scope == InvalidateScope::Broadcast {
            return;
        }
        // It waits for itself.
        add(Effect::Dsbs, 1);
    }
    match op.target {
        InvalidateTarget::Page { .. } | InvalidateTarget::Range { .. } => add(Effect::PageFlushes, 1),
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags => add(Effect::FullFlushes, 1),
    }
}
