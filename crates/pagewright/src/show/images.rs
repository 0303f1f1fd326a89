//! Prints counts of each program image beside Linux's own.

use super::number::grouped;
use pagewright_capture::ImageCounts;
use pagewright_capture::replay::ReplayReport;
use std::io::{self, Write};

/// Writes a row for each program image: minor faults, peak RSS and page tables, ours and Linux's.
pub(super) fn table(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    writeln!(
        out,
        "\n {:<16} {:>8} {:>8}   {:>10} {:>10}   {:>8} {:>8}",
        "", "minor", "faults", "VmHWM", "kB", "VmPTE", "kB"
    )?;
    writeln!(
        out,
        " {:<16} {:>8} {:>8}   {:>10} {:>10}   {:>8} {:>8}",
        "program image", "ours", "Linux", "ours", "Linux", "ours", "Linux"
    )?;
    for image in &report.images {
        let linux = image.find_in(&report.native);
        let kilobytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| grouped(bytes / 1024));
        writeln!(
            out,
            " {:<16} {:>8} {:>8}   {:>10} {:>10}   {:>8} {:>8}",
            image.label(),
            grouped(image.minor_faults),
            linux.map_or("-".to_owned(), |linux| grouped(linux.minor_faults)),
            kilobytes(image.peak_rss_bytes),
            kilobytes(linux.and_then(|linux| linux.peak_rss_bytes)),
            kilobytes(image.page_table_bytes),
            kilobytes(linux.and_then(|linux| linux.page_table_bytes)),
        )?;
    }
    let (memory, footprint) = (report.config.get("memory_bytes").unwrap_or(0), ImageCounts::footprint(&report.native));
    if memory < footprint {
        writeln!(
            out,
            "\n On Linux the program had enough memory ({} kB at its peaks); this machine has {} kB. Part of each difference comes from that.",
            grouped(footprint / 1024),
            grouped(memory / 1024)
        )?;
    }
    writeln!(out)
}
