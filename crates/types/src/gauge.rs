//! The gauges: numbers of pages that rise and fall, under Linux's names.
//!
//! Values that only rise are [`Counter`](crate::Counter)s.
//!
//! Neighbours: `sync` stores gauges, per CPU; `mm` computes those that other state already has.
//!
//! Not guaranteed: that every gauge is stored.

crate::named_table! {
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
        PageTablePages = "nr_page_table_pages", "Pages that are page tables, including roots and those deposited for huge leaves.";
        AnonThps = "nr_anon_transparent_hugepages", "Pages of anonymous folios that an entry maps whole; `/proc/vmstat` counts folios of 2 MiB.";
    }
}
