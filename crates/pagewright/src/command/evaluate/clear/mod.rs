//! `evaluate clear`: what going past the cache saves when memory is cleared, and what it costs
//! where it is wrong, on this computer.
//!
//! - `bed` – a machine of real memory, and what is measured with.
//! - `grid` – bandwidth by stores, extent and state of the target.
//! - `prealloc` – a VM's memory, beside Linux's own way to get it.
//! - `faults` – demand faults through the whole fault path.
//! - `pollution` – what is left of a hot set after a clear; `beside` – a compiler beside background
//!   clearing.
//! - `claims` – all of it beside the series' figures and our own promises.
//!
//! Everything goes through the memory manager: blocks come from its allocator,
//! [`Frames`](pagewright_tlb::frames::Frames) clears them, and its counters prove by which stores.
//! Frames were touched and poisoned before, and each way is checked byte by byte.
//!
//! Not guaranteed: figures without anybody else's part in them. Repetitions of all ways are
//! interleaved, so that what disturbs one disturbs all.

mod bed;
mod beside;
mod claims;
mod faults;
mod grid;
mod pollution;
mod prealloc;

use super::{Context, Evaluation, Run, Scale, Stats, Table};
use crate::command::CommandError;
use bed::Bed;
use pagewright_host::HostFacts;
use pagewright_types::Counter;
use std::collections::BTreeMap;

/// Everything that was measured.
struct Found {
    grid: grid::Grid,
    prealloc: prealloc::Prealloc,
    faults: faults::Faults,
    pollution: pollution::Pollution,
    beside: Option<beside::Beside>,
    measured: bed::Measured,
    /// What the memory manager counted over all of it.
    counted: BTreeMap<String, u64>,
}

/// Measures.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let facts = HostFacts::gather();
    context.doing("touching and poisoning memory");
    let bed = Bed::new(context.scale)?;
    context.doing("calibrating");
    let measured = bed.measure();
    let grid = grid::measure(context, &bed)?;
    let prealloc = prealloc::measure(context, &bed)?;
    let faults = faults::measure(context, &bed)?;
    let pollution = pollution::measure(context, &bed)?;
    let beside = beside::measure(context, &bed)?;
    let found = Found { grid, prealloc, faults, pollution, beside, measured, counted: counted(&bed) };
    Ok(evaluation(context.scale, &facts, &bed, &found))
}

fn evaluation(scale: Scale, facts: &HostFacts, bed: &Bed, found: &Found) -> Evaluation {
    let mut tables: Vec<Table> = found.grid.tables();
    tables.push(found.prealloc.table());
    tables.push(found.faults.table());
    tables.push(found.pollution.table());
    tables.extend(found.beside.as_ref().map(beside::Beside::table));
    let mut runs = found.grid.runs();
    runs.extend(found.prealloc.runs());
    runs.extend(found.faults.runs());
    runs.extend(found.pollution.runs());
    runs.push(Run {
        counters: found.counted.clone(),
        ..Run::of("all of it".to_owned(), "everything above".to_owned())
    });
    runs.extend(found.beside.iter().flat_map(beside::Beside::runs));
    Evaluation {
        name: "clear",
        title: "uncached clearing of huge pages",
        isa: if cfg!(target_arch = "aarch64") { "arm64" } else { "x86-64" },
        config: BTreeMap::from([
            ("scale".to_owned(), if scale == Scale::Full { "full" } else { "quick" }.to_owned()),
            ("stores".to_owned(), bed.backends().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")),
        ]),
        measured_on: measured_on(facts, bed, found),
        runs,
        claims: claims::claims(found),
        tables,
        plots: found.grid.plots(),
        notes: notes(facts, found),
    }
}

fn measured_on(facts: &HostFacts, bed: &Bed, found: &Found) -> BTreeMap<String, String> {
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let caps = bed.frames().clear_selector().caps();
    let signature = caps.signature().map_or_else(String::new, |signature| format!(" ({signature})"));
    let denied = if caps.is_denied() { "; on the deny-list" } else { "" };
    BTreeMap::from([
        (
            "computer".to_owned(),
            if facts.is_virtual { "a virtual machine" } else { "says of no hypervisor" }.to_owned(),
        ),
        ("CPU".to_owned(), format!("{}{signature}, {} CPUs{denied}", facts.model, facts.cpus)),
        ("system".to_owned(), format!("Linux {}, load {:.2}", facts.system, facts.load_percent as f64 / 100.0)),
        (
            "last-level cache".to_owned(),
            format!("claims {}; {}", mebibytes(facts.claimed_cache), found.measured.knee_text()),
        ),
        ("calibration".to_owned(), found.measured.calibration_text()),
        ("huge pages".to_owned(), bed.huge_pages()),
    ])
}

fn notes(facts: &HostFacts, found: &Found) -> Vec<String> {
    let mut notes = vec![
        "GB/s are 10^9 bytes a second, median [tenth–ninetieth percentile] of interleaved repetitions, fence included.".to_owned(),
        "Cold: a ring of memory is walked that is larger than any cache here. Clean and dirty: the target was read, or stored to, a moment ago."
            .to_owned(),
        format!(
            "Before its repetitions each way was checked on poisoned memory: {} MiB, every byte.",
            found.grid.checked_bytes() >> 20
        ),
    ];
    if facts.is_virtual {
        notes.push(
            "In a virtual machine memory may be somebody else's, too, and the last-level cache is a share.".to_owned(),
        );
    }
    if facts.load_percent as usize > 100 * facts.cpus.max(1) / 2 {
        notes.push("Others were using this computer: compare ratios, not GB/s.".to_owned());
    }
    notes.push("Linux's populating includes the wait for a host that has taken free pages back.".to_owned());
    if found.grid.movnti_is_slow() {
        notes.push(
            "MOVNTI is slow where its loop begins soon after a locked instruction, as after an allocator's lock; loops of many megabytes recover. It is \
             used only where a calibration, which does the same, finds it fast."
                .to_owned(),
        );
    }
    if found.beside.is_none() {
        notes.push("No compiler (rustc) was found, so nothing was compiled beside background clearing.".to_owned());
    }
    notes
}

/// The counters of clearing.
fn counted(bed: &Bed) -> BTreeMap<String, u64> {
    let clearing = Counter::ALL.iter().filter(|counter| counter.name().starts_with("pw_clear_"));
    clearing.map(|counter| (counter.name().to_owned(), bed.mm().counter(*counter))).collect()
}

/// The ratio of two medians.
fn ratio(of: &Stats, to: &Stats) -> f64 {
    if to.median > 0.0 { of.median / to.median } else { 0.0 }
}
