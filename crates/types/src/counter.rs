//! The one table of counters.
//!
//! A counter is declared once, here, with its name, unit and meaning; the enum, the `/proc/vmstat`
//! name, the report's row and the page in `docs/` all come from this table. Names are Linux's where
//! Linux counts the same thing; a counter of our own starts with `pw_`. The table stands in `types`
//! because every layer from the frame allocator up counts; the storage (one array per CPU) is in
//! `sync`.

crate::named_table! {
    /// Something that is counted since boot, over all CPUs.
    pub enum Counter {
        PgAlloc = "pgalloc", "Base pages handed out by the allocator.";
        PgFree = "pgfree", "Base pages given back to the allocator.";
        PgFault = "pgfault", "Page faults, minor and major.";
        PgMajFault = "pgmajfault", "Page faults that had to wait for a device.";
        PswpIn = "pswpin", "Pages read from swap.";
        PswpOut = "pswpout", "Pages written to swap.";
        PgActivate = "pgactivate", "Pages that became active.";
        PgDeactivate = "pgdeactivate", "Pages that became inactive.";
        PgRefill = "pgrefill", "Active pages that reclaim looked at.";
        PgScanKswapd = "pgscan_kswapd", "Inactive pages that background reclaim looked at.";
        PgScanDirect = "pgscan_direct", "Inactive pages that were looked at by who allocates.";
        PgScanProactive = "pgscan_proactive", "Inactive pages that were looked at because somebody asked for it.";
        PgStealKswapd = "pgsteal_kswapd", "Pages freed by background reclaim.";
        PgStealDirect = "pgsteal_direct", "Pages freed by who allocates.";
        PgStealProactive = "pgsteal_proactive", "Pages freed because somebody asked for it.";
        PwReclaimWaits = "pw_reclaim_waits", "Of nr_tlb_remote_flush, those that reclaim made, in the background, by who allocates or because somebody asked; MADV_PAGEOUT's apart.";
        PageOutRun = "pageoutrun", "Times that background reclaim has run.";
        UnevictableCulled = "unevictable_pgs_culled", "Pages that reclaim found locked in memory.";
        UnevictableRescued = "unevictable_pgs_rescued", "Pages that can be reclaimed again, as a mapping that had them locked is gone or unlocked.";
        WorkingsetRefaultAnon = "workingset_refault_anon", "Anonymous pages that came back from swap.";
        WorkingsetRefaultFile = "workingset_refault_file", "Pages of files that were read again.";
        WorkingsetActivateAnon = "workingset_activate_anon", "Those from swap that were active at once, because they came back so soon.";
        WorkingsetActivateFile = "workingset_activate_file", "Those of files that were.";
        WorkingsetRestoreAnon = "workingset_restore_anon", "Those from swap that had been active before they went.";
        WorkingsetRestoreFile = "workingset_restore_file", "Those of files that had been.";
        PgLazyFree = "pglazyfree", "Pages whose contents may go, by MADV_FREE.";
        PgLazyFreed = "pglazyfreed", "Pages freed without a write because of MADV_FREE.";
        PgReuse = "pgreuse", "Write faults that reused the page instead of copying it.";
        PwCowCopy = "pw_cow_copy", "Write faults that copied the page.";
        PwZeroed = "pw_pages_zeroed", "Base pages cleared before use.";
        PwClearMachine = "pw_clear_machine", "Base pages cleared by the machine itself, tables and what a file then fills included.";
        PwClearCached = "pw_clear_cached", "Base pages cleared by ordinary stores.";
        PwClearMovnti = "pw_clear_movnti", "Base pages cleared by MOVNTI, past the cache.";
        PwClearMovdir64b = "pw_clear_movdir64b", "Base pages cleared by MOVDIR64B, past the cache.";
        PwClearClzero = "pw_clear_clzero", "Base pages cleared by CLZERO, past the cache.";
        PwClearAvx2 = "pw_clear_avx2", "Base pages cleared by non-temporal AVX stores, past the cache.";
        PwClearAvx512 = "pw_clear_avx512", "Base pages cleared by non-temporal AVX-512 stores, past the cache.";
        PwClearDcZva = "pw_clear_dc_zva", "Base pages cleared by DC ZVA.";
        PwClearFences = "pw_clear_fences", "Fences after weakly ordered stores: one a batch and one a yield.";
        PwClearBatches = "pw_clear_batches", "Batches of blocks cleared by weakly ordered stores, single blocks included.";
        PwClearYields = "pw_clear_yields", "Chances to yield within a block that was being cleared by weakly ordered stores.";
        PwFaultAround = "pw_fault_around", "File pages mapped beside the one that faulted.";
        PwSpuriousFault = "pw_spurious_fault", "Faults on an entry that already allowed the access.";
        PwFork = "pw_fork", "Address spaces made by fork.";
        PwForkEntries = "pw_fork_entries", "Page-table entries copied by fork.";
        NrTlbRemoteFlush = "nr_tlb_remote_flush", "Shootdowns sent to other CPUs; on arm64, completing DSBs of a broadcast invalidation.";
        NrTlbRemoteFlushReceived = "nr_tlb_remote_flush_received", "Shootdown interrupts handled; 0 on arm64, whose CPUs are told by hardware.";
        NrTlbLocalFlushAll = "nr_tlb_local_flush_all", "Flushes of everything under a tag on this CPU.";
        NrTlbLocalFlushOne = "nr_tlb_local_flush_one", "Pages flushed one by one on this CPU.";
        PwTlbTagRollover = "pw_tlb_tag_rollover", "Times the tags ran out and all were taken back.";
        PwTlbSettleOnAlloc = "pw_tlb_settle_on_alloc", "Allocations that had to settle a debt first.";
        PwTlbDebtParked = "pw_tlb_debt_parked", "Frames parked in the ledger with a debt.";
        PwTlbBatchEntries = "pw_tlb_batch_entries", "Flushes of one entry that batches have put off.";
        PwTlbBatchAtOnce = "pw_tlb_batch_at_once", "Flushes that were not put off, because nobody else is waited for, by setting or for an erratum.";
        PwTlbBatchFlushed = "pw_tlb_batch_flushed", "Batches that ended with one wait for all that they had put off.";
        PwTlbBatchPaid = "pw_tlb_batch_paid", "Batches that waited for nobody in the end, because all had flushed since.";
        PwTlbBatchOvertaken = "pw_tlb_batch_overtaken", "Flushes of a space by somebody who relied on entries that were put off in a batch not known to be settled.";
        PwTlbPaidAlready = "pw_tlb_paid_already", "CPUs spared an interrupt because their clock had passed the debt.";
        NrFollPinAcquired = "nr_foll_pin_acquired", "Pages pinned; at rest as many as were released.";
        NrFollPinReleased = "nr_foll_pin_released", "Pins given up.";
        PwGupFast = "pw_gup_fast", "Pages of user memory taken by a walk without locks.";
        PwGupFastDropped = "pw_gup_fast_dropped", "Pages that such a walk gave back, because what led to them had changed or they must be made exclusive first.";
        PwUnshare = "pw_unshare", "Pages made exclusive for a pin, by a copy or because nobody else had them.";
        AllocStall = "allocstall", "Allocations that failed at the watermark.";
        OomKill = "oom_kill", "Calls or faults that failed for want of memory.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_convention() {
        for (i, a) in Counter::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
            assert!(a.meaning().ends_with('.'));
            for b in &Counter::ALL[..i] {
                assert_ne!(a.name(), b.name());
            }
        }
    }
}
