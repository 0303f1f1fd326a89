//! `page_tables`: what the page tables of each space take.
//!
//! Linux has no such file. A table that several spaces share is counted whole in each of them as
//! shared, and in parts as proportional, as `smaps` counts pages.

use crate::mm::Mm;
use core::fmt::{self, Write};
use pagewright_sync::Platform;

impl<P: Platform> Mm<P> {
    /// Writes a line for each space, and the sums.
    ///
    /// Roots are included, unlike in `VmPTE`. The line of the sums has all tables of user memory
    /// once, and in proportion what rounding leaves of that.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_page_tables(&self, out: &mut dyn Write) -> fmt::Result {
        let mut result = writeln!(out, "space  private  shared  proportional");
        let (mut private, mut proportional) = (0, 0);
        self.for_each_space(|space| {
            let bytes = self.table_bytes(space);
            private += bytes.private;
            proportional += bytes.proportional;
            let kib = [bytes.private, bytes.shared, bytes.proportional].map(|bytes| bytes / 1024);
            result = result.and_then(|()| line(out, format_args!("{}", space.id().raw()), kib));
        });
        let shared = proportional.saturating_sub(private);
        result.and_then(|()| line(out, format_args!("all"), [private, shared, proportional].map(|bytes| bytes / 1024)))
    }
}

/// Writes the figures of one line, in kB.
fn line(out: &mut dyn Write, name: fmt::Arguments<'_>, [private, shared, proportional]: [u64; 3]) -> fmt::Result {
    writeln!(out, "{name} {private} kB {shared} kB {proportional} kB")
}
