//! Gauges of the whole machine, and the resident set of each space.
//!
//! Gauges rise and fall. Values that only rise are [`Counter`](pagewright_types::Counter)s, which
//! are declared in `types` because the frame allocator counts too.

mod rss;

pub use rss::{Rss, RssKind};

use core::sync::atomic::{AtomicU64, Ordering};

pagewright_types::named_table! {
    /// A number of pages that rises and falls, with Linux's name in `/proc/vmstat`.
    pub enum Gauge {
        FreePages = "nr_free_pages", "Pages that the allocator can hand out.";
        InactiveAnon = "nr_inactive_anon", "Pages of anonymous and shared memory on the inactive list.";
        ActiveAnon = "nr_active_anon", "Pages of anonymous and shared memory on the active list.";
        InactiveFile = "nr_inactive_file", "Pages of files on the inactive list, and anonymous pages after MADV_FREE.";
        ActiveFile = "nr_active_file", "Pages of files on the active list.";
        Unevictable = "nr_unevictable", "Pages of locked mappings.";
        AnonPages = "nr_anon_pages", "Anonymous pages that are mapped.";
        Mapped = "nr_mapped", "Pages of files and shared memory that are mapped.";
        FilePages = "nr_file_pages", "Pages in the caches of files and shared memory.";
        Shmem = "nr_shmem", "Pages in the caches of shared memory.";
        SwapCached = "nr_swapcached", "Pages in the swap cache.";
        PageTablePages = "nr_page_table_pages", "Pages that are page tables, including roots.";
    }
}

/// The gauges of one machine that are not computed from other state.
pub(crate) struct Gauges([AtomicU64; Gauge::ALL.len()]);

impl Gauges {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Gauge::ALL.len()])
    }

    pub(crate) fn get(&self, gauge: Gauge) -> u64 {
        self.0[gauge as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, gauge: Gauge, pages: u64) {
        // Most edits change no gauge and need not write the cache line that all CPUs share.
        if pages == 0 {
            return;
        }
        self.0[gauge as usize].fetch_add(pages, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, gauge: Gauge, pages: u64) {
        if pages == 0 {
            return;
        }
        let before = self.0[gauge as usize].fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "INV-MM-GAUGE: {} fell below zero", gauge.name());
    }
}
