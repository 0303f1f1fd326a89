//! Planted bugs: mistakes that real kernels made, kept in the real code and switched off.
//!
//! A rule of the oracle that no broken program can fail proves nothing. So each promise has a
//! mistake that breaks it, compiled in by [`plant!`] at the line where a programmer would make it.
//! Without the feature `planted`, the macro expands to the correct code alone. With it, `choose`
//! switches one mistake on at run time: for the whole program, or with the feature `per-thread` for
//! the calling thread, so that tests run side by side.
//!
//! A mistake of more than two lines is a function beside the one that makes it, in [`planted!`].
//! `cargo xtask tidy` checks that, and that a test names each bug.
//!
//! Neighbours: `types` below; `sync` and every crate above it plants bugs. The judge has none.
//!
//! Not guaranteed: two mistakes at the same time. `choose` replaces the previous choice.
//!
//! # Example
//!
//! ```
//! use pagewright_plant::plant;
//!
//! let targets = plant!(LocalOnly; 0, 3);
//! assert_eq!(targets, 3, "the correct value, because no bug is chosen");
//! plant!(NoFlush => panic!("never reached"));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "per-thread")]
extern crate std;

pagewright_types::named_table! {
    /// A mistake that can be planted.
    pub enum PlantedBug {
        NoFlush = "no-flush", "Entries are cleared and no TLB is flushed.";
        LocalOnly = "local-only", "Only the CPU that clears an entry flushes it.";
        FlushBeforeClear = "flush-before-clear", "The flush precedes the clearing of the entry, so a walk in between caches the entry again.";
        TableAsLeaf = "table-as-leaf", "A table is freed after a flush that leaves the walk caches alone.";
        AcknowledgedEarly = "acknowledged-early", "A CPU acknowledges a flush request before it flushes; the planted build adds a scheduling point in between.";
        WriterKeptOut = "writer-kept-out", "A writer that waits for a lock does not make new readers wait, so readers that keep coming keep it out.";
        LazySkipped = "lazy-skipped", "A lazy CPU gets no IPI when tables are freed.";
        ProtectNoFlush = "protect-no-flush", "Rights are reduced in the entry and stay in the TLBs.";
        DirtyBitLost = "dirty-bit-lost", "A leaf is replaced by a plain store while a walker may set its dirty bit.";
        TableMovedOver = "table-moved-over", "mremap moves a table to an entry that already points to another.";
        MovedTableCached = "moved-table-cached", "mremap moves a table and leaves the walk caches that lead to it from the old addresses.";
        MovedTableAsPage = "moved-table-as-page", "mremap moves a table and flushes one page of those below it.";
        CopyUncounted = "copy-uncounted", "Fork copies entries and does not count them in the record of the child's table.";
        MoveUncounted = "move-uncounted", "mremap moves entries and does not count them in the record of their new table.";
        SharedTableEdited = "shared-table-edited", "A table below an entry that other spaces share is locked for edits of one space.";
        SharedLeafRevisited = "shared-leaf-revisited", "A walk of the reverse map forgets the leaves that it has met, and goes on through every space that shares their tables.";
        SplitLeavesGap = "split-leaves-gap", "A huge leaf reads as empty while it is split, so pages that are removed meanwhile come back.";
        PieceTakenForWhole = "piece-taken-for-whole", "A store reuses a page of a large folio by the references of the folio alone.";
        PieceReusedByMapcount = "piece-reused-by-mapcount", "A store reuses a page of a large folio although a reference that is no entry is on it.";
        CutHugeLeafTaken = "cut-huge-leaf-taken", "A call that discards a part of 2 MiB takes all of a huge page that another thread maps there meanwhile.";
        SplitIgnoresRef = "split-ignores-ref", "A folio is split although it has a reference that is no entry's.";
        SplitLosesWhole = "split-loses-whole", "The pages of a folio that is split lose the entries that map it whole.";
        SplitUndoneToFirst = "split-undone-to-first", "A split that fails puts leaves back that all map the first page of the folio.";
        FolioSplitNotFlushed = "folio-split-not-flushed", "A folio is split that TLBs have as a huge leaf still.";
        SplitNotFlushed = "split-not-flushed", "A table takes the place of a huge leaf that TLBs have still.";
        SplitFlushesPage = "split-flushes-page", "The split of a huge leaf flushes one page of those that it maps.";
        SplitLosesExclusive = "split-loses-exclusive", "The pages of a huge leaf that is split are no longer exclusive, and a pinned one is copied.";
        SplitLosesDirty = "split-loses-dirty", "The pages of a huge leaf that is split are clean, and a store after MADV_FREE is lost.";
        SplitLosesAccessed = "split-loses-accessed", "The pages of a huge leaf that is split have not been used.";
        SplitLosesSoftDirty = "split-loses-soft-dirty", "The pages of a huge leaf that is split have not been stored to since stores are tracked.";
        SplitLosesMayPin = "split-loses-may-pin", "The table of a huge leaf that is split has no mark for its pinned page, and fork shares it.";
        SplitLosesLock = "split-loses-lock", "The pages of a locked huge leaf that is split hold no lock of their own.";
        WholeUncountedFirst = "whole-uncounted-first", "A split uncounts the entry for the whole folio before it counts those of the pages; the planted build adds a scheduling point in between.";
        ForkDepositsNothing = "fork-deposits-nothing", "Fork copies a huge leaf and no deposit for it.";
        BreakMovesOverHole = "break-moves-over-hole", "The break moves down where nothing of the heap is mapped any more.";
        SplitsForNothing = "splits-for-nothing", "A call that is refused at its first mapping has reserved splits, and may fail for them.";
        DetachedCountsAsUser = "detached-counts-as-user", "A lazily freed page of several mappings is kept, because those that are cleared count as other users.";
        UndoesOtherPages = "undoes-other-pages", "A failed fallocate frees what earlier calls have allocated past the end of the file.";
        AutoChangesItsMind = "auto-changes-its-mind", "A space that has shared tables and is just below the limit copies them at the next fork.";
        PinnedEndsRun = "pinned-ends-run", "Fork copies no huge page behind a pinned one of the same table.";
        StoppedForkKeepsDeposits = "stopped-fork-keeps-deposits", "A copy of huge leaves that stops at a pinned one keeps the deposits of the rest.";
        HugeZeroFlushLate = "huge-zero-flush-late", "A store maps a huge page before other CPUs have lost that of zeroes.";
        DeferredKept = "deferred-kept", "A folio that waits to be split is freed or split, and stays on the queue.";
        DeferredNever = "deferred-never", "A large folio of which some pages are unmapped is not queued to be split.";
        DeferredDropped = "deferred-dropped", "A folio whose deferred split fails is not queued again.";
        FreeCutsFolio = "free-cuts-folio", "MADV_FREE of a part of a large folio lets reclaim discard the rest of it, too.";
        AgedByPiece = "aged-by-piece", "Each accessed entry of a large folio counts as a use of it, so one pass over it activates it.";
        IdleHidesUse = "idle-hides-use", "Idle tracking clears accessed bits and does not tell reclaim that the page was used.";
        HintOnLarge = "hint-on-large", "A scan takes the rights from the entries of large folios, which no hint fault moves.";
        MovedLeafTakenForPage = "moved-leaf-taken-for-page", "Views take each page of a folio that is being split for its first one.";
        FollowIgnoresSplit = "follow-ignores-split", "A request with SPLIT_PMD takes a page without splitting its huge leaf.";
        DepositKept = "deposit-kept", "The deposit of a huge leaf that is cleared stays with the table.";
        DepositLeftBehind = "deposit-left-behind", "mremap moves a huge leaf to another table without its deposit.";
        HugeUnmarked = "huge-unmarked", "A huge leaf is stored in a table whose path is not marked, and fork shares the table.";
        HugeMovedUnmarked = "huge-moved-unmarked", "mremap moves a table with huge leaves, and does not mark its new path.";
        HugeShared = "huge-shared", "Fork shares a table that has huge leaves.";
        HugeOverTable = "huge-over-table", "A fault maps a huge page without a second look at the entry, which may point to a table by now.";
        PendingTakenForLive = "pending-taken-for-live", "A walk over the entries of a table counts pending empty ones, and ends before the last that is live.";
        BreakJudgesPins = "break-judges-pins", "A break takes a page with many references for one that is pinned, and copies no table.";
        ZapForAllIgnoresPending = "zap-for-all-ignores-pending", "A truncation for all sharers of a table returns before the flush of an entry that reclaim cleared.";
        FamilyKeyNotTakenAlong = "family-key-not-taken-along", "A batch depends on an entry of a shared table that another CPU cleared, without the flush that its sharers owe.";
        SharedTableTakenForOwn = "shared-table-taken-for-own", "A table that other spaces share is edited in place without the token of their family, as if it were the space's own.";
        PeakReadEarly = "peak-read-early", "The peak of the resident set misses pages that are mapped while others are unmapped.";
        MigratedFlagsLost = "migrated-flags-lost", "The copy of a page that is migrated is neither dirty nor backed by swap.";
        MigratedRefLost = "migrated-ref-lost", "The copy of a page that is migrated has a reference less than its entries, which is dropped twice in the end.";
        CodeNotPublished = "code-not-published", "A page that is executed is not made visible to instruction fetches on arm64.";
        HintNotFlushed = "hint-not-flushed", "A scan takes the rights from a leaf and does not flush it.";
        HintGivesEveryRight = "hint-gives-every-right", "A hint that is served gets all rights of its mapping, also if the page is not exclusive.";
        MigrateCopiesEarly = "migrate-copies-early", "A page is copied before the flush of its mappings, so a store in between is lost.";
        MigrateIgnoresPin = "migrate-ignores-pin", "A page that is pinned while its entries are cleared is moved, and the pin keeps the old frame.";
        MigrateIgnoresUnfound = "migrate-ignores-unfound", "A page is moved although an entry that maps it was not found.";
        MigrateStoreLost = "migrate-store-lost", "A store of the kernel between the copy of a page and the freeze does not undo the migration.";
        BreakCopiesMigration = "break-copies-migration", "A break copies a migration entry, which its migrator puts back in the old table only.";
        MigrationNotAwaited = "migration-not-awaited", "A call that holds its space for writing does not wait for pages that are moved, and fork leaves their entries out.";
        ZapDropsMigration = "zap-drops-migration", "A page that is being moved is unmapped without its migrator, and its entry is dropped.";
        TagReused = "tag-reused", "A tag is assigned to another space without a flush.";
        NoPublish = "no-publish", "Entries are flushed before page-table walkers see the change (a missing DSB ISHST).";
        PublishedLate = "published-late", "A table is unlocked before walkers see the entries that a gather cleared in it, so another CPU flushes too early.";
        NoComplete = "no-complete", "A DSB ISHST stands where a DSB ISH must complete the TLBI.";
        CompleteElsewhere = "complete-elsewhere", "A CPU treats its own DSB as the completion of a TLBI that another CPU issued.";
        UserTagForgotten = "user-tag-forgotten", "User mode has a tag of its own (page-table isolation), and only the kernel's tag is flushed.";
        HotplugUnflushed = "hotplug-unflushed", "A CPU comes online with the TLB contents that it went offline with.";
        LateAdderCleared = "late-adder-cleared", "A flush that ends clears the mark of flushes deferred while it ran.";
        EpochStillOpen = "epoch-still-open", "A flush that ends declares every deferral of an open epoch settled.";
        DeferredNotSeen = "deferred-not-seen", "An operation depends on a weakened entry without checking for deferred flushes.";
        DeferredNotSeenAtInstall = "deferred-not-seen-at-install", "A new entry replaces one that was cleared and whose flush is still deferred.";
        DeferredNotTakenAlong = "deferred-not-taken-along", "A batch depends on an entry that another CPU cleared, without that CPU's flush.";
        UpperEditUnannounced = "upper-edit-unannounced", "A call finds that another one has cleared a huge leaf, and returns before TLBs have lost it.";
        UpperEditNotAwaited = "upper-edit-not-awaited", "A call flushes a huge leaf that another one has cleared, while walkers can still read it.";
        NestedNotSeen = "nested-not-seen", "An operation returns while an entry that it depends on is cleared by another operation and not flushed.";
        WeakenedTakenUnflushed = "weakened-taken-unflushed", "A leaf that lost its rights and is not flushed yet is edited without a flush, as if no CPU could use its page.";
        BindFallsBack = "bind-falls-back", "An allocation that only some nodes may serve takes a frame of any node.";
        FaultIgnoresPolicy = "fault-ignores-policy", "A fault allocates a page by the policy of the task, whatever the policy of the mapping.";
        BatchIgnoresPolicy = "batch-ignores-policy", "A page that was cleared ahead for a mapping with one policy is mapped in one with another.";
        MergeIgnoresPolicy = "merge-ignores-policy", "Neighbouring mappings with different memory policies are merged.";
        PolicyInSharedTable = "policy-in-shared-table", "mbind changes the policy of a mapping and leaves the page tables that other spaces share.";
        CowFlushLate = "cow-flush-late", "Copy-on-write installs the new entry before the old one is flushed (no break-before-make).";
        CowNoFlush = "cow-no-flush", "Copy-on-write replaces an entry without a flush.";
        ForkFlushLate = "fork-flush-late", "Fork releases the parent's lock before the parent's writable translations are flushed.";
        FreedInGather = "freed-in-gather", "A frame is freed when its entry is cleared, before the flush.";
        MaskBeforeBump = "mask-before-bump", "The space's CPU mask is read before the generation is incremented, so a CPU that joins in between is missed.";
        JoinAfterRead = "join-after-read", "A CPU reads the generation before it joins the space's mask; the planted build adds a scheduling point in between.";
        LazyNoCatchUp = "lazy-no-catch-up", "A CPU leaves lazy mode without checking the generation.";
        LazyWhileJoining = "lazy-while-joining", "A CPU still marked lazy joins another space's mask, so senders skip it.";
        PartialClock = "partial-clock", "A flush of one space advances the CPU's clock in the ledger as a full flush would.";
        RolloverNoFlush = "rollover-no-flush", "Tags are recycled at rollover and the TLBs keep their entries.";
        ProtectFlushLate = "protect-flush-late", "mprotect releases the lock, so other CPUs can fault, before it flushes.";
        MapcountLost = "map-count-lost", "A page is unmapped and its mapcount is not decremented.";
        RssDrift = "rss-drift", "A page is unmapped and stays in the resident set.";
        RemapFlushLate = "remap-flush-late", "mremap releases the space before it flushes the old addresses (CVE-2018-18281).";
        ReusedByMapcount = "reused-by-mapcount", "A store reuses a page that no other entry maps, though a pipe has it (CVE-2020-29374).";
        PinNotExclusive = "pin-not-exclusive", "A page that other spaces share is pinned for reading.";
        FamilyForgotten = "family-forgotten", "An entry of a shared table is edited for all sharers and only one of them is flushed.";
        TakenBackByAnyone = "taken-back-by-anyone", "A space that is not the origin takes a table back with the rights of its leaves (CVE-2020-29374).";
        OriginCopied = "origin-copied", "A break makes the space with the copy of an upper table the origin of the tables below, too (CVE-2020-29374).";
        OriginLost = "origin-lost", "A break takes the origin's right to the tables that it does not copy.";
        OriginGivenToChild = "origin-given-to-child", "Fork makes the child, too, the origin of the tables that it shares (CVE-2020-29374).";
        StripKeepsOrigin = "strip-keeps-origin", "A space that is not the origin of an upper table takes it back with the origin's pointers (CVE-2020-29374).";
        StrippedUnpublished = "stripped-unpublished", "A table that is taken back without the rights of its leaves is made the space's own before walkers see them gone.";
        SharingForgotten = "sharing-forgotten", "After a fork that copies tables, those that are shared still are taken for own ones.";
        BreakNotFlushed = "break-not-flushed", "A broken table is replaced without a flush.";
        OldPointerWritable = "old-pointer-writable", "A break leaves the old pointers of an upper table writable.";
        LeaveNotFlushed = "leave-not-flushed", "A space leaves a shared table without a flush (CVE-2025-38085).";
        LastShareDropped = "last-share-dropped", "The last sharer leaves a table and does not unmap its entries.";
        EditsFoldedFirst = "edits-folded-first", "A table that is taken back is counted in its space before its pointer changes.";
        EditNotNoted = "edit-not-noted", "A resident set is not summed up again after an edit for all sharers.";
        PathChangeNotCounted = "path-change-not-counted", "A resident set is not summed up again after the space has taken a table back.";
        BreakNotCounted = "break-not-counted", "A resident set is not summed up again after a break.";
        LeaveNotCounted = "leave-not-counted", "A resident set is not summed up again after the space has left a table.";
        EndedSpaceSummed = "ended-space-summed", "The shared part of a resident set is summed up in a space that has ended.";
        FailedBreakOwned = "failed-break-owned", "A break that fails leaves the shared table to its space as if it were its own.";
        CopyReasonsSwapped = "copy-reasons-swapped", "Fork counts a table that it copies for a pinned page as one that it copies for its mapping.";
        GrownOverShared = "grown-over-shared", "brk, mremap or a stack grows a mapping below a pointer that other spaces share.";
        MappedOverShared = "mapped-over-shared", "mmap maps memory where nothing was mapped, below a pointer that other spaces share.";
        FamilyJoinedLate = "family-joined-late", "A parent joins the family of its first child after its pointers are shared, when an edit for all may find the child; the planted build adds scheduling points in between.";
        BreakWalkersNotAwaited = "break-walkers-not-awaited", "A break drops its share while a counted walk may be in the old table (CVE-2025-38085).";
        TableMadeUndeclared = "table-made-undeclared", "A read fault makes a table below a shared pointer as if the path were the space's own.";
        TableMadeForOne = "table-made-for-one", "A table that is made for all sharers counts in the space of the fault alone.";
        MadeMarkKept = "made-mark-kept", "A table that was made for all sharers is taken back and still counts as one.";
        MadeTableLeft = "made-table-left", "A space that leaves a table made for all sharers uncounts it among its own.";
        MadeTableCopied = "made-table-copied", "A break copies a table that a sharer has made since the break counted those on its way.";
        EndedSumKept = "ended-sum-kept", "A space that has ended keeps what it had summed up of edits for all sharers.";
        FilledWritable = "filled-writable", "A page that is read back from swap is mapped writable for all sharers.";
        CopiedBeforeGap = "copied-before-gap", "A break copies entries while edits for all sharers still find the old table.";
        FailedCopyKept = "failed-copy-kept", "A break that fails keeps what it has copied.";
        PinMovedUnmarked = "pin-moved-unmarked", "A pinned page moves below tables that fork may share.";
        ForkSharesPinned = "fork-shares-pinned", "Fork shares a table that maps a pinned page.";
        PinMarkLost = "pin-mark-lost", "A fork that finds a pinned page below a marked table leaves the table unmarked, so the next fork shares it.";
        FastPinUnmarked = "fast-pin-unmarked", "A lockless walk pins a page and does not mark the tables on its way.";
        PathNotRechecked = "path-not-rechecked", "A lockless walk checks its entry again and not the pointers that led to it, which fork may have shared.";
        ShareNotFlushed = "share-not-flushed", "Fork write-protects a pointer without a flush.";
        ForkIgnoresPin = "fork-ignores-pin", "Fork shares a pinned page.";
        PinKept = "pin-kept", "A page is unpinned and its pin count is not decremented.";
        FastNoRecheck = "fast-no-recheck", "A lockless walk does not check again that the entry still leads to the page that it pinned.";
        WalkersNotAwaited = "walkers-not-awaited", "A table is freed while a lockless walker may be in it: the walk enables interrupts, or the freeing CPU does not wait.";
        HoleNotSeen = "hole-not-seen", "A fault maps a page that was removed from its file after the fault looked it up.";
        WrittenBeforeSettle = "written-before-settle", "Pages are written back before the deferred flush of their mappings.";
        WriteBackNoProtect = "write-back-no-protect", "A page is written back while its mappings stay writable, so stores go unnoticed.";
        PageOutWrittenEarly = "page-out-written-early", "Pages are written to swap before the CPUs that can store to them are flushed.";
        SwapSlotKept = "swap-slot-kept", "A swap entry is removed and its slot's count is not decremented.";
        SwapOffOwnOnly = "swap-off-own-only", "swapoff looks for swap entries in tables that no other space shares, so it never ends.";
        ColdIgnoresSharers = "cold-ignores-sharers", "MADV_COLD deactivates pages that other processes map.";
        PageOutIgnoresSharers = "page-out-ignores-sharers", "MADV_PAGEOUT pages out pages that other processes map.";
        FreeIgnoresSharers = "free-ignores-sharers", "MADV_FREE lets reclaim discard a page for which neither of two processes has a dirty entry.";
        PageOutFreedEarly = "page-out-freed-early", "Pages written to swap are freed before the CPUs that can access them are flushed.";
        PageOutReferenced = "page-out-referenced", "A page of shared memory is written to swap while a CPU that unmapped it has not flushed.";
        LazyFreeNoFlush = "lazy-free-no-flush", "MADV_FREE marks a page clean without a flush, so a TLB that cached it dirty stores without setting the bit.";
        ClearShort = "clear-short", "The last cache line of a block is not cleared.";
        ClearNoFence = "clear-no-fence", "Blocks cleared by non-temporal stores are handed out without a fence.";
        ClearNoYield = "clear-no-yield", "Clearing a gigantic block never yields the CPU.";
        PopulateNoResched = "populate-no-resched", "Populating or pinning many pages never offers the CPU to other work.";
        BatchMaskBeforeBump = "batch-mask-before-bump", "A batch reads the space's CPU mask before it increments the generation; the planted build adds a scheduling point in between.";
        DebtMaskBeforeBump = "debt-mask-before-bump", "A dropped debt reads the space's CPU mask before it increments the generation; the planted build adds a scheduling point in between.";
        LatestIssuerCompletes = "latest-issuer-completes", "The barrier of the later CPU settles a batch for which two CPUs issued TLBIs.";
        LatestDeferralKept = "latest-deferral-kept", "A space whose flushes two CPUs deferred remembers the later deferral only.";
        DroppedRightsForgotten = "dropped-rights-forgotten", "A debt that is dropped leaves no mark in its space, so no later operation flushes the rights that its edit took away.";
        CountDroppedFirst = "count-dropped-first", "A dropped gather leaves the space's count of gathers before its debt is recorded, so an install in between flushes nothing; the planted build adds a scheduling point in between.";
        SampledAfterAct = "sampled-after-act", "The ledger's epoch is read after the barrier that settles every debt, so a debt that arose meanwhile counts as settled; the planted build adds a scheduling point in between.";
        OverflowUnflushed = "overflow-unflushed", "A gather or batch that is full frees what it holds before it flushes.";
        OneWalkerAwaited = "one-walker-awaited", "The freeing of a table waits for one lockless walker and not for the others.";
        SplitLevelBelow = "split-level-below", "The flush of a huge leaf that is split names the level of its parts, so a TLB keeps the leaf.";
        OldKeysForgotten = "old-keys-forgotten", "The mask of a key is overwritten in the ledger and lost, so no CPU owes the key any longer.";
        NewestKeyIsFloor = "newest-key-is-floor", "The allocator is told that every key is settled once it asks, although CPUs still owe some.";
        PendingNotMarked = "pending-not-marked", "An entry whose flush is deferred is left empty, so an install there flushes nothing.";
        PendingMarkLost = "pending-mark-lost", "A swap entry whose flush is deferred is zapped, and the empty entry no longer says so.";
        UnsettledKeyReplaced = "unsettled-key-replaced", "A table's key is replaced before it is settled, so its older pending entries no longer count.";
        GatherNotRecorded = "gather-not-recorded", "A gather beside others leaves no mark in the tables that it edits, so an install there flushes nothing.";
        TableNotMet = "table-not-met", "An operation edits a table without asking whether a flush of its entries is deferred.";
        LingerKeyKept = "linger-key-kept", "A new table begins with the time at which its frame was last freed as the key of translations that may linger.";
        KeysNotTaken = "keys-not-taken", "A table is freed or moved, and no flush settles the keys in its record.";
        ForkMeetsNoSpace = "fork-meets-no-space", "Fork shares a table whose key only the parent can settle.";
        FamilyKeyOfSpace = "family-key-of-space", "The flush of one space settles an entry that was cleared for all sharers of its table.";
        DroppedOfOneMember = "dropped-of-one-member", "A dropped debt of several spaces is recorded in only one of them.";
        RoomForOnline = "room-for-online", "The engine has no room for CPUs that come online after its set-up.";
        BatchEpochGoesOn = "batch-epoch-goes-on", "A batch that settles leaves its epoch to batches that open later.";
        OpenBatchSettled = "open-batch-settled", "A batch that settles counts what other open batches have deferred as flushed.";
        MergedSettledBySpace = "merged-settled-by-space", "A merged key counts as settled once the space of an install has been flushed.";
        SequenceMovesEarly = "sequence-moves-early", "The sequence number of a table moves when one of its two keys is settled, so entries of the other no longer count.";
        WritableLingers = "writable-lingers", "A page that moves keeps translations of an entry that allowed stores.";
        FolioLingersInPart = "folio-lingers-in-part", "Translations of a page stay in TLBs although another entry of it allowed stores.";
        LingersUnflushed = "lingers-unflushed", "Translations stay in TLBs although the flush of a right to store is not complete in their table or space.";
        ClocksBeforeGeneration = "clocks-before-generation", "Clocks settle translations that linger before the generation of their space has moved.";
        StoredWhileLingering = "stored-while-lingering", "An entry of a page that moved gets a right to store while TLBs may read the frame that it left.";
        ProtectGivesUnsettledRight = "protect-gives-unsettled-right", "mprotect gives a right to store to a page while TLBs may read the frame that it left.";
        ForcedWriteUnsettled = "forced-write-unsettled", "A forced write stores to a page while TLBs may read the frame that it left.";
        MovedFrameNotParked = "moved-frame-not-parked", "The frame that a page left is free although TLBs may read it.";
        CopyWithoutKey = "copy-without-key", "The copy of a page that moved does not remember that TLBs may read the frame that it left.";
        MovesWritableUnsettled = "moves-writable-unsettled", "A page that an entry may store to moves while TLBs may read the frame that it leaves, from before.";
        LingeringTakenForOwn = "lingering-taken-for-own", "A batch takes what lingers for flushed by its own wait, although the generation of the space has not moved.";
        EvictedKeyLost = "evicted-key-lost", "A page of a file that is read again forgets that TLBs may read the frame from which it was evicted.";
        LingeringNotMet = "lingering-not-met", "An operation that must end lingering translations does not ask for their key.";
        PublishSettles = "publish-settles", "A DSB ISHST advances the clock of its CPU, as if it completed the TLBIs before it.";
        UntaggedSampledLate = "untagged-sampled-late", "The ledger's epoch is read after a root is loaded without tags, so a debt that arose meanwhile counts as settled.";
        SeenBeforeFlush = "seen-before-flush", "A CPU says that it has flushed a space before it loads the root that flushes, so a frame is reused too early.";
        GenerationOfOtherSpace = "generation-of-other-space", "A CPU that has flushed another space up to a generation counts as having flushed this one.";
        SlotKeepsGeneration = "slot-keeps-generation", "A tag's slot goes to another space with the generation of the one before, so that CPU counts as having flushed.";
        GatherMarkCleared = "gather-mark-cleared", "The first install beside an open gather clears the table's mark, so the next one flushes nothing.";
        LingeringNotSeenAtInstall = "lingering-not-seen-at-install", "An install asks for the key of entries that must be flushed and not for that of translations that linger.";
        OtherKeyAsked = "other-key-asked", "An install asks for the other of the table's two keys than the one under which its entry is pending.";
        MovedOverPending = "moved-over-pending", "mremap moves leaves to entries that are pending, without a flush.";
        MergedKeyLost = "merged-key-lost", "A merged key becomes that of one space when an entry of the table is deferred again.";
        OwnClockAsked = "own-clock-asked", "An operation on arm64 asks its own CPU's clock whether another CPU's TLBIs are complete.";
        HugeDeferralPlaced = "huge-deferral-placed", "The deferred flush of a huge leaf is recorded in its table alone, which an operation that finds no table below does not meet.";
        UnplacedNotTakenAlong = "unplaced-not-taken-along", "A batch depends on entries of a space and ignores what was deferred there without a place.";
        ParkedMerges = "parked-merges", "A free block coalesces with one that owes another debt, or none, under the key of the one freed last.";
        OtherBatchMissed = "other-batch-missed", "An operation that needs a page, or the LRU lists, leaves the pages in the batches of other CPUs.";
        UnparkedAtOnce = "unparked-at-once", "All frames whose debts are settled become free under one hold of their zone's lock.";
        OneKeySettled = "one-key-settled", "An allocation that takes a parked frame flushes for the key of that frame alone, so that the next one flushes again.";
        ParkedForAtomic = "parked-for-atomic", "A watermark check for a caller that may not wait counts parked frames, so it takes the last settled ones.";
        LingeringNotNoted = "lingering-not-noted", "Translations linger, and stores take it that none ever did.";
        WaitsInAtomic = "waits-in-atomic", "An allocation that may not wait for other CPUs settles a parked frame.";
        DeviceLingers = "device-lingers", "A translation lingers in a space whose tables a device walks.";
        ReserveNotKept = "reserve-not-kept", "Callers that may wait take the last settled frames, and callers that may not wait find only parked ones.";
        ParkedNotSettled = "parked-not-settled", "A block whose halves are a settled and a parked one is refused, although a flush would make it whole.";
        FloorNotPassedDown = "floor-not-passed-down", "The allocator does not learn which debts are settled, so it refuses settled frames to callers that may not wait.";
        BulkDebtLost = "bulk-debt-lost", "Frames that are freed together are parked under the debt of the first.";
        SplitDebtLost = "split-debt-lost", "The parts of a split folio lose its debt.";
        LastStoresDecide = "last-stores-decide", "A batch of cleared blocks is fenced only if the last one was cleared by weakly ordered stores.";
        OrderNotKept = "order-not-kept", "A watermark check counts one frame for a request of any order.";
        ZapNotConcurrent = "zap-not-concurrent", "madvise does not announce that it clears entries, so a concurrent fault installs a page beside an entry that is not flushed.";
        WriteBackCleansLate = "write-back-cleans-late", "Writeback clears the dirty flag after it has read the page, so a store in between is forgotten.";
        PageOutCleansLate = "page-out-cleans-late", "A page-out clears the dirty flag after it has read the page, so a store in between is forgotten.";
        PageOutIgnoresPin = "page-out-ignores-pin", "A page that is pinned while reclaim unmaps it is swapped out, and fork then shares it.";
        UnevictablePagedOut = "unevictable-paged-out", "Reclaim takes the pages of a locked segment of shared memory.";
        UnevictableDemoted = "unevictable-demoted", "Reclaim demotes a page that was locked after it was selected.";
        LazyFreeReferenced = "lazy-free-referenced", "A lazily freed page that is unmapped and has another reference is counted as freed, and is on no list.";
        DirtyFileNotDemoted = "dirty-file-not-demoted", "Direct reclaim activates a dirty file page that it could demote.";
        RefaultOnOldNode = "refault-on-old-node", "The node from which a page was evicted counts its refault, not the node that has the page.";
        LostSwapInFreesSlot = "lost-swap-in-frees-slot", "A fault that swaps a page in and finds its entry changed releases the entry's slot.";
        SlotDiscardedLate = "slot-discarded-late", "A slot is discarded after it can be allocated again, when it may have its next owner's page (with a scheduling point before the discard).";
        MergeIgnoresMaxRights = "merge-ignores-max-rights", "Neighbours with different greatest rights are merged, so mprotect passes a seal.";
        MergeWithInherited = "merge-with-inherited", "A new mapping merges with one that fork made with pages of the parent, which Linux keeps apart.";
        SwapOwnerNarrow = "swap-owner-narrow", "A page that several spaces have in swap belongs to the space that swaps it in, so the reverse map misses the others.";
        FaultAroundPastEnd = "fault-around-past-end", "Fault-around maps cached pages past the end of their file.";
        FailedForkKeepsFiles = "failed-fork-keeps-files", "A fork that fails leaves the child counted among the mappers of the parent's files.";
        WalkLosesPlace = "walk-loses-place", "A walk of the reverse map does not hold its node of the fork tree, which another fork takes over, so spaces are missed.";
        ZapFlushLate = "zap-flush-late", "madvise releases the space before it flushes, so mprotect finds no entry to flush.";
        EndNotSeenAtSleep = "end-not-seen-at-sleep", "A thread begins to wait although its process ended, or another thread called execve, while it ran.";
        StopNotCounted = "stop-not-counted", "A thread that runs does not look for a signal or the end of its process.";
        SignalNotSeenAtSleep = "signal-not-seen-at-sleep", "A thread begins to wait although a signal for it arrived while it ran.";
        FileLockKept = "file-lock-kept", "A lock on a file stays when the open file that owns it is closed.";
        TimerNotRearmed = "timer-not-rearmed", "A periodic timer stops after its first signal.";
        OomScoreIgnored = "oom-score-ignored", "The process that is killed when memory runs out is chosen without oom_score_adj.";
        OomOldestChosen = "oom-oldest-chosen", "Of processes with the same badness, the oldest is killed when memory runs out.";
        CapabilitiesKept = "capabilities-kept", "A thread that gives up user 0 keeps its capabilities.";
        RobustListForgotten = "robust-list-forgotten", "A thread that ends does not release the locks on its robust list.";
        SocketCycleKept = "socket-cycle-kept", "Sockets that only messages of each other hold stay for ever.";
        EdgeReportedAgain = "edge-reported-again", "An edge-triggered epoll reports an event again without a new one.";
        DescriptorLimitIgnored = "descriptor-limit-ignored", "A process gets more descriptors than RLIMIT_NOFILE allows.";
        ThreadLimitIgnored = "thread-limit-ignored", "A user gets more threads than RLIMIT_NPROC allows.";
        SegmentLimitIgnored = "segment-limit-ignored", "A user locks more pages of segments of shared memory than RLIMIT_MEMLOCK allows.";
        StrangerMayLook = "stranger-may-look", "Every process may open the memory and the descriptors of every other one.";
        PssByOnePath = "pss-by-one-path", "A page's share of Pss is computed from the share counts on one path, as if all its entries were in tables that as many spaces share.";
        SwapPssByOnePath = "swap-pss-by-one-path", "The share of a swap entry in SwapPss is computed from the share counts on one path.";
        RefusedRecordLost = "refused-record-lost", "A mapping that does not fit into a part of /proc/PID/maps is missing in the next part too.";
        MountFlagsIgnored = "mount-flags-ignored", "Programs run from a mount with MS_NOEXEC, and those of one with MS_NOSUID give their rights.";
        NodeOfCpuIgnored = "node-of-cpu-ignored", "getcpu says that every CPU is on node 0.";
        ProgramWritten = "program-written", "A file is opened for writing and cut while a program runs it.";
        KillNotSeen = "kill-not-seen", "SIGKILL does not wake a thread whose wait no signal interrupts.";
        FatalSignalWaits = "fatal-signal-waits", "A signal that ends a process waits until the process has ended a wait that no handler interrupts.";
        InitKilled = "init-killed", "A signal whose action is to end the process ends the first process.";
        OomInitKilled = "oom-init-killed", "The first process is killed when memory runs out, although another may be.";
        EntryOfLoader = "entry-of-loader", "The auxiliary vector gives a loader the wrong entry of the program that it loads.";
        WordIndexLost = "word-index-lost", "A futex_waitv returns 0, whichever of its words is woken.";
        MessagesSentAgain = "messages-sent-again", "A sendmmsg that has slept begins with its first message again.";
        UncopiedBytesTaken = "uncopied-bytes-taken", "A read of a pipe takes out the bytes that it could not store at a bad address.";
        UnknownRequestInvalid = "unknown-request-invalid", "ioctl answers EINVAL instead of ENOTTY to a request that a file does not know.";
        StackOverflow = "stack-overflow", "The boot CPU overflows its kernel stack.";
        OtherStackOverflow = "other-stack-overflow", "A secondary CPU overflows its kernel stack.";
    }
}

/// Makes a mistake, if it is the chosen one: `plant!(NoFlush => return)`.
///
/// The second form is an expression, the wrong value if the mistake is chosen and the right one
/// otherwise: `plant!(LocalOnly; CpuMask::EMPTY, targets)`.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! plant {
    ($which:ident => $mistake:expr) => {
        if $crate::is_chosen($crate::PlantedBug::$which) {
            $mistake
        }
    };
    ($which:ident; $wrong:expr, $right:expr) => {
        if $crate::is_chosen($crate::PlantedBug::$which) { $wrong } else { $right }
    };
}

/// Expands to the right code alone: this build has no planted bugs.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! plant {
    ($which:ident => $mistake:expr) => {};
    ($which:ident; $wrong:expr, $right:expr) => {
        $right
    };
}

/// Items that only mistakes use: `planted! { fn mistake() {} }`, also in an `impl`.
///
/// The feature is that of this crate, not of the caller's.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! planted {
    ($($items:tt)*) => { $($items)* };
}

/// Expands to nothing: this build has no planted bugs.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! planted {
    ($($items:tt)*) => {};
}

#[cfg(feature = "planted")]
mod chosen {
    use super::PlantedBug;
    use core::sync::atomic::{AtomicU16, Ordering};

    const NONE: u16 = u16::MAX;

    #[cfg(not(feature = "per-thread"))]
    static CHOSEN: AtomicU16 = AtomicU16::new(NONE);

    #[cfg(feature = "per-thread")]
    std::thread_local! {
        static CHOSEN: AtomicU16 = const { AtomicU16::new(NONE) };
    }

    #[cfg(not(feature = "per-thread"))]
    fn with<T>(use_it: impl FnOnce(&AtomicU16) -> T) -> T {
        use_it(&CHOSEN)
    }

    #[cfg(feature = "per-thread")]
    fn with<T>(use_it: impl FnOnce(&AtomicU16) -> T) -> T {
        CHOSEN.with(use_it)
    }

    /// Chooses the mistake that is made from now on, or none.
    ///
    /// It is the whole program's; with `per-thread`, the calling thread's.
    pub fn choose(bug: Option<PlantedBug>) {
        with(|chosen| chosen.store(bug.map_or(NONE, |bug| bug as u16), Ordering::Relaxed));
    }

    /// Asserts that a test fails with this mistake, which the calling thread chooses for it.
    ///
    /// # Panics
    /// With the name of the mistake, if the test succeeds.
    #[cfg(feature = "per-thread")]
    pub fn assert_found_by(bug: PlantedBug, test: fn()) {
        choose(Some(bug));
        let found = std::panic::catch_unwind(test).is_err();
        choose(None);
        assert!(found, "{} is not found", bug.name());
    }

    /// Whether this mistake is chosen.
    #[inline]
    pub fn is_chosen(bug: PlantedBug) -> bool {
        with(|chosen| chosen.load(Ordering::Relaxed)) == bug as u16
    }
}

#[cfg(feature = "per-thread")]
pub use chosen::assert_found_by;
#[cfg(feature = "planted")]
pub use chosen::{choose, is_chosen};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_planted_bugs() {
        for bug in PlantedBug::ALL {
            assert_eq!(PlantedBug::named(bug.name()), Some(*bug));
        }
        assert_eq!(PlantedBug::named("no such bug"), None);
    }

    #[test]
    fn only_the_chosen_bug_is_made() {
        let made = core::cell::Cell::new(0);
        planted! {
            fn count(made: &core::cell::Cell<u32>) {
                made.set(made.get() + 1);
            }
        }
        plant!(NoFlush => count(&made));
        assert_eq!((made.get(), plant!(NoFlush; 1, 2)), (0, 2));
        #[cfg(feature = "planted")]
        {
            assert!(PlantedBug::ALL.iter().all(|bug| !is_chosen(*bug)), "no bug is chosen");
            choose(Some(PlantedBug::NoFlush));
            plant!(NoFlush => count(&made));
            plant!(LocalOnly => count(&made));
            choose(None);
            assert_eq!(made.get(), 1);
        }
    }
}
