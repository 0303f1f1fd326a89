//! `/proc/meminfo`, as far as it is about what is counted here.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

impl<P: Platform> Mm<P> {
    /// Writes the lines of `/proc/meminfo` that stand for something here, in Linux's order.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_meminfo(&self, out: &mut dyn Write) -> fmt::Result {
        let lines = [
            ("MemTotal:", self.frames().managed()),
            ("MemFree:", self.gauge(Gauge::FreePages)),
            ("Cached:", self.gauge(Gauge::FilePages)),
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
