//! A comparison and a difference as text.

use super::{DifferenceReport, LinuxComparison};
use pagewright_syscall::KnownDifference;
use std::fmt::Write as _;

/// Counts by call and errno, by access and signal; skipped operations; known differences.
pub fn comparison(comparison: &LinuxComparison) -> String {
    let LinuxComparison {
        programs,
        operations,
        faults_compared,
        skipped,
        cut_short,
        calls,
        accesses,
        signals,
        missing,
        time,
        not_reproduced,
        ..
    } = comparison;
    let mut text = format!(
        "beside Linux: {programs} programs, {operations} operations compared, {:.1} s (measured)\n",
        time.as_secs_f64()
    );
    let [loads, stores, fetches] = accesses;
    // Writing to a String does not fail.
    let _ = writeln!(text, "  {loads} loads, {stores} stores, {fetches} fetches");
    let _ = writeln!(text, "  the minor faults of {faults_compared} operations were compared, too");
    for (signal, times) in signals {
        let _ = writeln!(text, "  {times} of {signal}");
    }
    let _ = writeln!(
        text,
        "  {skipped} operations skipped, {cut_short} programs ended early, because of known differences"
    );
    if *not_reproduced > 0 {
        let _ = writeln!(text, "  {not_reproduced} differences did not show in two more runs of their programs");
    }
    for feature in missing {
        let _ = writeln!(text, "  this kernel lacks {}: not compared", feature.name());
    }
    let mut last = "";
    for ((name, errno), times) in calls {
        let space = if errno.is_empty() { "" } else { " " };
        let _ = match *name == last {
            true => write!(text, ", {errno}{space}{times}"),
            false => write!(text, "{}  {name:30} {errno}{space}{times}", if last.is_empty() { "" } else { "\n" }),
        };
        last = name;
    }
    text.push_str("\n  known differences, which these programs avoid or allow for (docs/linux-calls.md):\n");
    for difference in KnownDifference::ALL {
        let _ = writeln!(text, "    {}: {}", difference.name(), difference.meaning());
    }
    text
}

/// A difference, the program that shows it, and the command that reproduces it.
pub fn difference(report: &DifferenceReport) -> String {
    let mut text = match &report.difference {
        super::LinuxDifference::Result { operation, process, linux, ours } => {
            format!("FOUND: process {process}: {operation}\n  Linux: {linux}\n  ours:  {ours}\n")
        }
        super::LinuxDifference::Leak(leak) => format!("FOUND: after the end of all processes, {leak}\n"),
    };
    let (kept, drawn) = (report.program.len(), report.whole.len());
    let _ = writeln!(text, "seed {}; minimised to {kept} of {drawn} operations:", report.program.seed);
    let (setup, body) = report.program.steps();
    text.extend(setup.iter().chain(&body).map(|step| format!("  {}\n", step.operation)));
    let _ = writeln!(text, "reproduce with: pagewright check --against linux --program {}", report.program);
    text
}
