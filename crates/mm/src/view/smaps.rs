//! `/proc/PID/smaps` and `/proc/PID/smaps_rollup`: the memory of mappings.

use super::maps::MapsLine;
use super::mem_size_stats::MemSizeStats;
use super::records::RecordWriter;
use crate::mm::Mm;
use crate::space::{Space, VmFlags, Vma};
use arrayvec::ArrayVec;
use core::fmt::{self, Write};
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

/// Writes a line whose figure ends in column 24.
fn line(out: &mut dyn Write, name: &str, figure: u64, unit: &str) -> fmt::Result {
    let width = 23 - name.len().max(15);
    writeln!(out, "{name:<15} {figure:width$}{unit}")
}

fn field(out: &mut dyn Write, name: &str, bytes: u64) -> fmt::Result {
    line(out, name, bytes / 1024, " kB")
}

/// Writes the lines that both files have (`__show_smap`).
///
/// Figures of kinds of pages that do not exist are 0.
fn figures(out: &mut dyn Write, stats: &MemSizeStats, rollup: bool) -> fmt::Result {
    field(out, "Rss:", stats.rss)?;
    field(out, "Pss:", stats.pss.bytes())?;
    field(out, "Pss_Dirty:", stats.pss_dirty.bytes())?;
    if rollup {
        field(out, "Pss_Anon:", stats.pss_anon.bytes())?;
        field(out, "Pss_File:", stats.pss_file.bytes())?;
        field(out, "Pss_Shmem:", stats.pss_shmem.bytes())?;
    }
    field(out, "Shared_Clean:", stats.shared_clean)?;
    field(out, "Shared_Dirty:", stats.shared_dirty)?;
    field(out, "Private_Clean:", stats.private_clean)?;
    field(out, "Private_Dirty:", stats.private_dirty)?;
    field(out, "Referenced:", stats.referenced)?;
    field(out, "Anonymous:", stats.anonymous)?;
    field(out, "KSM:", 0)?;
    field(out, "LazyFree:", stats.lazy_free)?;
    field(out, "AnonHugePages:", stats.anonymous_thp)?;
    const NONE_YET: [&str; 4] = ["ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"];
    NONE_YET.iter().try_for_each(|name| field(out, name, 0))?;
    field(out, "Swap:", stats.swap)?;
    field(out, "SwapPss:", stats.swap_pss.bytes())?;
    field(out, "Locked:", stats.pss_locked.bytes())
}

/// Two-letter flags of a mapping.
type FlagWords = ArrayVec<&'static str, 23>;

/// Returns the two-letter flags of a mapping, in the order of Linux's bits (`show_smap_vma_flags`).
fn flag_words<P: Platform>(vma: &Vma<P>) -> FlagWords {
    let (rights, max_rights, flags) = (vma.rights(), vma.max_rights(), vma.flags());
    let words = [
        (rights.contains(Rights::READ), "rd"),
        (rights.contains(Rights::WRITE), "wr"),
        (rights.contains(Rights::EXEC), "ex"),
        // Linux clears VM_SHARED in a shared mapping of a file that was opened read-only; its line
        // has an s nevertheless.
        (flags.contains(VmFlags::SHARED), "sh"),
        (max_rights.contains(Rights::READ), "mr"),
        (max_rights.contains(Rights::WRITE), "mw"),
        (max_rights.contains(Rights::EXEC), "me"),
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
        (flags.contains(VmFlags::HUGEPAGE), "hg"),
        (flags.contains(VmFlags::NOHUGEPAGE), "nh"),
        (flags.contains(VmFlags::SEALED), "sl"),
    ];
    words.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect()
}

impl<P: Platform> Mm<P> {
    /// Writes `/proc/PID/smaps` of `space`.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_smaps(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let mut at = VirtAddr::ZERO;
        while let Some((range, written)) = self.show_smap(space, at, out) {
            written?;
            at = range.end();
        }
        Ok(())
    }

    /// Writes the entries of mappings that end after `from`, while `out` accepts more.
    ///
    /// Returns the first mapping whose entry was not written. Only mappings up to that one are
    /// examined.
    pub fn show_smaps_from(&self, space: &Space<P>, from: VirtAddr, out: &mut dyn RecordWriter) -> Option<VirtAddr> {
        self.show_records(space, from, out, |from, out| self.show_smap(space, from, out))
    }

    /// Writes the entry of the first mapping that ends after `from`.
    ///
    /// Returns its range, and the result of the writer.
    fn show_smap(&self, space: &Space<P>, from: VirtAddr, out: &mut dyn Write) -> Option<(PageRange, fmt::Result)> {
        let (range, flags, eligible, written) = {
            let map = space.map().read();
            let (start, vma) = map.iter_from(from).next()?;
            let eligible = self.is_thp_eligible(space, vma, start);
            (vma.range(start), flag_words(vma), eligible, MapsLine::of(&map, start, vma).write(out))
        };
        let mut show = |stats: MemSizeStats| {
            field(out, "Size:", stats.size)?;
            field(out, "KernelPageSize:", PAGE_SIZE)?;
            field(out, "MMUPageSize:", PAGE_SIZE)?;
            figures(out, &stats, false)?;
            line(out, "THPeligible:", u64::from(eligible), "")?;
            out.write_str("VmFlags: ")?;
            flags.iter().try_for_each(|word| write!(out, "{word} "))?;
            out.write_char('\n')
        };
        Some((range, written.and_then(|()| show(self.mem_size_stats_of(space, range)))))
    }

    /// Writes `/proc/PID/smaps_rollup` of `space`.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn show_smaps_rollup(&self, space: &Space<P>, out: &mut dyn Write) -> fmt::Result {
        let stats = self.mem_size_stats(space);
        let range = {
            let map = space.map().read();
            let first = map.iter().next().map_or(VirtAddr::ZERO, |(start, _)| VirtAddr::from_page_index(start));
            let end = map.iter().last().map_or(first, |(_, vma)| VirtAddr::from_page_index(vma.end()));
            PageRange::new(first, end)
        };
        let rights = Rights::empty();
        MapsLine { range, rights, shared: false, offset: 0, inode: 0, name: Some("[rollup]"), name_suffix: "" }
            .write(out)?;
        figures(out, &stats, true)
    }
}
