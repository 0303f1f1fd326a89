//! The table of all counters.
//!
//! This table declares each counter once, with its name and meaning. The enum, the name in
//! `/proc/vmstat`, the row in reports and the page in `docs/` all come from it. A counter has
//! Linux's name if Linux counts the same thing; otherwise its name starts with `pw_`. The table is
//! in `types` because every layer from the frame allocator upwards counts. The storage, one array
//! per CPU, is in `sync`.

crate::named_table! {
    /// A counter, from boot and over all CPUs.
    pub enum Counter {
        PgAlloc = "pgalloc", "Base pages handed out by the allocator.";
        NumaHit = "numa_hit", "Blocks that came from the first node that their request permits.";
        NumaMiss = "numa_miss", "Blocks that came from another node than the first permitted one, which had no memory.";
        NumaForeign = "numa_foreign", "Blocks that the first permitted node could not serve: numa_miss by the other node.";
        NumaInterleave = "numa_interleave", "Interleaved blocks: always 0, because no policy interleaves.";
        NumaLocal = "numa_local", "Blocks that came from the node of the CPU that allocated them.";
        NumaOther = "numa_other", "Blocks that came from another node than that of the CPU that allocated them.";
        PgFree = "pgfree", "Base pages given back to the allocator.";
        PgFault = "pgfault", "Page faults, minor, major and failed, those taken inside memory calls included; an access that its mapping refuses is none.";
        PgMajFault = "pgmajfault", "Page faults that waited for a device.";
        PswpIn = "pswpin", "Pages read from swap.";
        PswpOut = "pswpout", "Pages written to swap.";
        PgActivate = "pgactivate", "Pages that became active.";
        PgDeactivate = "pgdeactivate", "Pages that became inactive.";
        PgRefill = "pgrefill", "Active pages that reclaim scanned.";
        PgScanKswapd = "pgscan_kswapd", "Inactive pages that background reclaim scanned.";
        PgScanDirect = "pgscan_direct", "Inactive pages that direct reclaim scanned.";
        PgScanProactive = "pgscan_proactive", "Inactive pages that proactive reclaim scanned.";
        PgStealKswapd = "pgsteal_kswapd", "Pages that background reclaim freed.";
        PgStealDirect = "pgsteal_direct", "Pages that direct reclaim freed.";
        PgStealProactive = "pgsteal_proactive", "Pages that proactive reclaim freed.";
        PwReclaimWaits = "pw_reclaim_waits", "The part of nr_tlb_remote_flush that background, direct and proactive reclaim caused; MADV_PAGEOUT is not in it.";
        PageOutRun = "pageoutrun", "Runs of background reclaim.";
        UnevictableCulled = "unevictable_pgs_culled", "Pages that became unevictable because a locked mapping maps them.";
        UnevictableRescued = "unevictable_pgs_rescued", "Pages that became evictable again because the last locked mapping of them was unlocked or removed.";
        WorkingsetRefaultAnon = "workingset_refault_anon", "Evicted anonymous pages that were read back from swap (refaults).";
        WorkingsetRefaultFile = "workingset_refault_file", "Evicted file pages that were read again (refaults).";
        WorkingsetActivateAnon = "workingset_activate_anon", "Refaulted anonymous pages that were activated at once, because they came back soon.";
        WorkingsetActivateFile = "workingset_activate_file", "Refaulted file pages that were activated at once, because they came back soon.";
        WorkingsetRestoreAnon = "workingset_restore_anon", "Refaulted anonymous pages, activated at once, that belonged to the working set before their eviction.";
        WorkingsetRestoreFile = "workingset_restore_file", "Refaulted file pages, activated at once, that belonged to the working set before their eviction.";
        PgLazyFree = "pglazyfree", "Pages that MADV_FREE marked as droppable.";
        PgLazyFreed = "pglazyfreed", "Pages that reclaim freed without writing them, because MADV_FREE had marked them.";
        PgReuse = "pgreuse", "Write faults that reused the page instead of copying it.";
        PwCowCopy = "pw_cow_copy", "Write faults that copied the page.";
        PwZeroed = "pw_pages_zeroed", "Base pages cleared before use.";
        PwClearMachine = "pw_clear_machine", "Base pages cleared by the machine itself, page tables and pages then filled from a file included.";
        PwClearCached = "pw_clear_cached", "Base pages cleared by ordinary stores.";
        PwClearMovnti = "pw_clear_movnti", "Base pages cleared by MOVNTI, past the cache.";
        PwClearMovdir64b = "pw_clear_movdir64b", "Base pages cleared by MOVDIR64B, past the cache.";
        PwClearClzero = "pw_clear_clzero", "Base pages cleared by CLZERO, past the cache.";
        PwClearAvx2 = "pw_clear_avx2", "Base pages cleared by non-temporal AVX stores, past the cache.";
        PwClearAvx512 = "pw_clear_avx512", "Base pages cleared by non-temporal AVX-512 stores, past the cache.";
        PwClearDcZva = "pw_clear_dc_zva", "Base pages cleared by DC ZVA.";
        PwClearFences = "pw_clear_fences", "Fences after weakly ordered stores: one per batch and one per chance to yield.";
        PwClearBatches = "pw_clear_batches", "Batches of blocks cleared by weakly ordered stores, single blocks included.";
        PwClearYields = "pw_clear_yields", "Chances to yield while one block is cleared by weakly ordered stores.";
        PwClearMeasurements = "pw_clear_measurements", "Measurements that choose the stores for clearing: a calibration, and a set of the cache probe each. If 0, the assumptions apply.";
        PwFaultAround = "pw_fault_around", "Cached file pages that fault-around mapped beside the page that faulted.";
        PwFailedFault = "pw_failed_fault", "The part of pgfault that served no access: past the end of a file, at a guard, after a device error, or without memory.";
        PwSpuriousFault = "pw_spurious_fault", "Faults whose entry already allowed the access.";
        PwRmapNodes = "pw_rmap_nodes", "Nodes of the tree of forks that walks of the reverse map looked at.";
        NumaPteUpdates = "numa_pte_updates", "Entries that a scan made inaccessible, so that the next access of the page is a hint fault.";
        NumaHugePteUpdates = "numa_huge_pte_updates", "Entries of huge pages that a scan made inaccessible: always 0, because scans leave them out.";
        PwNumaLargeSkipped = "pw_numa_large_skipped", "Entries of large folios that a scan left as they were.";
        NumaHintFaults = "numa_hint_faults", "Hint faults.";
        NumaHintFaultsLocal = "numa_hint_faults_local", "Hint faults on a page of the node of the CPU.";
        NumaPagesMigrated = "numa_pages_migrated", "Pages that hint faults moved to the node of the CPU.";
        PgMigrateSuccess = "pgmigrate_success", "Pages that were moved to another frame, for a call, a hint fault or a tier.";
        PgMigrateFail = "pgmigrate_fail", "Pages that were to be moved and stayed.";
        PgPromoteSuccess = "pgpromote_success", "Pages that a hint fault moved from a lower memory tier to the top one.";
        PgPromoteCandidate = "pgpromote_candidate", "Pages of a lower memory tier that a hint fault found hot, within the rate limit or not, while the node of the CPU had no ample free memory.";
        PgDemoteKswapd = "pgdemote_kswapd", "Pages that background reclaim moved to a lower memory tier.";
        PgDemoteDirect = "pgdemote_direct", "Pages that direct reclaim moved to a lower memory tier.";
        PgDemoteProactive = "pgdemote_proactive", "Pages that proactive reclaim moved to a lower memory tier.";
        ThpFaultAlloc = "thp_fault_alloc", "Huge pages that a fault allocated and mapped.";
        ThpFaultFallback = "thp_fault_fallback", "Faults that got smaller pages because no huge page could be allocated.";
        PwMthpFaultAlloc = "pw_mthp_fault_alloc", "Large folios of less than 2 MiB that a fault allocated and mapped: the sum of Linux's anon_fault_alloc of those sizes.";
        ThpSplitPmd = "thp_split_pmd", "Leaves of the PMD level that were split into those of a table.";
        ThpSplitPage = "thp_split_page", "Large folios that were split into pages.";
        ThpSplitPageFailed = "thp_split_page_failed", "Large folios that were to be split and stayed whole.";
        ThpDeferredSplitPage = "thp_deferred_split_page", "Large folios that were queued to be split, because some of their pages are no longer mapped.";
        ThpZeroPageAlloc = "thp_zero_page_alloc", "Times that the huge zero page was allocated.";
        ThpZeroPageAllocFailed = "thp_zero_page_alloc_failed", "Times that the huge zero page could not be allocated.";
        ThpSwpOutFallback = "thp_swpout_fallback", "Huge pages that a page-out split, because swap space has no slot for a whole one.";
        PwFork = "pw_fork", "Address spaces created by fork.";
        PwForkEntries = "pw_fork_entries", "Page-table entries copied by fork.";
        PwTableShared = "pw_table_shared", "Page tables that fork shared with a child, each with all tables below it.";
        PwTableCopiedNever = "pw_table_copied_never", "Last-level page tables, and leaves above that level, that fork copied because cow_page_tables is never.";
        PwTableCopiedUnasked = "pw_table_copied_unasked", "Last-level page tables, and leaves above that level, that fork copied because cow_page_tables is prctl and the program had not asked.";
        PwTableCopiedSmall = "pw_table_copied_small", "Last-level page tables, and leaves above that level, that fork copied because cow_page_tables is auto and the program is small.";
        PwTableCopiedMapping = "pw_table_copied_mapping", "Last-level page tables that fork copied because a mapping under them may not be shared: one with MADV_DONTFORK or MADV_WIPEONFORK, or locked.";
        PwTableCopiedPinned = "pw_table_copied_pinned", "Last-level page tables that fork copied because a page under them may be pinned.";
        PwTableCopiedHuge = "pw_table_copied_huge", "Leaves above the last level that fork copied because something else under their table may not be shared or may be pinned.";
        PwTableBroken = "pw_table_broken", "Page tables copied because an entry below a shared pointer had to change.";
        PwTableMadeForAll = "pw_table_made_for_all", "Page tables made below a shared pointer, for all spaces that share it.";
        PwTableTakenBack = "pw_table_taken_back", "Page tables taken back by the last space that shared them.";
        PwTableLeft = "pw_table_left", "Shared page tables that a space left by an unmap or its exit.";
        NrTlbRemoteFlush = "nr_tlb_remote_flush", "Shootdowns sent to other CPUs; on arm64, DSBs that complete broadcast invalidations.";
        NrTlbRemoteFlushReceived = "nr_tlb_remote_flush_received", "Shootdown IPIs handled; 0 on arm64, where the hardware delivers invalidations.";
        NrTlbLocalFlushAll = "nr_tlb_local_flush_all", "Flushes on this CPU of everything under one tag or of all tags.";
        NrTlbLocalFlushOne = "nr_tlb_local_flush_one", "Pages flushed one by one on this CPU.";
        PwTlbTagRollover = "pw_tlb_tag_rollover", "Tag rollovers: the tags ran out and a new generation of them began.";
        PwTlbSettleOnAlloc = "pw_tlb_settle_on_alloc", "Allocations that flushed CPUs for the debts of parked frames.";
        PwTlbSettleAhead = "pw_tlb_settle_ahead", "Flushes that settled parked frames before an allocation had to.";
        PwTlbSettleWaits = "pw_tlb_settle_waits", "The part of nr_tlb_remote_flush that settled parked frames, in an allocation or ahead of it.";
        PwTlbDebtParked = "pw_tlb_debt_parked", "Frames parked in the ledger because the debt that held them was dropped.";
        PwTlbBatchEntries = "pw_tlb_batch_entries", "Entries whose flush a batch deferred.";
        PwTlbBatchAtOnce = "pw_tlb_batch_at_once", "Entries that a batch flushed at once, because of tlb_batch, because no other CPU could hold them, or because of an erratum.";
        PwTlbBatchFlushed = "pw_tlb_batch_flushed", "Batches that settled with one wait for all their deferred flushes.";
        PwTlbBatchWaits = "pw_tlb_batch_waits", "The part of nr_tlb_remote_flush that batches caused when they settled.";
        PwTlbBatchSettled = "pw_tlb_batch_settled", "Batches that settled without a wait, because every CPU had flushed since.";
        PwTlbBatchOvertaken = "pw_tlb_batch_overtaken", "Flushes by an operation that met entries whose flush was deferred and not known to be complete, and that had nothing else to flush.";
        PwTlbSettledAlready = "pw_tlb_settled_already", "CPUs that got no IPI, because their clock had passed the debt.";
        PwLingerPages = "pw_linger_pages", "Pages whose read-only translations were left in TLBs when they moved.";
        PwLingerPageRefused = "pw_linger_page_refused", "Pages whose translations were flushed although tlb_linger lets some stay, because the page is of shared memory, or of a file that has or had a writer.";
        PwLingerNothingOwed = "pw_linger_nothing_owed", "The same, because the cleared entry allowed no access and its flush was complete: nothing was owed.";
        PwLingerWritable = "pw_linger_writable", "The same, because the cleared entry allowed stores.";
        PwLingerShared = "pw_linger_shared", "The same, because several spaces reach the table of the entry, or it is above the last level.";
        PwLingerUnflushed = "pw_linger_unflushed", "The same, because a flush of the table or the space was not complete, and may have been of a right to store.";
        PwLingerDevice = "pw_linger_device", "The same, because a device walks the tables of the space.";
        PwLingerNoWait = "pw_linger_no_wait", "The same, because no other CPU could hold the translation.";
        PwLingerSettledForStore = "pw_linger_settled_for_store", "Flushes before a store to a page that TLBs might still read at the frame that it left.";
        PwLingerStoreWaits = "pw_linger_store_waits", "The part of nr_tlb_remote_flush that came before a store to a page that TLBs might still read at the frame that it left.";
        NrFollPinAcquired = "nr_foll_pin_acquired", "Pages pinned; at rest equal to nr_foll_pin_released.";
        NrFollPinReleased = "nr_foll_pin_released", "Pages unpinned.";
        PwGupFast = "pw_gup_fast", "Pages of user memory that a lockless walk took.";
        PwGupFastDropped = "pw_gup_fast_dropped", "Pages that a lockless walk took and released, because the entries that led to them had changed or they had to be made exclusive first.";
        PwUnshare = "pw_unshare", "Pages made exclusive for a pin, by a copy or because there was no other user.";
        AllocStall = "allocstall", "Allocations that found no frames above the watermark.";
        OomKill = "oom_kill", "Page faults that failed for lack of memory, those taken inside memory calls included.";
    }
}

impl Counter {
    /// Why a fork copies page tables: each table counts under one of these.
    pub const COPY_REASONS: [Self; 6] = [
        Self::PwTableCopiedNever,
        Self::PwTableCopiedUnasked,
        Self::PwTableCopiedSmall,
        Self::PwTableCopiedMapping,
        Self::PwTableCopiedPinned,
        Self::PwTableCopiedHuge,
    ];
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
