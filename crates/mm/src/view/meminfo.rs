//! `/proc/meminfo`: the memory of the machine.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

impl<P: Platform> Mm<P> {
    /// Writes the lines of `/proc/meminfo` that the memory manager counts, in Linux's order.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_meminfo(&self, out: &mut dyn Write) -> fmt::Result {
        let [inactive_anon, active_anon, inactive_file, active_file] =
            [Gauge::InactiveAnon, Gauge::ActiveAnon, Gauge::InactiveFile, Gauge::ActiveFile]
                .map(|gauge| self.gauge(gauge));
        let (swap_total, swap_free) = self.swap_slots();
        let lines = [
            ("MemTotal:", self.frames().managed()),
            ("MemFree:", self.gauge(Gauge::FreePages)),
            ("Cached:", self.gauge(Gauge::FilePages)),
            ("SwapCached:", self.gauge(Gauge::SwapCached)),
            ("Active:", active_anon + active_file),
            ("Inactive:", inactive_anon + inactive_file),
            ("Active(anon):", active_anon),
            ("Inactive(anon):", inactive_anon),
            ("Active(file):", active_file),
            ("Inactive(file):", inactive_file),
            ("Unevictable:", self.gauge(Gauge::Unevictable)),
            // Locked mappings are the only reason for a page to be unevictable.
            ("Mlocked:", self.gauge(Gauge::Unevictable)),
            ("SwapTotal:", swap_total),
            ("SwapFree:", swap_free),
            ("AnonPages:", self.gauge(Gauge::AnonPages)),
            ("Mapped:", self.gauge(Gauge::Mapped)),
            ("Shmem:", self.gauge(Gauge::Shmem)),
            ("PageTables:", self.gauge(Gauge::PageTablePages)),
            ("CommitLimit:", self.commit_limit()),
            ("Committed_AS:", self.committed()),
        ];
        lines.iter().try_for_each(|(name, pages)| writeln!(out, "{name:<16}{:>8} kB", pages * PAGE_SIZE / 1024))
    }
}
