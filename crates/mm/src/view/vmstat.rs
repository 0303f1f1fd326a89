//! `/proc/vmstat`.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::Counter;

impl<P: Platform> Mm<P> {
    /// Writes what `/proc/vmstat` shows: every gauge, in pages, then every counter.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_vmstat(&self, out: &mut dyn Write) -> fmt::Result {
        for &gauge in Gauge::ALL {
            writeln!(out, "{} {}", gauge.name(), self.gauge(gauge))?;
        }
        Counter::ALL.iter().try_for_each(|&counter| writeln!(out, "{} {}", counter.name(), self.counter(counter)))
    }
}
