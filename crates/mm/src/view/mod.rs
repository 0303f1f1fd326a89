//! What `/proc` shows: texts about a space or the machine, in Linux's own format, so that what
//! reads the one reads the other.
//!
//! | file | text | Linux |
//! | --- | --- | --- |
//! | `maps` | one line a mapping | `show_map_vma` |
//! | `smaps` | that line and what the mapping takes; `smaps_rollup` adds all up | `show_smap`, `show_smaps_rollup` |
//! | `status` | the `Vm…` and `Rss…` lines of `/proc/PID/status` | `task_mem` |
//! | `pagemap` | no text: a word for each page | `pte_to_pagemap_entry` |
//! | `meminfo` | what the machine has, and has promised | `meminfo_proc_show` |
//! | `swaps` | the devices that are swapped to | `swap_show` |
//! | `vmstat` | gauges, then counters | `vmstat_show` |
//!
//! All Linux functions named are those of `fs/proc/task_mmu.c`, `fs/proc/meminfo.c`, `mm/vmstat.c`
//! and `mm/swapfile.c` of 6.18. [`MemSizeStats`] is what `smaps` prints, as numbers.
//!
//! Neighbours: reads `space`, `rmap`, `counters`; nothing reads this.
//!
//! Protocol: a text of a space is written with the space held for reading, and no table locked. The
//! writer may not enter the memory manager.
//!
//! Not guaranteed: lines for what this memory manager does not have. A field that counts pages of
//! some kind is 0 where there are none of that kind (KSM, huge pages); one that describes hardware
//! or a policy (`ProtectionKey`, `HugetlbPages`) is left out. Nor that figures of several pages are
//! of one moment: faults go on meanwhile.

mod maps;
mod mem_size_stats;
mod meminfo;
mod pagemap;
mod smaps;
mod status;
mod swaps;
mod vmstat;

pub use mem_size_stats::{MemSizeStats, Pss};
pub use pagemap::{PagemapEntry, PagemapFlags};
