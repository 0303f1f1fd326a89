//! The events that the machine counts, in one table; `types` has that of the memory manager.
//!
//! Names are perf's where perf counts the same event; other names start with `pw_`. As in Linux's
//! event maps, a `…-misses` event counts different things on the two instruction sets: walks on
//! x86-64 (Intel's `…MISS_CAUSES_A_WALK` and `…WALK_COMPLETED`, AMD's L2 TLB misses), refills of
//! the first level on arm64 (`L1D_TLB_REFILL`, `L1I_TLB_REFILL`).

use std::cell::Cell;

pagewright_types::named_table! {
    /// An event that a CPU of the machine counts.
    pub enum MachineEvent {
        DtlbLoads = "dTLB-loads", "Loads that were translated.";
        DtlbLoadMisses = "dTLB-load-misses", "Loads that missed the TLB: walks on x86-64, first-level refills on arm64.";
        DtlbStores = "dTLB-stores", "Stores that were translated.";
        DtlbStoreMisses = "dTLB-store-misses", "Stores that missed the TLB: walks on x86-64, first-level refills on arm64.";
        ItlbLoads = "iTLB-loads", "Instruction fetches that were translated.";
        ItlbLoadMisses = "iTLB-load-misses", "Instruction fetches that missed the TLB: walks on x86-64, first-level refills on arm64.";
        NodeLoads = "node-loads", "Loads by the programs of a machine with several nodes; as no cache is modelled, each reaches memory.";
        NodeLoadMisses = "node-load-misses", "Those of memory on another node than the CPU.";
        NodeStores = "node-stores", "Stores by the programs of a machine with several nodes; as no cache is modelled, each reaches memory.";
        NodeStoreMisses = "node-store-misses", "Those to memory on another node than the CPU.";
        L2TlbHits = "pw_l2_tlb_hits", "First-level misses that the second-level TLB answered.";
        PageWalks = "pw_page_walks", "Page walks, for a TLB miss or to set a dirty bit.";
        WalkReads = "pw_walk_reads", "Page-table entries that page walks read.";
        WalkTime = "pw_walk_ps", "Modelled picoseconds of page walks.";
        DirtyWalks = "pw_dirty_walks", "Page walks for a store whose translation was cached as not dirty.";
        FaultsRaised = "pw_faults_raised", "Page faults that the MMU raised.";
        IpisSent = "pw_ipis_sent", "IPIs sent, one for each target.";
        IpisReceived = "pw_ipis_received", "IPIs received.";
        PageFlushes = "pw_page_flushes", "Flushes of one page by this CPU's own instruction (INVLPG, INVPCID type 0, TLBI VA without IS).";
        FullFlushes = "pw_full_flushes", "Flushes of a whole tag or the whole TLB by this CPU's own instruction (INVPCID, MOV CR3, TLBI ASIDE1 and VMALLE1).";
        DtlbFlushes = "tlb_flush.dtlb_thread", "Flush attempts that reached this CPU's first-level data TLB, of any kind and origin.";
        StlbFlushes = "tlb_flush.stlb_any", "Flush attempts that reached this CPU's second-level TLB, of any kind and origin.";
        ItlbFlushes = "itlb.itlb_flush", "Flush attempts that reached this CPU's first-level instruction TLB, of any kind and origin.";
        EntryStores = "pw_entry_stores", "Page-table entries that the memory manager stored or exchanged.";
        EntriesLost = "pw_tlb_entries_lost", "TLB entries that flushes dropped; a page cached at both levels counts twice.";
        FlushWaits = "pw_flush_waits", "Waits for the flushes of other CPUs: for the acknowledgements of IPIs (x86-64), at a DSB after TLBIs (arm64).";
        FlushWaitTime = "pw_flush_wait_ps", "Modelled picoseconds of these waits, sending the IPIs included.";
        TlbisIssued = "pw_tlbis", "TLBI instructions issued (arm64).";
        Dsbs = "pw_dsbs", "DSB instructions that order page-table stores or complete TLBIs (arm64).";
        ReschedOffers = "pw_resched_offers", "Offers of the CPU to other work within an operation on many pages (cond_resched).";
    }
}

/// The counts of one CPU.
pub(crate) struct Events([Cell<u64>; MachineEvent::COUNT]);

impl Events {
    pub(crate) fn new() -> Self {
        Self([const { Cell::new(0) }; MachineEvent::COUNT])
    }

    #[inline]
    pub(crate) fn add(&self, event: MachineEvent, n: u64) {
        let cell = &self.0[event as usize];
        cell.set(cell.get() + n);
    }

    pub(crate) fn get(&self, event: MachineEvent) -> u64 {
        self.0[event as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_events_is_that_of_the_table() {
        let page = include_str!("../events.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |event: &MachineEvent| format!("| `{}` | {} |", event.name(), event.meaning());
        assert_eq!(rows, MachineEvent::ALL.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_unique_and_follow_the_convention() {
        for (i, a) in MachineEvent::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
            assert!(a.meaning().ends_with('.'), "{a:?}");
            for b in &MachineEvent::ALL[..i] {
                assert_ne!(a.name(), b.name());
            }
        }
    }
}
