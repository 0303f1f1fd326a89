//! What a comparison of `cow_page_tables` means to a program: whether it forks, and why RSS rises.

use super::compare::{ComparedColumn, sum_of_images};
use super::number::{counted, grouped};
use pagewright_capture::replay::ReplayReport;
use std::io::{self, Write};

/// Writes the meaning, if the values of `cow_page_tables` differ.
pub(super) fn meaning(out: &mut impl Write, columns: &[ComparedColumn]) -> io::Result<()> {
    let values = || columns.iter().flat_map(|column| &column.reports);
    let setting = |report: &ReplayReport| report.config.get("cow_page_tables");
    let Some(first) = values().next() else { return Ok(()) };
    if values().all(|report| setting(report) == setting(first)) {
        return Ok(());
    }
    if values().all(|report| report.forks.forks == 0) {
        return writeln!(
            out,
            " The program never forks, so cow_page_tables does nothing for it. A vfork or posix_spawn is no\n \
             fork: the child uses its parent's memory until it executes a program.\n"
        );
    }
    let copied = |report: &ReplayReport| report.counters.get("pw_table_broken").unwrap_or(0);
    writeln!(
        out,
        " The program forks {}. After forks, stores copied {} of the tables that forks had shared.",
        counted(first.forks.forks, ["time", "times"]),
        grouped(values().map(copied).max().unwrap_or(0))
    )?;
    let most = |pick: fn(&ReplayReport) -> u64| {
        let of = |column: &ComparedColumn| column.reports.iter().map(pick).max().unwrap_or(0);
        let later = columns.iter().skip(1).map(of).max().unwrap_or(0);
        columns.first().map_or(0, |first| later.saturating_sub(of(first))) / 1024
    };
    let resident = most(|report| sum_of_images(report, |image| image.peak_rss_bytes));
    if resident == 0 {
        return writeln!(out);
    }
    let used = match most(|report| report.nodes.iter().map(|node| node.peak_used_bytes).sum()) {
        0 => "no more memory was in use".to_owned(),
        more => format!("{} kB more memory were in use", grouped(more)),
    };
    writeln!(
        out,
        " Peak RSS rises by up to {} kB, and {used} at the peak: RSS counts the pages\n \
         that a process reaches. With shared tables, a child reaches all pages of its parent at once; with\n \
         copied tables, it reaches pages of files by faults, because fork copies no entries of files.\n",
        grouped(resident)
    )
}
