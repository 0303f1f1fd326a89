//! Planted bugs: mistakes that real kernels made, kept in the real code and switched off.
//!
//! A rule of the oracle that no broken program can fail proves nothing. So each promise has a
//! mistake that breaks it, in the place where it would be made, behind [`plant!`](crate::plant!).
//! Without the feature `planted` the macro expands to nothing and the code is what it would be
//! without it; with it, `choose` picks one mistake at run time, for the whole process.
//!
//! Not guaranteed: that two mistakes at once mean anything; one is chosen at a time.

crate::named_table! {
    /// A mistake that can be planted.
    pub enum Plant {
        NoFlush = "no-flush", "Entries are cleared and nobody's TLB is told.";
        LocalOnly = "local-only", "Only the CPU that clears an entry flushes it.";
        FlushBeforeClear = "flush-before-clear", "The flush comes before the entry is cleared, so a walk in between brings it back.";
        TableAsLeaf = "table-as-leaf", "A table is freed after a flush that leaves the walk caches alone.";
        AnsweredEarly = "answered-early", "A CPU answers who has asked it to flush before it has.";
        LazySkipped = "lazy-skipped", "A lazy CPU is not told that tables are freed.";
        ProtectNoFlush = "protect-no-flush", "Rights are lowered in the entry and stay in the TLBs.";
        TagReused = "tag-reused", "A tag goes to another space without a flush.";
        NoPublish = "no-publish", "Entries are flushed before walkers can see that they changed (a missing DSB ISHST).";
        PublishedLate = "published-late", "A table is let go before walkers can see what was cleared there among others, who would flush it.";
        NoComplete = "no-complete", "A DSB ISHST stands where a DSB ISH must complete the TLBI.";
        CompleteElsewhere = "complete-elsewhere", "A CPU takes its own DSB for the end of a TLBI that another CPU has issued.";
        UserTagForgotten = "user-tag-forgotten", "Where user mode has a tag of its own, only the kernel's is flushed.";
        HotplugUnflushed = "hotplug-unflushed", "A CPU comes back online with what its TLB held when it went.";
        LateAdderCleared = "late-adder-cleared", "A flush that ends clears the mark of what was put off while it ran.";
        EpochStillOpen = "epoch-still-open", "A flush that ends says that all is paid that was put off in an epoch which is not over.";
        DeferredNotSeen = "deferred-not-seen", "Who relies on an entry that he found weakened does not ask whether its flush was put off.";
        DeferredNotSeenAtInstall = "deferred-not-seen-at-install", "An entry is put where another was cleared whose flush was put off.";
        DeferredNotTakenAlong = "deferred-not-taken-along", "A batch relies on an entry that somebody else has cleared and not flushed.";
        CowFlushLate = "cow-flush-late", "Copy-on-write makes the new entry before the old one is flushed (no break before make).";
        CowNoFlush = "cow-no-flush", "Copy-on-write replaces an entry and flushes nothing.";
        ForkFlushLate = "fork-flush-late", "Fork lets the parent go before its writable translations are flushed.";
        FreedInGather = "freed-in-gather", "A frame is freed when its entry is cleared, and not after the flush.";
        MaskBeforeBump = "mask-before-bump", "The CPUs to tell are read before the generation moves, so one that joins in between is missed.";
        JoinAfterRead = "join-after-read", "A CPU reads the generation before it joins the space's mask.";
        LazyNoCatchUp = "lazy-no-catch-up", "A CPU leaves lazy mode without looking at the generation.";
        LazyWhileJoining = "lazy-while-joining", "A lazy CPU joins another space's mask while senders still leave it out as lazy.";
        PartialClock = "partial-clock", "A flush of one space counts as a full one in the ledger.";
        RolloverNoFlush = "rollover-no-flush", "Tags are taken back and the TLBs keep what was under them.";
        ProtectFlushLate = "protect-flush-late", "mprotect lets other CPUs fault before it has flushed.";
        MapcountLost = "map-count-lost", "A page is unmapped and its count of mappings stays.";
        RssDrift = "rss-drift", "A page is unmapped and stays in the resident set.";
        RemapFlushLate = "remap-flush-late", "mremap lets go of the space before it has flushed the old place (CVE-2018-18281).";
        PinNotExclusive = "pin-not-exclusive", "A page is pinned for reading while other spaces share it.";
        ForkIgnoresPin = "fork-ignores-pin", "Fork shares a page that is pinned.";
        PinKept = "pin-kept", "A page is given back and its pin stays.";
        FastNoRecheck = "fast-no-recheck", "A lockless walk does not look again whether the entry still leads to the page it took.";
        WalkersNotAwaited = "walkers-not-awaited", "A table is freed while a lockless walk may be in it: nobody waits, or the walk lets interrupts in.";
        HoleNotSeen = "hole-not-seen", "A fault maps a page that was taken out of its file while it was looked for.";
        WrittenBeforeSettle = "written-before-settle", "Pages are written back before the flush of their mappings, which was put off, is paid.";
        WriteBackNoProtect = "write-back-no-protect", "A page is written back while programs can still store to it unnoticed.";
        PageOutWrittenEarly = "page-out-written-early", "Pages are written to swap before the CPUs that could store to them were told.";
        SwapSlotKept = "swap-slot-kept", "An entry of a page in swap is dropped, and the slot still counts it.";
        PageOutFreedEarly = "page-out-freed-early", "Pages that went to swap are freed before the CPUs that could use them were told.";
        PageOutAlone = "page-out-alone", "A page of shared memory goes to swap while somebody who unmapped it has not flushed.";
        LazyFreeNoFlush = "lazy-free-no-flush", "MADV_FREE calls a page clean and leaves TLBs that need not mark it dirty again.";
        ClearShort = "clear-short", "The last line of a block is not cleared.";
        ClearNoFence = "clear-no-fence", "Blocks that were cleared past the cache are handed out without a fence.";
        ClearNoYield = "clear-no-yield", "Who clears a gigantic block never lets anybody else run.";
        ZapFlushLate = "zap-flush-late", "madvise lets go of the space before it has flushed, and mprotect finds nothing to flush.";
    }
}

impl Plant {
    /// The mistake with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|plant| plant.name() == name)
    }
}

/// Does what a planted bug does, if it is chosen: `plant!(NoFlush => return)`.
///
/// As an expression, gives the wrong value if it is chosen and the right one otherwise:
/// `plant!(LocalOnly; CpuMask::EMPTY, targets)`.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! plant {
    ($which:ident => $mistake:expr) => {
        if $crate::plant::is_chosen($crate::plant::Plant::$which) {
            $mistake
        }
    };
    ($which:ident; $wrong:expr, $right:expr) => {
        if $crate::plant::is_chosen($crate::plant::Plant::$which) { $wrong } else { $right }
    };
}

/// Nothing: this build has no planted bugs.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! plant {
    ($which:ident => $mistake:expr) => {};
    ($which:ident; $wrong:expr, $right:expr) => {
        $right
    };
}

#[cfg(feature = "planted")]
mod chosen {
    use super::Plant;
    use core::sync::atomic::{AtomicU8, Ordering};

    const NONE: u8 = u8::MAX;
    static CHOSEN: AtomicU8 = AtomicU8::new(NONE);

    /// Chooses the mistake that this process makes from now on, or none.
    pub fn choose(plant: Option<Plant>) {
        CHOSEN.store(plant.map_or(NONE, |plant| plant as u8), Ordering::Relaxed);
    }

    /// Whether this mistake is chosen.
    #[inline]
    pub fn is_chosen(plant: Plant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == plant as u8
    }
}

#[cfg(feature = "planted")]
pub use chosen::{choose, is_chosen};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_found_by_its_name() {
        for plant in Plant::ALL {
            assert_eq!(Plant::named(plant.name()), Some(*plant));
        }
        assert_eq!(Plant::named("no mistake"), None);
    }

    #[test]
    fn nothing_is_planted_unless_it_is_chosen() {
        let made = core::cell::Cell::new(0);
        crate::plant!(NoFlush => made.set(made.get() + 1));
        assert_eq!((made.get(), crate::plant!(NoFlush; 1, 2)), (0, 2));
        #[cfg(feature = "planted")]
        {
            choose(Some(Plant::NoFlush));
            crate::plant!(NoFlush => made.set(made.get() + 1));
            crate::plant!(LocalOnly => made.set(made.get() + 1));
            choose(None);
            assert_eq!(made.get(), 1);
        }
    }
}
