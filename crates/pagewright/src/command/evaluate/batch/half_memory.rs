//! Captures in half of their memory, each with `tlb_batch=never` and `tlb_batch=auto`.

use super::super::half_memory::{NAMES, PERCENT, replay_capture};
use super::super::{Context, EvaluateError, Figures, Grid, Run, run_parallel};
use super::grid::{KUNPENG, PHONE, X86};
use pagewright_capture::replay::NamedCounts;
use pagewright_mm::MmSetting;
use std::collections::BTreeMap;

const CPUS: u16 = 8;

/// Index of the report with `tlb_batch=never`.
pub(super) const BEFORE: usize = 0;
/// Index of the report with `tlb_batch=auto`.
pub(super) const AFTER: usize = 1;

/// A capture on a machine, replayed with `tlb_batch=never` and `tlb_batch=auto`.
pub(super) struct CapturePair {
    pub(super) name: &'static str,
    pub(super) profile: &'static str,
    pub(super) reports: [CaptureCosts; 2],
}

/// What a replay counted and modelled.
pub(super) struct CaptureCosts {
    pub(super) counters: NamedCounts,
    pub(super) elapsed_ns: u64,
}

impl CapturePair {
    pub(super) fn count(&self, report: usize, name: &str) -> u64 {
        self.reports[report].counters.get(name).unwrap_or(0)
    }

    /// Pages that reclaim freed.
    pub(super) fn reclaimed(&self, report: usize) -> u64 {
        self.count(report, "pgsteal_kswapd") + self.count(report, "pgsteal_direct")
    }

    fn per_page(&self, report: usize, count: u64) -> f64 {
        count as f64 / self.reclaimed(report).max(1) as f64
    }

    /// Waits of reclaim itself per page that it freed.
    pub(super) fn own_waits_per_page(&self, report: usize) -> f64 {
        self.per_page(report, self.count(report, "pw_reclaim_waits"))
    }

    /// Flushes of operations that met an entry whose flush reclaim had deferred.
    fn overtaken(&self, report: usize) -> u64 {
        self.count(report, "pw_tlb_batch_overtaken")
    }

    /// Waits per page freed that would not be there without reclaim.
    ///
    /// They are its own, and those of [`Self::overtaken`].
    pub(super) fn caused_waits_per_page(&self, report: usize) -> f64 {
        self.per_page(report, self.count(report, "pw_reclaim_waits") + self.overtaken(report))
    }

    /// Waits that reclaim does not cause: copy-on-write faults, forks, `munmap` and `mprotect`.
    pub(super) fn other_waits(&self, report: usize) -> u64 {
        let caused = self.count(report, "pw_reclaim_waits") + self.overtaken(report);
        self.count(report, "nr_tlb_remote_flush").saturating_sub(caused)
    }

    /// Modelled nanoseconds of waiting, all CPUs and operations, per page freed.
    fn waiting_per_page(&self, report: usize) -> f64 {
        self.per_page(report, self.count(report, "pw_flush_wait_ps")) / 1e3
    }

    /// Entries whose flush is deferred, per batch.
    pub(super) fn entries_per_batch(&self) -> f64 {
        self.count(AFTER, "pw_tlb_batch_entries") as f64 / self.count(AFTER, "pw_tlb_batch_flushed").max(1) as f64
    }
}

/// The results of all captures and machines.
pub(super) struct HalfMemory(pub(super) Vec<CapturePair>);

/// Replays all captures on all machines.
pub(super) fn run(context: &Context<'_>) -> Result<HalfMemory, EvaluateError> {
    let mut pairs = Vec::new();
    for name in NAMES {
        context.show_step(&format!("{name} in {PERCENT} % of its memory"));
        pairs.extend(run_parallel([PHONE, KUNPENG, X86], |profile| replay_pair(name, profile))?);
    }
    Ok(HalfMemory(pairs))
}

fn replay_pair(name: &'static str, profile: &'static str) -> Result<CapturePair, EvaluateError> {
    let replay_with = |tlb_batch: u64| {
        let report = replay_capture(name, profile, CPUS, false, [(MmSetting::TlbBatch, tlb_batch)])?;
        Ok::<_, EvaluateError>(CaptureCosts { counters: report.counters, elapsed_ns: report.modelled.elapsed_ns })
    };
    Ok(CapturePair { name, profile, reports: [replay_with(0)?, replay_with(1)?] })
}

impl HalfMemory {
    pub(super) fn figures(&self) -> Figures {
        let run = |pair: &CapturePair, report: usize, mode: &str| {
            let report = &pair.reports[report];
            Run {
                counters: report.counters.0.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
                modelled: BTreeMap::from([("elapsed_ns".to_owned(), report.elapsed_ns)]),
                ..Run::of(format!("{}, {CPUS} CPUs, {mode}", pair.profile), format!("{} in {PERCENT} %", pair.name))
            }
        };
        let ms = |pair: &CapturePair, report: usize| format!("{:.1}", pair.reports[report].elapsed_ns as f64 / 1e6);
        let refaults = |pair: &CapturePair| {
            ["workingset_refault_anon", "workingset_refault_file"]
                .map(|name| pair.count(AFTER, name))
                .iter()
                .sum::<u64>()
        };
        Grid::of(format!("Captures in {PERCENT} % of their peak memory, {CPUS} CPUs"), &self.0)
            .text("capture", |pair| pair.name)
            .text("machine", |pair| pair.profile)
            .texts(["reclaimed before", "after"], |pair| [BEFORE, AFTER].map(|report| pair.reclaimed(report)))
            .text("refaults", |pair| refaults(pair))
            .text("waits caused per page before", |pair| format!("{:.3}", pair.caused_waits_per_page(BEFORE)))
            .text("after", |pair| format!("{:.4}", pair.caused_waits_per_page(AFTER)))
            .text("of it overtaken", |pair| format!("{:.4}", pair.per_page(AFTER, pair.overtaken(AFTER))))
            .texts(["other waits before", "after"], |pair| [BEFORE, AFTER].map(|report| pair.other_waits(report)))
            .text("entries per batch", |pair| format!("{:.1}", pair.entries_per_batch()))
            .texts(["ms before", "after"], |pair| [BEFORE, AFTER].map(|report| ms(pair, report)))
            .texts(["ns waiting per page before", "after"], |pair| {
                [BEFORE, AFTER].map(|report| format!("{:.0}", pair.waiting_per_page(report)))
            })
            .with_runs(self.0.iter().flat_map(|pair| [run(pair, BEFORE, "before"), run(pair, AFTER, "after")]))
    }
}
