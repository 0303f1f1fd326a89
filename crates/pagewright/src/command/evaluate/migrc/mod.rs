//! `evaluate migrc`: measures what read-only translations save that linger in TLBs.
//!
//! - `column` – the four ways to flush, and what a run counts in each.
//! - `inputs` – the look-ups on two memory tiers, and captures in half of their memory.
//! - `rows` – the columns side by side.
//! - `published` – the figures of the series' mail.
//! - `arm64` – what lingering saves there, and what not.
//! - `variants` – pages that are written, and watermarks that are farther apart.
//! - `headline` – the figures of the tour.
//! - `claims` – the figures compared with those of the series.
//!
//! All columns are our own memory manager. The mail's before is Linux 6.7, which batches the
//! flushes of migration, so `batched` stands beside it.
//!
//! Not guaranteed: anything about real time. No cache is modelled.

mod arm64;
mod claims;
mod column;
pub(super) mod headline;
mod inputs;
mod published;
mod rows;
mod variants;

use super::{Context, EvaluateError, Evaluation, Figures, Table};
use crate::command::CommandError;
use column::{FlushColumn, InputRuns};
use inputs::InputPlan;
use std::collections::BTreeMap;

/// All results.
struct MigrcResults {
    /// The look-ups, on each machine.
    tiers: Vec<InputRuns>,
    /// Look-ups that also store.
    stores: Vec<InputRuns>,
    /// Look-ups with watermarks that are farther apart.
    gaps: Vec<InputRuns>,
    arm64: Vec<InputRuns>,
    /// Look-ups that the oracle judged.
    judged: Option<InputRuns>,
    captures: Vec<InputRuns>,
    arm64_captures: Vec<InputRuns>,
}

impl MigrcResults {
    fn run(context: &Context<'_>, plan: &InputPlan) -> Result<Self, EvaluateError> {
        let look_ups = |machines| inputs::look_ups(context, machines);
        Ok(Self {
            tiers: look_ups(&plan.tiers)?,
            stores: look_ups(&plan.stores)?,
            gaps: look_ups(&plan.gaps)?,
            arm64: look_ups(&plan.arm64)?,
            judged: look_ups(plan.judged.as_slice())?.pop(),
            captures: inputs::captures(context, plan.captures, inputs::PROFILE, &FlushColumn::ALL)?,
            arm64_captures: inputs::captures(context, plan.arm64_captures, inputs::ARM64, &FlushColumn::TRIPLE)?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &InputRuns> {
        let variants = self.stores.iter().chain(&self.gaps).chain(&self.arm64);
        let captures = self.captures.iter().chain(&self.arm64_captures);
        self.tiers.iter().chain(variants).chain(&self.judged).chain(captures)
    }

    fn tables(&self) -> Result<Vec<Table>, EvaluateError> {
        let whole = [rows::flushes, rows::counts, rows::per_page, rows::eligible, rows::times];
        let mut tables: Vec<_> = self.tiers.iter().flat_map(|inputs| whole.map(|table| table(inputs))).collect();
        tables.extend(self.stores.iter().flat_map(|inputs| [rows::flushes, rows::eligible].map(|table| table(inputs))));
        tables.extend(self.gaps.chunks(inputs::GAPS.len()).map(variants::gaps));
        tables.extend(self.judged.iter().map(rows::stale_hits));
        tables.extend(rows::captures(&self.captures));
        let arm64 = self.arm64.iter().chain(&self.arm64_captures);
        tables.extend(arm64.map(arm64::table).collect::<Result<Vec<_>, _>>()?);
        Ok(tables)
    }
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let results = MigrcResults::run(context, &InputPlan::of(context.scale)?)?;
    Ok(evaluation(&results)?)
}

fn evaluation(results: &MigrcResults) -> Result<Evaluation, EvaluateError> {
    Ok(Evaluation {
        name: "migrc",
        title: "read-only translations that linger when their page moves",
        isa: "x86-64, arm64",
        config: BTreeMap::from([
            ("machine".to_owned(), format!("{}, {} CPUs; arm64: {}", inputs::PROFILE, inputs::CPUS, inputs::ARM64)),
            ("numa_balancing".to_owned(), "2".to_owned()),
        ]),
        measured_on: BTreeMap::new(),
        figures: Figures {
            runs: results.all().flat_map(InputRuns::runs).collect(),
            tables: results.tables()?,
            plots: vec![rows::plot(results.tiers.iter().chain(&results.stores).chain(&results.arm64))],
        },
        claims: claims::claims(results),
        notes: notes(),
    })
}

fn notes() -> Vec<String> {
    [
        "All figures are counted or modelled; no time is measured. A flush per page: tlb_batch=never, tlb_linger=never. batched: tlb_batch=auto. migration, unmap: \
         tlb_linger, too. The published before is Linux 6.7, which batches.",
        "Turnover: as many pages have been promoted as the fast node has frames. Until then most pages that leave it still have the entries with which the program \
         filled them, which allow stores and so do not linger.",
        "On the two tiers nothing is paged out, because there is no swap. So unmap is the same as migration there, and runs with --full only.",
        "G: reclaim of the fast node frees about so many frames at a time; another flush may settle them first.",
        "Each remote flush has one cause: that of a hint scan by the difference around the timer tick, others by the part of nr_tlb_remote_flush that each cause \
         counts. rest: flushes at once, copy-on-write, unmapping. A settle of the own CPU alone is none.",
        "ns that a settling allocation waits: modelled waits of the operation (an access, a call, a round of background reclaim) in which it settles. Operations \
         that also wait for other flushes are left out, and counted.",
        "arm64: the TLBI of what lingers is issued when its entry is cleared; only the DSB is deferred. The alternative without these TLBIs is not built. Its row \
         is modelled, with the fewest broadcasts that G allows: from no TLB refilled to all TLBs of all CPUs, each by a walk of the mean cost of the run.",
        "[low–high]: with the latencies of memory at the ends of their bands, the same on all CPUs. The costs of flushing have bands, too; all waits for flushes \
         are in the next row. The columns do not move the same pages, because time decides when scans and reclaim run; compare what is per migrated page.",
        "All events and counters of the mail are modelled. itlb.itlb_flush and tlb_flush.* count attempts that reach a TLB of a simulated CPU; the hypervisor's own \
         flushes, which the mail's guest has, are not modelled.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests;
