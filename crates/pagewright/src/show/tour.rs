//! The tour: a few figures of every capture, a setting off and on, on both instruction sets.

use super::number::{change, grouped, milliseconds};
use crate::options::Comparison;
use pagewright_capture::replay::Report;
use std::io::{self, Write};
use std::time::Duration;

/// The figures of the tour, as the report names them.
const SHOWN: [&str; 5] =
    ["pgfault", "pw_fault_around", "dTLB-load-misses", "iTLB-load-misses", "nr_tlb_local_flush_all"];

/// What is about to be shown.
pub(crate) fn opening(out: &mut impl Write, comparison: &Comparison) -> io::Result<()> {
    writeln!(
        out,
        "\nSix captured runs of real programs, each replayed on Pagewright's memory manager on two modelled machines of 4 CPUs,\n\
         with {} (off) and {} (on).\n",
        comparison.heading(0),
        comparison.heading(1)
    )?;
    writeln!(out, "{:<26} {:>38}   {:>38}", "", "x86-64 (icelake)", "arm64 (neoverse-n1)")?;
    writeln!(out, "{:<26} {:>14} {:>14} {:>8}   {:>14} {:>14} {:>8}", "", "off", "on", "change", "off", "on", "change")
}

/// One capture; for each instruction set the reports with the setting off and on.
pub(crate) fn capture(out: &mut impl Write, name: &str, sides: &[[Report; 2]; 2]) -> io::Result<()> {
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
    sides: &[[Report; 2]; 2],
    pick: impl Fn(&Report) -> u64,
    text: fn(u64) -> String,
) -> io::Result<()> {
    write!(out, "  {name:<24}")?;
    for [off, on] in sides {
        let (off, on) = (pick(off), pick(on));
        write!(out, " {:>14} {:>14} {:>8}  ", text(off), text(on), change(off, on))?;
    }
    writeln!(out)
}

/// How long it took, and what to try next.
pub(crate) fn closing(out: &mut impl Write, took: Duration) -> io::Result<()> {
    writeln!(
        out,
        "\nReplayed in {:.1} s. Modelled time adds up published costs; compare it, and do not take it for a clock.\n\
         Next: pagewright record -o mine.pwt -- PROGRAM ARGS…, then pagewright replay mine.pwt",
        took.as_secs_f64()
    )
}
