//! What each mechanism is, in words.
//!
//! Key type: [`Mechanism`], a row of the tour. Figures have no place here: each run obtains its own
//! (`evaluate::HEADLINES`).

use super::judgement::{self, Judgement};
use crate::command::evaluate::EvaluateError;
use std::ops::RangeInclusive;

/// A mechanism.
pub(super) struct Mechanism {
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
    /// Whether its figures need the computer for themselves.
    pub(super) alone: bool,
    /// Has the oracle judge it.
    pub(super) judge: fn() -> Result<Judgement, EvaluateError>,
}

pub(super) const MECHANISMS: [Mechanism; 5] = [
    Mechanism {
        name: "Deferred flushes of pages that move",
        setting: "tlb_linger=migration",
        is: "a moved page's read-only TLB entries stay until a store or frame reuse",
        suits: "memory that many CPUs read while it moves between memory tiers",
        unsuited: "memory that is written often: entries that allow stores are flushed",
        evaluation: "migrc",
        alone: false,
        judge: judgement::lingering,
    },
    Mechanism {
        name: "Huge pages cleared past the cache",
        setting: "clear_uncached=auto",
        is: "cold huge pages are cleared by non-temporal stores, one fence a batch",
        suits: "large memory that is not read at once: a VM's, a pool's, a device's",
        unsuited: "pages of 4 KiB, and memory that is in the cache or read at once",
        evaluation: "clear",
        alone: true,
        judge: judgement::clears,
    },
    Mechanism {
        name: "Huge pages mapped whole and in pieces",
        setting: "transparent_hugepage.enabled=always",
        is: "one folio of 2 MiB is mapped whole in one process, by page in another",
        suits: "memory that is touched densely: one fault for 512 pages",
        unsuited: "sparse memory, allocated whole; memory that reclaim must split first",
        evaluation: "thp",
        alone: true,
        judge: judgement::huge,
    },
    Mechanism {
        name: "Copy-on-write page tables",
        setting: "cow_page_tables=auto",
        is: "fork shares page tables; a table is copied when an entry in it changes",
        suits: "a large parent that forks: snapshots, fork servers, clones of VMs",
        unsuited: "parents below 1.25 MiB (auto copies); children that store everywhere",
        evaluation: "cow-table",
        alone: false,
        judge: judgement::families,
    },
    Mechanism {
        name: "Batched TLB shootdown in reclaim, on arm64",
        setting: "tlb_batch=auto",
        is: "reclaim unmaps up to 32 pages and waits once for the TLBs of all CPUs",
        suits: "memory pressure on several CPUs: page-outs, writeback",
        unsuited: "one CPU, where no flush waits for another; nothing is deferred there",
        evaluation: "batch",
        alone: false,
        judge: judgement::batches,
    },
];

/// How many lines the details of a mechanism may have.
pub(super) const DETAIL_LINES: RangeInclusive<usize> = 3..=10;
