//! The memory files of `/proc`: texts about a space or the machine, in Linux's format.
//!
//! A program that reads Linux's files can read these.
//!
//! | file | text | Linux |
//! | --- | --- | --- |
//! | `maps` | a line for each mapping | `show_map_vma` |
//! | `smaps` | that line and the memory of the mapping; `smaps_rollup` has the sums | `show_smap`, `show_smaps_rollup` |
//! | `status` | the `Vm…` and `Rss…` lines of `/proc/PID/status` | `task_mem` |
//! | `pagemap` | a word for each page, in binary form | `pte_to_pagemap_entry` |
//! | `kpagecount`, `kpageflags` | a word for each frame of the machine | `stable_page_flags` |
//! | `meminfo` | the memory of the machine | `meminfo_proc_show` |
//! | `meminfo`, `vmstat`, `numastat` of a node | the same for a node | `node_read_meminfo` and others |
//! | `page_tables` | what the page tables of each space take | none |
//! | `swaps` | the swap devices | `swap_show` |
//! | `vmstat` | gauges, then counters | `vmstat_show` |
//!
//! The Linux functions are in `fs/proc/task_mmu.c`, `fs/proc/meminfo.c`, `drivers/base/node.c`,
//! `mm/vmstat.c` and `mm/swapfile.c` of 6.18. [`MemSizeStats`] has the numbers of `smaps`.
//!
//! Neighbours: reads `space`, `rmap`, `counters`; `snapshot` reads the proportional set sizes.
//!
//! `maps` and `smaps` can also be written from an address on, as they are read ([`RecordWriter`]).
//!
//! Protocol: the caller holds no lock. While a line of `maps` is written, the `map` lock of its
//! space is held for reading and no table is locked. The writer must not call the memory manager.
//!
//! Not guaranteed: every line of Linux. A field that counts pages of a kind that does not exist
//! here (KSM, huge pages of files) is 0; a field about hardware or a policy (`ProtectionKey`,
//! `HugetlbPages`) is absent. Figures of several pages are not of one moment, because faults
//! continue and `smaps` releases the lock between mappings and to count a page's mappings.

mod kpage;
mod mappings;
mod maps;
mod mem_size_stats;
mod meminfo;
mod node;
mod page_tables;
mod pagemap;
mod records;
mod smaps;
mod status;
mod swaps;
mod vmstat;

pub use kpage::KpageFlags;
pub use mem_size_stats::{MemSizeStats, Pss};
pub use page_tables::TableBytes;
pub use pagemap::{PagemapEntry, PagemapFlags};
pub use records::RecordWriter;
