//! Prints one replay.

use super::images;
use super::number::{grouped, memory, milliseconds};
use pagewright_capture::replay::ReplayReport;
use pagewright_sim::MachineEvent;
use pagewright_types::Counter;
use std::io::{self, Write};

/// Writes all results of a replay.
pub(crate) fn report(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    writeln!(out, "\n Replay of '{}' on a machine modelled after {}:\n", report.command.join(" "), machine(report))?;
    for event in MachineEvent::ALL {
        line(out, report, event.name())?;
    }
    writeln!(out, "\n {:>17} ms modelled time elapsed", milliseconds(report.modelled.elapsed_ns))?;
    writeln!(out, " {:>17} ms modelled time in page walks, all CPUs\n", milliseconds(report.modelled.walk_ns))?;
    writeln!(out, " /proc/vmstat, from boot to end:\n")?;
    for counter in Counter::ALL {
        if let Some(value) = report.counters.get(counter.name()) {
            writeln!(out, "{} {value}", counter.name())?;
        }
    }
    images::table(out, report)?;
    remarks(out, report)?;
    writeln!(
        out,
        " Replayed {} events with {} accesses in {:.2} s (measured): {:.1} M events/s, {:.1} M accesses/s\n",
        grouped(report.counters.get("pw_events").unwrap_or(0)),
        grouped(report.counters.get("pw_accesses").unwrap_or(0)),
        report.measured.seconds,
        report.measured.events_per_second / 1e6,
        report.measured.accesses_per_second / 1e6,
    )
}

/// Describes the machine in a few words.
pub(super) fn machine(report: &ReplayReport) -> String {
    let of = |name| report.config.get(name).unwrap_or(0);
    let swap = Some(of("swap_bytes")).filter(|bytes| *bytes > 0);
    format!(
        "{} ({}, {} CPUs, {}{}, seed {})",
        report.profile,
        report.isa,
        of("cpus"),
        memory(of("memory_bytes")),
        swap.map_or(String::new(), |bytes| format!(", {} of swap", memory(bytes))),
        of("seed")
    )
}

fn line(out: &mut impl Write, report: &ReplayReport, name: &str) -> io::Result<()> {
    let Some(value) = report.counters.get(name) else { return Ok(()) };
    write!(out, "{:>18}      {name:<26}", grouped(value))?;
    // Misses are also printed as a percentage of the loads, as perf does.
    if let Some(all) = name.strip_suffix("-load-misses").map(|unit| format!("{unit}-loads"))
        && let Some(all) = report.counters.get(&all).filter(|all| *all > 0)
    {
        write!(out, "# {:>6.2} % of all {} loads", value as f64 * 100.0 / all as f64, &name[..4])?;
    }
    writeln!(out)
}

/// Writes what limits the figures: inferred mappings, calls not replayed, results unlike Linux's.
pub(super) fn remarks(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    if report.mappings_inferred {
        writeln!(out, " Mappings are inferred, because the capture has accesses only.")?;
    }
    for left_out in &report.not_replayed {
        writeln!(out, " Not replayed, {} times: {}", left_out.times, left_out.call)?;
    }
    for line in &report.diverged {
        writeln!(out, " Different from Linux: {line}")?;
    }
    Ok(())
}
