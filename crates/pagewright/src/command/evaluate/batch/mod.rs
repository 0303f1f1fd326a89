//! `evaluate batch`: measures what deferring flushes in reclaim saves, on simulated machines.
//!
//! - `grid` – the series' program by machine, number of CPUs and sharers, and flush mode.
//! - `half_memory` – captures in half of their peak memory.
//! - `published` – the figures of the series' mail, and what they imply.
//! - `headline` – the figures of the tour.
//! - `claims` – the figures compared with those of the series and with our own promises.
//!
//! The baseline is the same memory manager with `tlb_batch=never`: it waits for the flush of each
//! entry, as Linux 6.1 does on arm64. `docs/linux-pageout.md` has Linux's own counts, from QEMU.
//! Times are modelled. Their band is the range that results if the costs of a wait and those of an
//! entry move to the ends of their bands, together and against each other
//! ([`FlushShare`](pagewright_sim::FlushShare)).
//!
//! Not guaranteed: anything about real time. The profiles give the source of each cost.

mod claims;
mod grid;
mod half_memory;
pub(super) mod headline;
mod published;

use super::{Context, Evaluation};
use crate::command::CommandError;
use std::collections::BTreeMap;

/// All results.
struct BatchResults {
    grid: grid::PageOutCells,
    half_memory: half_memory::HalfMemory,
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let half_memory = half_memory::run(context)?;
    let results = BatchResults { grid: grid::run(context)?, half_memory };
    let parts = [published::table(&results.grid).into(), results.grid.figures(), results.half_memory.figures()];
    Ok(Evaluation {
        name: "batch",
        title: "flushes that reclaim defers and waits for together",
        isa: "arm64, x86-64",
        config: BTreeMap::from([
            ("program".to_owned(), "1 MiB of shared memory, read and paged out".to_owned()),
            ("pages in a batch".to_owned(), grid::BATCH.to_string()),
        ]),
        measured_on: BTreeMap::new(),
        figures: parts.into_iter().collect(),
        claims: claims::claims(&results),
        notes: notes(),
    })
}

fn notes() -> Vec<String> {
    [
        "All figures are counted or modelled; no time is measured. Before and after are our own memory manager with tlb_batch=never and tlb_batch=auto. \
         docs/linux-pageout.md has Linux 6.1, which waits for each page, Linux 6.12, which does not, and our kernel.",
        "[low–high]: the same with the costs of a wait and of an entry at the ends of their bands, together and against each other; 10 processes: cheap \
         waits and dear entries only; 100: no band. The profiles have the bands and their sources; without a source a band is 50 % to 150 %.",
        "Captures: the two runs do not reclaim the same pages, because time decides when background reclaim runs. So elapsed times are not set against each \
         other; compare what is per page.",
        "On x86-64 a program that ran on one CPU only sends no IPIs, before or after. There each CPU runs a thread that reads the memory.",
        "Several sharers: MADV_PAGEOUT skips pages that other processes map, on Linux and here. These pages go by reclaim of the whole machine.",
        "The costs of paging out and in without the flush (swap_out and swap_in in the profiles) are calibrated by the before column of the series. The costs of a \
         flush are not.",
    ]
    .map(str::to_owned)
    .to_vec()
}
