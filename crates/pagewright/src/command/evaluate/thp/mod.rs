//! `evaluate thp`: counts and measures what huge pages cost and save.
//!
//! - `stepping` – executes an operation instruction by instruction.
//! - `counted` – locked instructions and records per operation on a folio.
//! - `story` – a huge page in two processes, each of which unmaps a half.
//! - `programs` – a captured compiler and generated heaps under `never`, `madvise` and `always`.
//! - `forks` – forks of base pages and of huge pages.
//! - `first_store` – first stores without clearing, by size of page.
//! - `headline` – the figures of the tour.
//! - `claims` – the figures beside our own promises.
//!
//! Not guaranteed: figures free of other load. Only ratios are judged, by rounds in turns.

mod claims;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod counted;
mod first_store;
mod forks;
pub(super) mod headline;
mod operations;
mod process;
mod programs;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod stepping;
mod story;

use super::{Context, EvaluateError, Evaluation, Figures, Grid, Scale, measured_on};
use crate::command::CommandError;
use first_store::FirstStores;
use forks::ForkRow;
use operations::OperationUse;
use pagewright_host::HostFacts;
use programs::ProgramRun;
use std::collections::BTreeMap;
use story::StoryEvent;

/// All results.
struct ThpResults {
    /// What operations on a folio use, or why it is not counted here.
    operations: Result<Vec<OperationUse>, String>,
    story: Vec<StoryEvent>,
    first_stores: FirstStores,
    forks: Vec<ForkRow>,
    programs: Vec<ProgramRun>,
}

/// Counts operations, all or get and put only, where the host can.
fn operations(all: bool) -> Result<Vec<OperationUse>, String> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return if all { counted::measure() } else { counted::references() }.map_err(|error| error.to_string());
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        let _ = all;
        Err("locked instructions are counted on x86-64 Linux only".to_owned())
    }
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    context.show_step("stepping through operations on folios");
    let operations = operations(true);
    let results = measure(context, operations)?;
    Ok(evaluation(context.scale, &HostFacts::gather(), &results))
}

fn measure(context: &Context<'_>, operations: Result<Vec<OperationUse>, String>) -> Result<ThpResults, EvaluateError> {
    let story = story::tell()?;
    let first_stores = FirstStores::measure(context)?;
    let forks = forks::measure(context)?;
    let programs = programs::run(context)?;
    Ok(ThpResults { operations, story, first_stores, forks, programs })
}

fn evaluation(scale: Scale, facts: &HostFacts, results: &ThpResults) -> Evaluation {
    let operations = results.operations.as_deref().unwrap_or_default();
    let debug = if cfg!(debug_assertions) { "with" } else { "without" };
    let parts = [
        operations::figures(operations),
        story::figures(&results.story),
        results.first_stores.figures(),
        forks::figures(&results.forks),
        programs::figures(&results.programs),
        not_comparable(),
    ];
    Evaluation {
        name: "thp",
        title: "huge pages: one folio, mapped whole and in pieces",
        isa: "x86-64",
        config: BTreeMap::from([
            ("build".to_owned(), format!("{debug} debug assertions")),
            ("scale".to_owned(), scale.name().to_owned()),
        ]),
        measured_on: measured_on(facts),
        figures: parts.into_iter().collect(),
        claims: claims::claims(results),
        notes: notes(results.operations.as_ref().err()),
    }
}

/// The published times for which we have no figure.
fn not_comparable() -> Figures {
    let rows = [
        ("kernel build, system time, -j2", "-9.49 %"),
        ("kernel build, system time, -j4", "-13.00 %"),
        ("specjvm, by benchmark", "+14 % to -8.8 %"),
    ];
    let why = "times of Linux with and without the patches; this memory manager runs no kernel build and no JVM, and a capture has no time";
    Grid::of("Published, not comparable (the cover letter of version 12 labels them version 6)", rows)
        .text("figure", |(figure, _)| *figure)
        .text("published", |(_, published)| *published)
        .text("not comparable, because they are", |_| why)
        .table()
        .into()
}

/// `uncounted` is why operations were not counted.
fn notes(uncounted: Option<&String>) -> Vec<String> {
    let uncounted = uncounted.map(|reason| format!("Operations on folios were not counted in this run: {reason}"));
    let notes = [
        "Locked instructions and records are counted in the machine code of this program, which is executed instruction by instruction. A record is one cache \
         line. Debug assertions load records and lock nothing; they take time, so first stores are for builds without them.",
        "Times are of one CPU of this computer, median [tenth–ninetieth percentile] of rounds in turns, on a machine with page tables and records and without \
         contents of pages; the exception and TLB misses are left out.",
        "A fork takes the same time whatever the size only where its memory is in base pages: tables with huge leaves are not shared, and fork copies an entry for \
         each 2 MiB. The mapping of the forks has MADV_HUGEPAGE, so madvise is as always.",
        "heap-dense and heap-evacuating have MADV_HUGEPAGE, heap-sparse, heap-purging and the captured compiler have not. The machine has 512 MiB and no swap. TLB \
         misses are modelled, by the geometry of the profile.",
    ];
    notes.map(str::to_owned).into_iter().chain(uncounted).collect()
}
