//! Prints one replay: counts, then modelled times, then what was measured, each apart.

use super::number::{TimeUnit, cpus, grouped, memory};
use super::{faults, images};
use pagewright_capture::replay::ReplayReport;
use pagewright_sim::MachineEvent;
use pagewright_types::Counter;
use std::io::{self, Write};

/// Writes all results of a replay; with `all`, counts of 0 and single nodes too.
pub(crate) fn report(out: &mut impl Write, report: &ReplayReport, all: bool) -> io::Result<()> {
    header(out, report)?;
    let shown = |name: &&str| !is_time(name) && report.counters.get(name).is_some_and(|count| all || count > 0);
    writeln!(out, " Counted by the machine:\n")?;
    for name in MachineEvent::ALL.iter().map(|event| event.name()).filter(shown) {
        line(out, report, name)?;
    }
    writeln!(out, "\n /proc/vmstat, from boot to end:\n")?;
    for name in Counter::ALL.iter().map(|counter| counter.name()).filter(shown) {
        writeln!(out, "{name} {}", report.counters.get(name).unwrap_or(0))?;
    }
    images::table(out, report)?;
    faults::tables(out, report, all)?;
    writeln!(out, " Modelled time, by the costs of {}:\n", report.profile)?;
    let modelled = &report.modelled;
    let times = [
        ("elapsed", modelled.elapsed_ns),
        ("page walks, all CPUs", modelled.walk_ns),
        ("waits for flushes, all CPUs", modelled.flush_wait_ns),
    ];
    for (name, ns) in times.into_iter().filter(|(_, ns)| all || *ns > 0) {
        let unit = TimeUnit::of(ns);
        writeln!(out, "{:>18} {:<4} {name}", unit.number(ns), unit.name())?;
    }
    if modelled.memory_ns > 0 {
        let ([low, high], unit) = (modelled.memory_ns_band, TimeUnit::of(modelled.memory_ns));
        let (value, low, high) = (unit.number(modelled.memory_ns), unit.number(low), unit.number(high));
        writeln!(out, "{value:>18} {:<4} {MEMORY_TIME} ({low} to {high})", unit.name())?;
    }
    writeln!(out)?;
    remarks(out, report)?;
    writeln!(
        out,
        " Replayed {} events with {} accesses in {:.2} s (measured): {:.1} M events/s, {:.1} M accesses/s",
        grouped(report.counters.get("pw_events").unwrap_or(0)),
        grouped(report.counters.get("pw_accesses").unwrap_or(0)),
        report.measured.seconds,
        report.measured.events_per_second / 1e6,
        report.measured.accesses_per_second / 1e6,
    )?;
    if !all {
        writeln!(out, " Counts of 0 are hidden; --all shows them.")?;
    }
    writeln!(out)
}

/// The name of the time in loads and stores of a machine with several nodes.
pub(super) const MEMORY_TIME: &str = "memory by node, all CPUs, no cache modelled";

/// Whether a named number is a modelled time, in picoseconds, which the tables show with a unit.
///
/// JSON has it among the counters, under its name (`docs/json.md`).
pub(super) fn is_time(name: &str) -> bool {
    name.ends_with("_ps")
}

/// Writes the command and the machine.
pub(super) fn header(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    writeln!(out, "\n Replay of '{}' on a machine modelled after {}:\n", report.command.join(" "), machine(report))
}

/// Describes the machine in a few words.
pub(super) fn machine(report: &ReplayReport) -> String {
    let of = |name| report.config.get(name).unwrap_or(0);
    let swap = Some(of("swap_bytes")).filter(|bytes| *bytes > 0);
    format!(
        "{} ({}, {}, {}{}, seed {})",
        report.profile,
        report.isa,
        cpus(of("cpus")),
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
    if let Some(oracle) = &report.oracle {
        let judged: u64 = oracle.judged.0.iter().map(|(_, times)| times).sum();
        writeln!(out, " The oracle judged {} times: {}", grouped(judged), findings(&oracle.findings))?;
    }
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

/// The findings of the oracle in one line.
pub(super) fn findings(findings: &[String]) -> String {
    match findings.first() {
        None => "no finding".to_owned(),
        Some(first) => format!("{} findings, first: {}", findings.len(), first.lines().next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_sim::MachineEvent;
    use pagewright_types::Counter;

    #[test]
    fn the_page_of_the_json_document_names_each_counter_that_is_a_time() {
        let page = include_str!("../../json.md");
        let all = MachineEvent::ALL.iter().map(|event| event.name()).chain(Counter::ALL.iter().map(|of| of.name()));
        let times: Vec<&str> = all.filter(|name| is_time(name)).collect();
        assert_eq!(times.len(), 2, "the page says how many: {times:?}");
        for name in times {
            assert!(page.contains(&format!("`{name}`")), "{name} has no unit in docs/json.md");
        }
    }
}
