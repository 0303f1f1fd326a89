//! `evaluate clear`: measures what uncached clearing saves and costs on this computer.
//!
//! - `bench` – a memory manager on real memory, and the measurements that come first.
//! - `grid` – bandwidth by stores, extent and state of the target.
//! - `prealloc` – a VM's memory, compared with Linux's `MADV_POPULATE_WRITE`.
//! - `faults` – demand faults through the whole fault path.
//! - `huge_faults` – faults of 2 MiB, the first use of the page, and a hot set.
//! - `bulk_pin` – memory pinned for a device.
//! - `pollution` – a hot set read again after a clear.
//! - `compile` – a compiler that runs while other CPUs clear memory.
//! - `headline` – the figures of the tour.
//! - `judged` – what another CPU reads as soon as an uncached huge page is mapped.
//! - `claims` – the figures compared with those of the series and with our own promises.
//!
//! All clears go through the memory manager: its allocator supplies the blocks,
//! [`Frames`](pagewright_tlb::frames::Frames) clears them, and its counters say by which stores.
//! The memory is touched and poisoned first, and each clearing method is checked byte by byte.
//!
//! Not guaranteed: figures free of other load. Repetitions of all methods are interleaved, so that
//! other load affects all methods alike.

mod bench;
mod bulk_pin;
mod claims;
mod compile;
mod faults;
mod grid;
pub(super) mod headline;
mod huge_faults;
pub(super) mod judged;
mod pollution;
mod prealloc;

use super::{Context, Evaluation, Figures, Run, Scale};
use crate::command::CommandError;
use crate::show::cpus;
use bench::Bench;
use pagewright_host::HostFacts;
use pagewright_types::Counter;
use std::collections::BTreeMap;

/// All measurements.
struct ClearResults {
    grid: grid::ClearCells,
    prealloc: prealloc::Prealloc,
    faults: faults::Faults,
    huge_faults: huge_faults::HugeFaults,
    bulk_pins: bulk_pin::BulkPins,
    pollution: pollution::Pollution,
    compile: Option<compile::CompileTimes>,
    cache: bench::CacheMeasurements,
    /// The memory manager's counters of clearing, over the whole evaluation.
    counters: BTreeMap<String, u64>,
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let facts = HostFacts::gather();
    context.show_step("touching and poisoning memory");
    let bench = Bench::new(context.scale)?;
    context.show_step("calibrating");
    let cache = bench::CacheMeasurements::measure(&bench);
    let grid = grid::measure(context, &bench)?;
    let prealloc = prealloc::measure(context, &bench)?;
    let faults = faults::measure(context, &bench)?;
    let bulk_pins = bulk_pin::measure(context, &bench)?;
    let pollution = pollution::measure(context, &bench)?;
    let compile = compile::measure(context, &bench)?;
    let huge_faults = huge_faults::measure(context, &bench)?;
    let counters = clear_counters(&bench);
    let results = ClearResults { grid, prealloc, faults, huge_faults, bulk_pins, pollution, compile, cache, counters };
    Ok(evaluation(context.scale, &facts, &bench, &results))
}

fn evaluation(scale: Scale, facts: &HostFacts, bench: &Bench, results: &ClearResults) -> Evaluation {
    let total = Run { counters: results.counters.clone(), ..Run::of("total".to_owned(), "all runs above".to_owned()) };
    let measured = [
        results.grid.figures(),
        results.prealloc.figures(),
        results.faults.figures(),
        results.huge_faults.figures(),
        results.bulk_pins.figures(),
        results.pollution.figures(),
        Figures { runs: vec![total], ..Figures::default() },
    ];
    let compiled = results.compile.as_ref().map(compile::CompileTimes::figures);
    Evaluation {
        name: "clear",
        title: "uncached clearing of huge pages",
        isa: if cfg!(target_arch = "aarch64") { "arm64" } else { "x86-64" },
        config: BTreeMap::from([
            ("scale".to_owned(), scale.name().to_owned()),
            ("stores".to_owned(), bench.backends().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")),
        ]),
        measured_on: measured_on(facts, bench, &results.cache),
        figures: measured.into_iter().chain(compiled).collect(),
        claims: claims::claims(results),
        notes: notes(facts, results),
    }
}

/// Describes the computer.
fn measured_on(facts: &HostFacts, bench: &Bench, cache: &bench::CacheMeasurements) -> BTreeMap<String, String> {
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let caps = bench.frames().clear_selector().caps();
    let signature = caps.signature().map_or_else(String::new, |signature| format!(" ({signature})"));
    let denied = if caps.is_denied() { "; on the deny-list" } else { "" };
    let mut measured_on = super::measured_on(facts);
    measured_on.extend([
        ("CPU".to_owned(), format!("{}{signature}, {}{denied}", facts.model, cpus(facts.cpus as u64))),
        ("last-level cache".to_owned(), format!("reports {}; {}", mebibytes(facts.reported_cache), cache.cache_text())),
        ("calibration".to_owned(), cache.calibration_text()),
        ("huge pages".to_owned(), bench.huge_pages()),
    ]);
    measured_on
}

fn notes(facts: &HostFacts, results: &ClearResults) -> Vec<String> {
    let mut notes = vec![
        "GB/s are 10^9 bytes per second, median [tenth–ninetieth percentile] of interleaved repetitions, fence included.".to_owned(),
        "Cold: the target comes from a ring of memory that is larger than any cache here. Clean and dirty: the target was just read, or just written."
            .to_owned(),
        format!(
            "Before the repetitions, each method cleared poisoned memory and every byte was checked: {} MiB.",
            results.grid.checked_bytes() >> 20
        ),
    ];
    if facts.is_virtual {
        notes.push(
            "In a virtual machine, other guests may use the same memory and part of the last-level cache.".to_owned(),
        );
    }
    notes.extend(super::busy_note(facts, "GB/s"));
    notes.push("Linux's figure includes the time in which the hypervisor backs free pages again.".to_owned());
    if results.grid.movnti_is_slow() {
        notes.push(
            "MOVNTI is slow if its loop starts soon after a locked instruction, such as an allocator's lock; loops over many megabytes recover. It is \
             used only if the calibration, which executes a locked instruction first, measures it as fast."
                .to_owned(),
        );
    }
    if results.compile.is_none() {
        notes.push("rustc was not found, so the compilation beside background clearing is missing.".to_owned());
    }
    notes
}

/// The counters of clearing.
fn clear_counters(bench: &Bench) -> BTreeMap<String, u64> {
    let counters = Counter::ALL.iter().filter(|counter| counter.name().starts_with("pw_clear_"));
    counters.map(|counter| (counter.name().to_owned(), bench.mm().counter(*counter))).collect()
}
