//! Prints the faults of a replay by mapping, over time and by node.

use super::number::{TimeUnit, grouped};
use pagewright_capture::replay::{FaultTimeline, ReplayReport};
use std::io::{self, Write};

/// Number of mappings that are shown without `--all`.
const MAPPINGS: usize = 8;

/// Writes the tables; with `all`, every mapping, and the node of a machine with one.
pub(super) fn tables(out: &mut impl Write, report: &ReplayReport, all: bool) -> io::Result<()> {
    let mappings = &report.faults_by_mapping;
    if !mappings.is_empty() {
        writeln!(out, " {:>8} {:>8}   faults by mapping, all processes", "minor", "major")?;
    }
    let shown = if all { mappings.len() } else { mappings.len().min(MAPPINGS) };
    for mapping in &mappings[..shown] {
        row(out, (mapping.minor_faults, mapping.major_faults), &mapping.mapping)?;
    }
    if let [_, ..] = &mappings[shown..] {
        let rest = mappings[shown..]
            .iter()
            .fold((0, 0), |(minor, major), mapping| (minor + mapping.minor_faults, major + mapping.major_faults));
        row(out, rest, &format!("{} other mappings", mappings.len() - shown))?;
    }
    let timeline = &report.faults_over_time;
    if !timeline.faults.is_empty() {
        let unit = TimeUnit::of(timeline.slot_ns);
        writeln!(
            out,
            "\n Faults over modelled time, {} {} a column, at most {}:\n {}",
            unit.number(timeline.slot_ns),
            unit.name(),
            grouped(timeline.faults.iter().copied().max().unwrap_or(0)),
            columns(timeline)
        )?;
    }
    if all || report.nodes.len() > 1 {
        nodes(out, report)?;
    }
    writeln!(out)
}

fn row(out: &mut impl Write, (minor, major): (u64, u64), name: &str) -> io::Result<()> {
    writeln!(out, " {:>8} {:>8}   {name}", grouped(minor), grouped(major))
}

/// Writes the memory, the faults and the accesses of each node.
fn nodes(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    writeln!(
        out,
        "\n {:>6} {:>14} {:>14} {:>14} {:>8} {:>8}   faults by node of CPU",
        "", "kB", "peak use", "use at end", "minor", "major"
    )?;
    for node in &report.nodes {
        let kilobytes = |bytes: u64| grouped(bytes / 1024);
        writeln!(
            out,
            " node {:<1} {:>14} {:>14} {:>14} {:>8} {:>8}",
            node.node.to_string(),
            kilobytes(node.memory_bytes),
            kilobytes(node.peak_used_bytes),
            kilobytes(node.used_bytes),
            grouped(node.minor_faults),
            grouped(node.major_faults)
        )?;
    }
    writeln!(
        out,
        "\n {:>6} {:>14} {:>14} {:>14} {:>14}   accesses by node of memory; no cache is modelled",
        "", "loads", "remote", "stores", "remote"
    )?;
    for node in &report.nodes {
        let counts = [node.loads, node.remote_loads, node.stores, node.remote_stores].map(grouped);
        let [loads, remote_loads, stores, remote_stores] = counts;
        let number = node.node.to_string();
        writeln!(out, " node {number:<1} {loads:>14} {remote_loads:>14} {stores:>14} {remote_stores:>14}")?;
    }
    Ok(())
}

/// A column for each slot, as high as its share of the largest.
fn columns(timeline: &FaultTimeline) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = timeline.faults.iter().copied().max().unwrap_or(0).max(1);
    let column = |faults: &u64| match faults {
        0 => ' ',
        faults => HEIGHTS[((faults * 8).div_ceil(most) as usize - 1).min(7)],
    };
    timeline.faults.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_high_as_its_share() {
        let timeline = FaultTimeline { slot_ns: 1000, faults: vec![0, 1, 4, 8] };
        assert_eq!(columns(&timeline), " ▁▄█");
    }
}
