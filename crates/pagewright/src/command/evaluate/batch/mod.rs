//! `evaluate batch`: what reclaim saves when it waits once for many pages, on simulated machines.
//!
//! - `grid` – the series' program by machine, CPUs, sharers, and whether flushes are put off.
//! - `pressure` – captures in half the memory that they want.
//! - `claims` – all of it beside the series' figures and our own promises.
//!
//! Before is the same memory manager with `tlb_batch=0`: it waits for each entry's flush, as Linux
//! 6.1 does on arm64. What Linux itself does stands in `docs/linux-pageout.md`, counted in QEMU.
//! Times are modelled; the band is that of all costs of flushes
//! ([`Cost::is_of_flush`](pagewright_sim::Cost::is_of_flush)) at half and at one and a half.
//!
//! Not guaranteed: anything about a clock. Where each cost comes from stands in the profiles.

mod claims;
mod grid;
mod pressure;

use super::{Context, EvaluateError, Evaluation};
use crate::command::CommandError;
use std::collections::BTreeMap;
use std::thread;

/// Everything that was found.
struct Found {
    grid: grid::Grid,
    pressure: pressure::Pressure,
}

/// Runs it.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let found = Found { grid: grid::run(context)?, pressure: pressure::run(context)? };
    let mut tables = found.grid.tables();
    tables.push(found.pressure.table());
    let mut runs = found.grid.runs();
    runs.extend(found.pressure.runs());
    Ok(Evaluation {
        name: "batch",
        title: "flushes of reclaim put off and waited for together",
        isa: "arm64, x86-64",
        config: BTreeMap::from([
            ("program".to_owned(), "1 MiB of shared memory, read and paged out".to_owned()),
            ("pages in a batch".to_owned(), grid::BATCH.to_string()),
        ]),
        measured_on: BTreeMap::new(),
        runs,
        claims: claims::claims(&found),
        tables,
        plots: found.grid.plots(),
        notes: notes(),
    })
}

/// Runs machines side by side on host threads, one for each of `jobs`; they share nothing.
///
/// A panic of one is the caller's.
fn at_once<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    run: impl Fn(J) -> Result<T, EvaluateError> + Sync,
) -> Result<Vec<T>, EvaluateError> {
    thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || run(job))).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn notes() -> Vec<String> {
    [
        "Everything is counted or modelled; nothing is measured. Before and after are our own memory manager with tlb_batch=0 and 1; docs/linux-pageout.md has \
         Linux 6.1, which waits for each page, and 6.12, which does not, beside it on bare metal.",
        "[low–high]: the same with all costs of flushes at 50 % and at 150 %.",
        "On x86-64 a program that ran on one CPU alone interrupts nobody, before or after; so each CPU has a thread that reads.",
        "Several sharers: pages that others map are not paged out by MADV_PAGEOUT, there and here; they are reclaimed because the machine is asked to.",
        "What paging out and in costs beside its flush is calibrated by the before column of the series (swap_out and swap_in in the profiles). What a flush costs \
         is not.",
    ]
    .map(str::to_owned)
    .to_vec()
}
