//! `/proc/vmstat`: gauges and counters of the machine.

use crate::counters::Gauge;
use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{Counter, Level};

impl<P: Platform> Mm<P> {
    /// Writes `/proc/vmstat`: every gauge, in pages or huge pages, then every counter.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_vmstat(&self, out: &mut dyn Write) -> fmt::Result {
        for &gauge in Gauge::ALL {
            let unit = if gauge == Gauge::AnonThps { Level::PMD.pages() } else { 1 };
            writeln!(out, "{} {}", gauge.name(), self.gauge(gauge) / unit)?;
        }
        Counter::ALL.iter().try_for_each(|&counter| writeln!(out, "{} {}", counter.name(), self.counter(counter)))
    }
}
