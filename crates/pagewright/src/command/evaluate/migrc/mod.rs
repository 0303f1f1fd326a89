//! `evaluate migrc`: measures what read-only translations save that linger in TLBs.
//!
//! - `column` – the four ways to flush, and what a run counts in each.
//! - `inputs` – the look-ups on two memory tiers, and captures in half of their memory.
//! - `rows` – the columns side by side.
//! - `published` – the figures of the series' mail.
//! - `claims` – the figures compared with those of the series.
//!
//! All columns are our own memory manager. The mail's before is Linux 6.7, which batches the
//! flushes of migration, so `batched` stands beside it.
//!
//! Not guaranteed: anything about real time. No cache is modelled.

mod claims;
mod column;
mod inputs;
mod published;
mod rows;

use super::{Context, Evaluation, Scale};
use crate::command::CommandError;
use column::InputRuns;
use std::collections::BTreeMap;

/// All results.
struct MigrcResults {
    /// The look-ups, on each machine.
    tiers: Vec<InputRuns>,
    /// Look-ups that the oracle judged.
    judged: Option<InputRuns>,
    captures: Vec<InputRuns>,
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let tiers = inputs::tiers(context)?;
    let (judged, captures) = match context.scale {
        Scale::Tour => (None, Vec::new()),
        Scale::Quick | Scale::Full => (Some(inputs::judged(context)?), inputs::captures(context)?),
    };
    Ok(evaluation(&MigrcResults { tiers, judged, captures }))
}

fn evaluation(results: &MigrcResults) -> Evaluation {
    let tables = results.tiers.iter().flat_map(|inputs| {
        [rows::flushes, rows::counts, rows::per_page, rows::eligible, rows::times].map(|table| table(inputs))
    });
    let judged = results.judged.iter().map(rows::stale_hits);
    let captures = (!results.captures.is_empty()).then(|| rows::captures(&results.captures));
    let all = results.tiers.iter().chain(&results.judged).chain(&results.captures);
    Evaluation {
        name: "migrc",
        title: "read-only translations that linger when their page moves",
        isa: "x86-64",
        config: BTreeMap::from([
            ("machine".to_owned(), format!("{}, {} CPUs", inputs::PROFILE, inputs::CPUS)),
            ("numa_balancing".to_owned(), "2".to_owned()),
        ]),
        measured_on: BTreeMap::new(),
        runs: all.flat_map(InputRuns::runs).collect(),
        claims: claims::claims(results),
        tables: tables.chain(judged).chain(captures).collect(),
        plots: Vec::new(),
        notes: notes(),
    }
}

fn notes() -> Vec<String> {
    [
        "All figures are counted or modelled; no time is measured. A flush per page: tlb_batch=never, tlb_linger=never. batched: tlb_batch=auto. migration, unmap: \
         tlb_linger, too. The published before is Linux 6.7, which batches.",
        "Turnover: as many pages have been promoted as the fast node has frames. Until then most pages that leave it still have the entries with which the program \
         filled them, which allow stores and so do not linger.",
        "On the two tiers nothing is paged out, because there is no swap. So unmap is the same as migration there.",
        "G: reclaim of the fast node frees about so many frames at a time; another flush may pay for them first.",
        "The causes are counted by the counters of each, and of hint scans by the difference around each timer tick. rest: flushes at once, copy-on-write, unmapping.",
        "[low–high]: with the latencies of memory at the ends of their bands, the same on all CPUs. The costs of flushing have bands, too; all waits for flushes \
         are in the next row. The columns do not move the same pages, because time decides when scans and reclaim run; compare what is per migrated page.",
        "All events and counters of the mail are modelled. itlb.itlb_flush and tlb_flush.* count attempts that reach a TLB of a simulated CPU; the hypervisor's own \
         flushes, which the mail's guest has, are not modelled.",
    ]
    .map(str::to_owned)
    .to_vec()
}
