//! `/proc/PID/smaps` and `/proc/PID/smaps_rollup`.

use super::maps::{Line, Name};
use super::mem_size_stats::MemSizeStats;
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Writes a line whose figure ends in column 24, whatever the length of its name.
fn line(out: &mut dyn Write, name: &str, figure: u64, unit: &str) -> fmt::Result {
    let width = 23 - name.len().max(15);
    writeln!(out, "{name:<15} {figure:width$}{unit}")
}

fn field(out: &mut dyn Write, name: &str, bytes: u64) -> fmt::Result {
    line(out, name, bytes / 1024, " kB")
}

/// The lines that both texts have (`__show_smap`).
///
/// Mechanisms that do not exist count nothing.
fn figures(out: &mut dyn Write, usage: &MemSizeStats, rollup: bool) -> fmt::Result {
    field(out, "Rss:", usage.rss)?;
    field(out, "Pss:", usage.pss.bytes())?;
    field(out, "Pss_Dirty:", usage.pss_dirty.bytes())?;
    if rollup {
        field(out, "Pss_Anon:", usage.pss_anon.bytes())?;
        field(out, "Pss_File:", usage.pss_file.bytes())?;
        field(out, "Pss_Shmem:", usage.pss_shmem.bytes())?;
    }
    field(out, "Shared_Clean:", usage.shared_clean)?;
    field(out, "Shared_Dirty:", usage.shared_dirty)?;
    field(out, "Private_Clean:", usage.private_clean)?;
    field(out, "Private_Dirty:", usage.private_dirty)?;
    field(out, "Referenced:", usage.referenced)?;
    field(out, "Anonymous:", usage.anonymous)?;
    field(out, "KSM:", 0)?;
    field(out, "LazyFree:", usage.lazy_free)?;
    const NONE_YET: [&str; 5] =
        ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"];
    NONE_YET.iter().try_for_each(|name| field(out, name, 0))?;
    field(out, "Swap:", usage.swap)?;
    field(out, "SwapPss:", usage.swap_pss.bytes())?;
    field(out, "Locked:", usage.pss_locked.bytes())
}

/// The two-letter words of a mapping, in the order of Linux's bits (`show_smap_vma_flags`).
fn vm_flags<P: Platform>(out: &mut dyn Write, vma: &Vma<P>) -> fmt::Result {
    let (rights, most, flags) = (vma.rights(), vma.max_rights(), vma.flags());
    let words = [
        (rights.contains(Rights::READ), "rd"),
        (rights.contains(Rights::WRITE), "wr"),
        (rights.contains(Rights::EXEC), "ex"),
        // A shared mapping of a file that was opened for reading only is private to Linux, up to
        // the s in its line.
        (flags.contains(VmFlags::SHARED), "sh"),
        (most.contains(Rights::READ), "mr"),
        (most.contains(Rights::WRITE), "mw"),
        (most.contains(Rights::EXEC), "me"),
        (vma.is_shared(), "ms"),
        (vma.grows_down(), "gd"),
        (flags.contains(VmFlags::LOCKED), "lo"),
        (flags.contains(VmFlags::SEQ_READ), "sr"),
        (flags.contains(VmFlags::RAND_READ), "rr"),
        (flags.contains(VmFlags::DONTCOPY), "dc"),
        (flags.contains(VmFlags::LOCKONFAULT), "lf"),
        (flags.contains(VmFlags::ACCOUNT), "ac"),
        (flags.contains(VmFlags::NORESERVE), "nr"),
        (flags.contains(VmFlags::SYNC), "sf"),
        (flags.contains(VmFlags::WIPEONFORK), "wf"),
        (flags.contains(VmFlags::DONTDUMP), "dd"),
        (flags.contains(VmFlags::SOFTDIRTY), "sd"),
        (flags.contains(VmFlags::SEALED), "sl"),
    ];
    out.write_str("VmFlags: ")?;
    for (_, word) in words.iter().filter(|(holds, _)| *holds) {
        write!(out, "{word} ")?;
    }
    out.write_char('\n')
}

impl<P: Platform> Mm<P> {
    /// Writes what `/proc/PID/smaps` shows of `space`.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_smaps(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let map = space.map().read();
        for (start, vma) in map.iter() {
            let usage = self.mem_size_stats_of(space, start, vma);
            Line::of(&map, start, vma).write(out)?;
            field(out, "Size:", usage.size)?;
            field(out, "KernelPageSize:", PAGE_SIZE)?;
            field(out, "MMUPageSize:", PAGE_SIZE)?;
            figures(out, &usage, false)?;
            // No huge page is ever given to anybody yet.
            line(out, "THPeligible:", 0, "")?;
            vm_flags(out, vma)?;
        }
        Ok(())
    }

    /// Writes what `/proc/PID/smaps_rollup` shows of `space`.
    ///
    /// # Errors
    /// The writer's.
    pub fn show_smaps_rollup(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let usage = self.mem_size_stats(space);
        let range = {
            let map = space.map().read();
            let first = map.iter().next().map_or(VirtAddr::ZERO, |(start, _)| VirtAddr::from_page_index(start));
            let end = map.iter().last().map_or(first, |(_, vma)| VirtAddr::from_page_index(vma.end()));
            PageRange::new(first, end)
        };
        let rights = Rights::empty();
        Line { range, rights, shared: false, offset: 0, inode: 0, name: Name::Text("[rollup]") }.write(out)?;
        figures(out, &usage, true)
    }
}
