//! Prints two replays and the change from the first to the second.

use super::number::{change, grouped, milliseconds};
use super::single::{machine, remarks};
use crate::setting::Comparison;
use pagewright_capture::replay::ReplayReport;
use std::io::{self, Write};

/// Writes every figure that is not zero in at least one replay, with the change in per cent.
pub(crate) fn comparison(out: &mut impl Write, comparison: &Comparison, reports: &[ReplayReport; 2]) -> io::Result<()> {
    let [before, after] = reports;
    writeln!(out, "\n Replay of '{}' on a machine modelled after {}:\n", before.command.join(" "), machine(before))?;
    let (left, right) = (comparison.heading(0), comparison.heading(1));
    let width = left.len().max(right.len()).max(16);
    writeln!(out, " {:<28} {left:>width$} {right:>width$} {:>10}", "", "change")?;
    for (name, old) in &before.counters.0 {
        let new = after.counters.get(name).unwrap_or(0);
        if *old > 0 || new > 0 {
            row(out, width, name, (*old, new), grouped)?;
        }
    }
    let totals = |pick: fn(&ReplayReport) -> u64| (pick(before), pick(after));
    row(
        out,
        width,
        "peak RSS, all images, kB",
        totals(|report| sum(report, |image| image.peak_rss_bytes) / 1024),
        grouped,
    )?;
    row(
        out,
        width,
        "page tables, all images, kB",
        totals(|report| sum(report, |image| image.page_table_bytes) / 1024),
        grouped,
    )?;
    row(out, width, "modelled ms elapsed", totals(|report| report.modelled.elapsed_ns), milliseconds)?;
    row(out, width, "modelled ms in page walks", totals(|report| report.modelled.walk_ns), milliseconds)?;
    writeln!(out)?;
    remarks(out, after)
}

fn row(out: &mut impl Write, width: usize, name: &str, values: (u64, u64), text: fn(u64) -> String) -> io::Result<()> {
    let (old, new) = values;
    writeln!(out, " {name:<28} {:>width$} {:>width$} {:>10}", text(old), text(new), change(old, new))
}

fn sum(report: &ReplayReport, pick: fn(&pagewright_capture::replay::ImageReport) -> Option<u64>) -> u64 {
    report.images.iter().filter_map(pick).sum()
}
