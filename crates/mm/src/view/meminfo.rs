//! `/proc/meminfo`: the memory of the machine.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{LruList, PAGE_SIZE};

impl<P: Platform> Mm<P> {
    /// Writes the lines of `/proc/meminfo` that the memory manager counts, in Linux's order.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_meminfo(&self, out: &mut dyn Write) -> fmt::Result {
        let (swap_total, swap_free) = self.swap_slots();
        let before = [
            ("MemTotal:", self.frames().managed()),
            ("MemFree:", self.gauge(Gauge::FreePages)),
            ("Cached:", self.gauge(Gauge::FilePages)),
            ("SwapCached:", self.gauge(Gauge::SwapCached)),
        ];
        let after = [
            ("SwapTotal:", swap_total),
            ("SwapFree:", swap_free),
            ("AnonPages:", self.gauge(Gauge::AnonPages)),
            ("Mapped:", self.gauge(Gauge::Mapped)),
            ("Shmem:", self.gauge(Gauge::Shmem)),
            ("PageTables:", self.gauge(Gauge::PageTablePages)),
            ("CommitLimit:", self.commit_limit()),
            ("Committed_AS:", self.committed()),
            ("AnonHugePages:", self.gauge(Gauge::AnonThps)),
        ];
        let mut lines = before.into_iter().chain(lru_lines(|list| self.listed(list))).chain(after);
        lines.try_for_each(|(name, pages)| writeln!(out, "{name:<16}{:>8} kB", pages * PAGE_SIZE / 1024))
    }
}

/// The lines about pages on the LRU lists, of the machine or of a node, in Linux's order.
pub(super) fn lru_lines(listed: impl Fn(LruList) -> u64) -> [(&'static str, u64); 8] {
    let [inactive_anon, active_anon, inactive_file, active_file, unevictable] =
        [LruList::InactiveAnon, LruList::ActiveAnon, LruList::InactiveFile, LruList::ActiveFile, LruList::Unevictable]
            .map(listed);
    [
        ("Active:", active_anon + active_file),
        ("Inactive:", inactive_anon + inactive_file),
        ("Active(anon):", active_anon),
        ("Inactive(anon):", inactive_anon),
        ("Active(file):", active_file),
        ("Inactive(file):", inactive_file),
        ("Unevictable:", unevictable),
        // Locked mappings are the only reason for a page to be unevictable.
        ("Mlocked:", unevictable),
    ]
}
