//! Levels: gauges of the whole machine and the resident set of one space.
//!
//! What only ever rises is a [`Counter`](pagewright_types::Counter), declared in `types` because
//! the allocator counts too; what goes up and down stands here.

mod rss;

pub use rss::{Rss, RssKind};

use core::sync::atomic::{AtomicU64, Ordering};

pagewright_types::named_table! {
    /// Something that there is more or less of, in pages.
    pub enum Gauge {
        FreePages = "nr_free_pages", "Pages that the allocator could hand out.";
        InactiveAnon = "nr_inactive_anon", "Pages of anonymous and shared memory that were not used lately.";
        ActiveAnon = "nr_active_anon", "Pages of anonymous and shared memory in use.";
        InactiveFile = "nr_inactive_file", "Pages of files that were not used lately, and anonymous ones whose contents may go.";
        ActiveFile = "nr_active_file", "Pages of files in use.";
        Unevictable = "nr_unevictable", "Pages that some mapping has locked.";
        AnonPages = "nr_anon_pages", "Anonymous pages that some space maps.";
        Mapped = "nr_mapped", "Pages of files and shared memory that some space maps.";
        FilePages = "nr_file_pages", "Pages in the caches of files and shared memory.";
        Shmem = "nr_shmem", "Pages in the caches of shared memory alone.";
        SwapCached = "nr_swapcached", "Pages in memory whose contents have a slot in swap.";
        PageTablePages = "nr_page_table_pages", "Pages that are page tables, roots included.";
    }
}

/// The gauges of one machine.
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
        // Most edits make no table and map no page first: spare the line that all CPUs share.
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
