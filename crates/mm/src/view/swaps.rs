//! `/proc/swaps`.

use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

/// Below this figure a column has a tab more.
const NARROW: u64 = 10_000_000;

impl<P: Platform> Mm<P> {
    /// Writes what `/proc/swaps` shows.
    ///
    /// Devices have no paths here; they are called as Linux calls what they are made of, by their
    /// number.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_swaps(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")?;
        let mut outcome = Ok(());
        self.for_each_swap(|device| {
            let kib = |slots: u32| u64::from(slots) * PAGE_SIZE / 1024;
            let (size, used) = (kib(device.slots), kib(device.used));
            let tab = |figure| if figure < NARROW { "\t" } else { "" };
            let width = 40 - "/dev/".len() - device.kind.len();
            outcome = outcome
                .and_then(|()| write!(out, "/dev/{}{:<width$}partition\t", device.kind, device.number))
                .and_then(|()| write!(out, "{size}\t{}{used}\t{}", tab(size), tab(used)))
                .and_then(|()| writeln!(out, "{}", device.priority));
        });
        outcome
    }
}
