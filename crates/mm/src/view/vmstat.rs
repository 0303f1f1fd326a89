//! `/proc/vmstat`: gauges and counters of the machine.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::Counter;

impl<P: Platform> Mm<P> {
    /// Writes `/proc/vmstat`: every gauge, in pages, then every counter.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_vmstat(&self, out: &mut dyn Write) -> fmt::Result {
        for &gauge in Gauge::ALL {
            writeln!(out, "{} {}", gauge.name(), self.gauge(gauge))?;
        }
        Counter::ALL.iter().try_for_each(|&counter| writeln!(out, "{} {}", counter.name(), self.counter(counter)))
    }
}
