//! Prints the tour: a few figures of each capture with fault-around off and on, on both ISAs.

use super::number::{change, grouped, milliseconds};
use crate::setting::Comparison;
use pagewright_capture::replay::ReplayReport;
use std::io::{self, Write};
use std::time::Duration;

/// The counters that the tour prints.
const SHOWN: [&str; 5] =
    ["pgfault", "pw_fault_around", "dTLB-load-misses", "iTLB-load-misses", "nr_tlb_local_flush_all"];

/// Writes the introduction and the head of the table.
pub(crate) fn opening(out: &mut impl Write, comparison: &Comparison) -> io::Result<()> {
    writeln!(
        out,
        "\nSix captures of real programs, replayed on Pagewright's memory manager and two simulated machines with 4 CPUs,\n\
         with {} (off) and {} (on).\n",
        comparison.heading(0),
        comparison.heading(1)
    )?;
    writeln!(out, "{:<26} {:>38}   {:>38}", "", "x86-64 (icelake)", "arm64 (neoverse-n1)")?;
    writeln!(out, "{:<26} {:>14} {:>14} {:>8}   {:>14} {:>14} {:>8}", "", "off", "on", "change", "off", "on", "change")
}

/// Writes one capture.
///
/// `sides` has, for each instruction set, the reports with the setting off and on.
pub(crate) fn capture(out: &mut impl Write, name: &str, sides: &[[ReplayReport; 2]; 2]) -> io::Result<()> {
    let report = &sides[0][0];
    let of = |name| grouped(report.counters.get(name).unwrap_or(0));
    writeln!(out, "\n{name}: {} ({} accesses)", report.command.join(" "), of("pw_accesses"))?;
    for figure in SHOWN {
        row(out, figure, sides, |report| report.counters.get(figure).unwrap_or(0), grouped)?;
    }
    row(out, "modelled ms elapsed", sides, |report| report.modelled.elapsed_ns, milliseconds)
}

fn row(
    out: &mut impl Write,
    name: &str,
    sides: &[[ReplayReport; 2]; 2],
    pick: impl Fn(&ReplayReport) -> u64,
    text: fn(u64) -> String,
) -> io::Result<()> {
    write!(out, "  {name:<24}")?;
    for [off, on] in sides {
        let (off, on) = (pick(off), pick(on));
        write!(out, " {:>14} {:>14} {:>8}  ", text(off), text(on), change(off, on))?;
    }
    writeln!(out)
}

/// Writes how long the replays took, and what to try next.
pub(crate) fn closing(out: &mut impl Write, took: Duration) -> io::Result<()> {
    writeln!(
        out,
        "\nReplayed in {:.1} s. Modelled times add up published costs: compare them with each other, not with a clock.\n\
         Next: pagewright record -o mine.pwt -- PROGRAM ARGS…, then pagewright replay mine.pwt",
        took.as_secs_f64()
    )
}
