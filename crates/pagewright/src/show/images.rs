//! Prints counts of each program image beside Linux's own.

use super::number::grouped;
use pagewright_capture::replay::{ImageReport, ReplayReport};
use pagewright_capture::trace::NativeImage;
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
        let linux = native(report, image);
        let kilobytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| grouped(bytes / 1024));
        writeln!(
            out,
            " {:<16} {:>8} {:>8}   {:>10} {:>10}   {:>8} {:>8}",
            name(image),
            grouped(image.minor_faults),
            linux.map_or("-".to_owned(), |linux| grouped(linux.minor_faults)),
            kilobytes(image.peak_rss_bytes),
            kilobytes(linux.and_then(|linux| linux.peak_rss_bytes)),
            kilobytes(image.page_table_bytes),
            kilobytes(linux.and_then(|linux| linux.page_table_bytes)),
        )?;
    }
    let (memory, footprint) = (report.config.get("memory_bytes").unwrap_or(0), NativeImage::footprint(&report.native));
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

/// Linux's counts of the same image, if the capture has them.
pub(super) fn native<'a>(report: &'a ReplayReport, image: &ImageReport) -> Option<&'a NativeImage> {
    report.native.iter().find(|native| native.process == image.process && native.image == image.image)
}

/// The command, followed by the process's path in the process tree.
fn name(image: &ImageReport) -> String {
    let path: Vec<String> = image.process.iter().map(u32::to_string).collect();
    if path.is_empty() { image.command.clone() } else { format!("{} [{}]", image.command, path.join(".")) }
}
