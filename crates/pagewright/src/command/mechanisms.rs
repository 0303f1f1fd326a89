//! What each mechanism is, in words, for the tour and for the page of the evaluations.
//!
//! Key type: [`MechanismWords`]. Figures have no place here: each run obtains its own.

/// A mechanism in words.
pub(super) struct MechanismWords {
    pub(super) name: &'static str,
    /// The setting with the value that is shown.
    pub(super) setting: &'static str,
    /// What it is, in one sentence.
    pub(super) is: &'static str,
    /// The work that gains from it.
    pub(super) suits: &'static str,
    /// The work that gains nothing or loses.
    pub(super) unsuited: &'static str,
    /// The evaluation that has its figures.
    pub(super) evaluation: &'static str,
}

pub(super) const MECHANISMS: [MechanismWords; 5] = [
    MechanismWords {
        name: "Deferred flushes of pages that move",
        setting: "tlb_linger=migration",
        is: "a moved page's read-only TLB entries stay until a store or frame reuse",
        suits: "memory that many CPUs read while it moves between memory tiers",
        unsuited: "memory that is written often: entries that allow stores are flushed",
        evaluation: "migrc",
    },
    MechanismWords {
        name: "Huge pages cleared past the cache",
        setting: "clear_uncached=auto",
        is: "cold huge pages are cleared by non-temporal stores, one fence a batch",
        suits: "large memory that is not read at once: a VM's, a pool's, a device's",
        unsuited: "pages of 4 KiB, and memory that is in the cache or read at once",
        evaluation: "clear",
    },
    MechanismWords {
        name: "Huge pages mapped whole and in pieces",
        setting: "transparent_hugepage.enabled=always",
        is: "one folio of 2 MiB is mapped whole in one process, by page in another",
        suits: "memory that is touched densely: one fault for 512 pages",
        unsuited: "sparse memory, allocated whole; memory that reclaim must split first",
        evaluation: "thp",
    },
    MechanismWords {
        name: "Copy-on-write page tables",
        setting: "cow_page_tables=auto",
        is: "fork shares page tables; a table is copied when an entry in it changes",
        suits: "a large parent that forks: snapshots, fork servers, clones of VMs",
        unsuited: "parents below 1.25 MiB (auto copies); children that store everywhere",
        evaluation: "cow-table",
    },
    MechanismWords {
        name: "Batched TLB shootdown in reclaim, on arm64",
        setting: "tlb_batch=auto",
        is: "reclaim unmaps up to 32 pages and waits once for the TLBs of all CPUs",
        suits: "memory pressure on several CPUs: page-outs, writeback",
        unsuited: "one CPU, where no flush waits for another; nothing is deferred there",
        evaluation: "batch",
    },
];
