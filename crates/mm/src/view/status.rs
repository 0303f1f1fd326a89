//! The memory lines of `/proc/PID/status`.

use crate::counters::RssKind;
use crate::mm::Mm;
use crate::space::{AddressMap, Space, Vma};
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, Rights};

/// Bytes of address space by what it is for (`mm->data_vm`, `stack_vm`, `exec_vm`).
#[derive(Default)]
struct Kinds {
    data: u64,
    stack: u64,
    code: u64,
}

/// `vm_stat_account`: writable and the space's own; growing; executable and not writable.
fn kinds<P: Platform>(map: &AddressMap<P>) -> Kinds {
    let mut kinds = Kinds::default();
    for (start, vma) in map.iter() {
        let bytes = vma.range(start).len();
        if vma.grows_down() {
            kinds.stack += bytes;
        } else if is_data(vma) {
            kinds.data += bytes;
        } else if vma.rights().contains(Rights::EXEC) && !vma.rights().contains(Rights::WRITE) {
            kinds.code += bytes;
        }
    }
    kinds
}

fn is_data<P: Platform>(vma: &Vma<P>) -> bool {
    vma.rights().contains(Rights::WRITE) && !vma.is_shared()
}

impl<P: Platform> Mm<P> {
    /// Writes the lines of `/proc/PID/status` about the memory of `space`, from `VmPeak` to
    /// `VmSwap`. `VmPTE` counts tables of every level but the root.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_status(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let map = space.map().read();
        let kinds = kinds(&map);
        let exe = map.code().len().min(kinds.code);
        let rss = |kind| space.rss().of(kind) * PAGE_SIZE;
        let lines = [
            ("VmPeak", map.peak_bytes()),
            ("VmSize", map.bytes()),
            ("VmLck", map.totals().locked * PAGE_SIZE),
            // Nobody counts pins of a space.
            ("VmPin", 0),
            ("VmHWM", space.rss().peak_bytes()),
            ("VmRSS", space.rss().bytes()),
            ("RssAnon", rss(RssKind::Anon)),
            ("RssFile", rss(RssKind::File)),
            ("RssShmem", rss(RssKind::Shmem)),
            ("VmData", kinds.data),
            ("VmStk", kinds.stack),
            ("VmExe", exe),
            ("VmLib", kinds.code - exe),
            ("VmPTE", space.table().bytes()),
            ("VmSwap", space.rss().swapped() * PAGE_SIZE),
        ];
        lines.iter().try_for_each(|(name, bytes)| writeln!(out, "{name}:\t{:8} kB", bytes / 1024))
    }
}
