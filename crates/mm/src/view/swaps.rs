//! `/proc/swaps`: the swap devices.

use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::PAGE_SIZE;

/// A column with a figure below this one has another tab.
const NARROW: u64 = 10_000_000;

impl<P: Platform> Mm<P> {
    /// Writes `/proc/swaps`.
    ///
    /// The path of a device is made of its kind and its number, for example `/dev/zram0`.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_swaps(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")?;
        let mut result = Ok(());
        self.for_each_swap(|device| {
            let kib = |slots: u32| u64::from(slots) * PAGE_SIZE / 1024;
            let (size, used) = (kib(device.slots), kib(device.used));
            let tab = |figure| if figure < NARROW { "\t" } else { "" };
            let width = 40 - "/dev/".len() - device.kind.len();
            result = result
                .and_then(|()| write!(out, "/dev/{}{:<width$}partition\t", device.kind, device.number))
                .and_then(|()| write!(out, "{size}\t{}{used}\t{}", tab(size), tab(used)))
                .and_then(|()| writeln!(out, "{}", device.priority));
        });
        result
    }
}
