//! The memory lines of `/proc/PID/status`.

use crate::counters::{Rss, RssKind};
use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use crate::thp::ThpDisabled;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, Rights};

/// Bytes of address space by use (`mm->data_vm`, `stack_vm`, `exec_vm`).
#[derive(Default)]
struct BytesByUse {
    data: u64,
    stack: u64,
    code: u64,
}

/// Returns the bytes that are private and writable, of stacks, and of read-only code.
///
/// Linux: `vm_stat_account`.
fn bytes_by_use<P: Platform>(map: &AddressMap<P>) -> BytesByUse {
    let mut by_use = BytesByUse::default();
    for (start, vma) in map.iter() {
        let bytes = vma.range(start).len();
        if vma.grows_down() {
            by_use.stack += bytes;
        } else if is_data(vma) {
            by_use.data += bytes;
        } else if vma.rights().contains(Rights::EXEC) && !vma.rights().contains(Rights::WRITE) {
            by_use.code += bytes;
        }
    }
    by_use
}

fn is_data<P: Platform>(vma: &Vma<P>) -> bool {
    vma.rights().contains(Rights::WRITE) && !vma.is_shared()
}

impl<P: Platform> Mm<P> {
    /// Sums up what other spaces have edited in tables that they share with `space`.
    ///
    /// Returns the counts of its resident pages. Holds the space for reading.
    pub fn rss<'s>(&self, space: &'s Space<P>) -> &'s Rss {
        space.map().read().tables(&self.tlb).sum_shared_edits();
        space.rss()
    }

    /// Writes the memory lines of `/proc/PID/status` of `space`.
    ///
    /// They are `VmPeak` to `VmSwap`, and `THP_enabled`. `VmPTE` counts the tables of every level
    /// except the root.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_status(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let map = space.map().read();
        map.tables(&self.tlb).sum_shared_edits();
        let by_use = bytes_by_use(&map);
        let exe = map.code().len().min(by_use.code);
        let rss = |kind| space.rss().of(kind) * PAGE_SIZE;
        let lines = [
            ("VmPeak", map.peak_bytes()),
            ("VmSize", map.bytes()),
            ("VmLck", map.totals().locked * PAGE_SIZE),
            // The pins of a space are not counted.
            ("VmPin", 0),
            ("VmHWM", space.rss().peak_bytes()),
            ("VmRSS", space.rss().bytes()),
            ("RssAnon", rss(RssKind::Anon)),
            ("RssFile", rss(RssKind::File)),
            ("RssShmem", rss(RssKind::Shmem)),
            ("VmData", by_use.data),
            ("VmStk", by_use.stack),
            ("VmExe", exe),
            ("VmLib", by_use.code - exe),
            ("VmPTE", space.table().bytes()),
            ("VmSwap", space.rss().swapped() * PAGE_SIZE),
        ];
        lines.iter().try_for_each(|(name, bytes)| writeln!(out, "{name}:\t{:8} kB", bytes / 1024))?;
        // Linux shows 1 also where mappings must ask for huge pages (`task_thp_status`).
        writeln!(out, "THP_enabled:\t{}", u8::from(space.thp_disabled() != ThpDisabled::Yes))
    }
}
