//! NUMA balancing: which CPUs use which pages, and moving pages to the nodes that use them.
//!
//! Linux's `task_numa_work`, `do_numa_page` and `mpol_misplaced`; `kernel.numa_balancing`.
//!
//! | file | what it does |
//! | --- | --- |
//! | `scan` | takes the rights from leaves of a part of a space, so that accesses fault (`change_prot_numa`) |
//! | `period` | how long until the next part, by what the faults found (`update_task_scan_period`) |
//! | `placement` | whether the page of a hint fault moves (`should_numa_migrate_memory`) |
//!
//! ```text
//!   the embedder's tick ─▶ numa_tick: is it time? ─▶ scan: leaves become hints ─▶ one flush
//!   access ─▶ fault ─▶ placement: does the page move?
//!                        no    the leaf gets the rights of its mapping
//!                        yes   isolate the page; unlock the table; move it; start over, and do not ask again
//! ```
//!
//! A *hint* is a leaf without rights in a mapping that has some. A mapping without rights, by
//! `mprotect`, has no hints: the mapping tells them apart. Every change of rights by `mprotect`
//! gives all leaves those of the mapping, so it ends hints.
//!
//! **INV-NUMA-HINT** A leaf without rights in a mapping that has some is a hint. When it is served
//! it gets the rights that `mprotect` would give it: the right to store only if no store must fault
//! first. In a table that spaces share, making and serving it is one edit for all. A private leaf
//! gets no right to store there.
//!
//! **INV-NUMA-FLUSHED** An operation that clears or changes a hint whose scan is not flushed yet
//! flushes it.
//!
//! Other CPUs may still use the leaf until then. The record of its table says so
//! (INV-TABLE-WEAKENED).
//!
//! Time is the embedder's: it calls [`Mm::numa_tick`](crate::Mm::numa_tick). Without a call nothing
//! is scanned.
//!
//! Neighbours: `fault/hint.rs` serves a hint; `migrate` moves the page; `tier` says how hot a page
//! of a lower tier must be to be promoted.
//!
//! Differences from Linux:
//!
//! - The period belongs to the space, not to each of its threads, and counts time, not the time of
//!   a CPU. A scan that takes long does not delay the next one (`node_stamp`).
//! - The last user of a page is a CPU, not a CPU and a process.
//! - Threads are not moved to their memory, and so there are no groups of them.
//! - A mapping has no state of its own (`vma_numab_state`): a new one is scanned without a delay.
//! - Shared memory is scanned like other memory. In Linux only a policy of its own makes it so.
//! - A space that one CPU runs at the time of the scan has one thread (Linux: `mm_users` is 1).
//! - A page that moves stays a hint in the tables where it was one (Linux: `remove_migration_pte`).
//! - `numa_balancing` 3, both modes at once, is refused.
//! - Leaves above the last level are left out.
//!
//! Not guaranteed: that an access is seen. A page may be used many times between two scans.

mod period;
mod placement;
mod scan;

pub(crate) use period::NumaScan;
pub(crate) use placement::HintedPage;

use crate::mm::Mm;
use crate::settings::MmSetting;
use pagewright_sync::Platform;
use pagewright_sync::atomic::Ordering;
use pagewright_tlb::frames::{Folio, LastUse};

/// The bits of `kernel.numa_balancing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BalancingMode {
    /// Pages move to the nodes whose CPUs use them (`NUMA_BALANCING_NORMAL`).
    Normal,
    /// Hot pages of lower tiers move to the top tier (`NUMA_BALANCING_MEMORY_TIERING`).
    Tiering,
}

impl<P: Platform> Mm<P> {
    /// What hint faults are for; `None` if nothing is scanned.
    pub(crate) fn balancing_mode(&self) -> Option<BalancingMode> {
        match self.settings.get(MmSetting::NumaBalancing) {
            0 => None,
            1 => Some(BalancingMode::Normal),
            _ => Some(BalancingMode::Tiering),
        }
    }

    /// Whether a folio's last use is noted as a time, and not as a CPU (`folio_use_access_time`).
    pub(crate) fn notes_time(&self, folio: Folio<'_>) -> bool {
        self.promotes() && !self.frames().is_top_tier(self.node_of(folio))
    }

    /// The embedder's time, in ms.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed)
    }

    /// The present time as a note about a folio's last use.
    pub(crate) fn time_note(&self) -> LastUse {
        LastUse::new(self.now_ms())
    }

    /// Passes the note about a page's last use on to its copy (`folio_migrate_flags`).
    ///
    /// A note of a page that changes its tier may mean something else there.
    pub(crate) fn move_last_use(&self, from: Folio<'_>, to: Folio<'_>) {
        let [before, after] = [from, to].map(|folio| self.frames().is_top_tier(self.node_of(folio)));
        let note = from.exchange_last_use(None);
        if before == after || !self.promotes() {
            to.exchange_last_use(note);
        }
    }
}
