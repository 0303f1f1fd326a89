//! The four ways to flush that are set side by side, and what a run counts in each.
//!
//! Key types: [`FlushColumn`], the settings of a column; [`ColumnRun`], the figures of its run;
//! [`InputRuns`], the runs of all columns on one input.

use super::super::{Run, Stats};
use super::inputs::CPUS;
use pagewright_capture::replay::{NamedCounts, RemoteFlushes, ReplayReport, SettleReport, TierReport};
use pagewright_mm::MmSetting;
use std::collections::BTreeMap;

/// A column: how the flush of a page that moves or is paged out is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushColumn {
    /// Each page waits for its own flush.
    EachPage,
    /// The pages of a batch wait once.
    Batched,
    /// Read-only translations of pages that moved linger, too.
    Migration,
    /// Those of pages that reclaim unmapped linger, too.
    Unmap,
}

impl FlushColumn {
    pub(super) const ALL: [Self; 4] = [Self::EachPage, Self::Batched, Self::Migration, Self::Unmap];
    /// Before and after, where no page is paged out.
    pub(super) const PAIR: [Self; 2] = [Self::Batched, Self::Migration];
    /// The batched column and those in which translations linger.
    pub(super) const TRIPLE: [Self; 3] = [Self::Batched, Self::Migration, Self::Unmap];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EachPage => "a flush per page",
            Self::Batched => "batched",
            Self::Migration => "migration",
            Self::Unmap => "unmap",
        }
    }

    /// The values of `tlb_batch` and `tlb_linger`.
    pub(super) const fn settings(self) -> [(MmSetting, u64); 2] {
        let (batch, linger) = match self {
            Self::EachPage => (0, 0),
            Self::Batched => (1, 0),
            Self::Migration => (1, 1),
            Self::Unmap => (1, 2),
        };
        [(MmSetting::TlbBatch, batch), (MmSetting::TlbLinger, linger)]
    }
}

/// The figures of a run in one column.
pub(super) struct ColumnRun {
    pub(super) counters: NamedCounts,
    pub(super) tiers: TierReport,
    pub(super) settles: SettleReport,
    pub(super) elapsed_ns: u64,
    pub(super) flush_wait_ns: u64,
    /// The latency of memory in all loads and stores, the sum over all CPUs.
    pub(super) memory_ns: u64,
    /// The same with the latencies at the ends of their bands.
    pub(super) memory_ns_band: [u64; 2],
    /// Accesses that a lingering translation answered, as the oracle saw them, if it judged.
    pub(super) stale_hits: Option<u64>,
    /// What the oracle found.
    pub(super) findings: Vec<String>,
}

impl ColumnRun {
    pub(super) fn of(report: ReplayReport) -> Self {
        let (stale_hits, findings) = match report.oracle {
            Some(oracle) => (oracle.judged.get("O2 stale hit"), oracle.findings),
            None => (None, Vec::new()),
        };
        Self {
            counters: report.counters,
            tiers: report.tiers,
            settles: report.settles,
            elapsed_ns: report.modelled.elapsed_ns,
            flush_wait_ns: report.modelled.flush_wait_ns,
            memory_ns: report.modelled.memory_ns,
            memory_ns_band: report.modelled.memory_ns_band,
            stale_hits,
            findings,
        }
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.counters.get(name).unwrap_or(0)
    }

    /// The count of the part of the run after the turnover of the fast node; `None` without one.
    pub(super) fn after_turnover(&self, name: &str) -> Option<u64> {
        let before = self.tiers.at_turnover.as_ref()?.counters.get(name).unwrap_or(0);
        Some(self.count(name).saturating_sub(before))
    }

    /// The seconds elapsed; the band is that of the latencies of memory, the same on all CPUs.
    pub(super) fn elapsed(&self) -> Stats {
        let at = |memory_ns: u64| {
            let more = (memory_ns as f64 - self.memory_ns as f64) / f64::from(CPUS);
            (self.elapsed_ns as f64 + more) / 1e9
        };
        let [low, high] = self.memory_ns_band;
        Stats { median: at(self.memory_ns), p10: at(low), p90: at(high), samples: 3 }
    }
}

/// The percentiles of the waits of settles that are shown.
pub(super) const SETTLE_PERCENTILES: [usize; 2] = [50, 99];

/// The remote flushes of hint scans, as the document names them.
fn scans(scans: RemoteFlushes, suffix: &str) -> [(String, u64); 4] {
    let named = [
        ("scan_remote_flush", scans.all),
        ("scan_batch_waits", scans.batches),
        ("scan_settle_waits", scans.settles),
        ("scan_store_waits", scans.stores),
    ];
    named.map(|(name, count)| (format!("{name}{suffix}"), count))
}

/// The runs of one input.
pub(super) struct InputRuns {
    pub(super) input: String,
    /// In the order of [`FlushColumn::ALL`], of which some may be missing.
    pub(super) columns: Vec<(FlushColumn, ColumnRun)>,
}

impl InputRuns {
    pub(super) fn of(&self, column: FlushColumn) -> Option<&ColumnRun> {
        self.columns.iter().find(|(of, _)| *of == column).map(|(_, run)| run)
    }

    /// The part of the time that `column` saves of the batched one, over the band.
    ///
    /// At each end of the band both have the same costs.
    pub(super) fn saved_time(&self, column: FlushColumn) -> Option<Stats> {
        let (before, after) = (self.of(FlushColumn::Batched)?.elapsed(), self.of(column)?.elapsed());
        let saved = |of: fn(&Stats) -> f64| 1.0 - of(&after) / of(&before);
        let all = [saved(|time| time.median), saved(|time| time.p10), saved(|time| time.p90)];
        let least = all.into_iter().fold(f64::INFINITY, f64::min);
        let most = all.into_iter().fold(f64::NEG_INFINITY, f64::max);
        Some(Stats { median: all[0], p10: least, p90: most, samples: 3 })
    }

    /// The runs as the document has them.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.columns.iter().map(|(column, run)| {
            let named = |counters: &NamedCounts, suffix: &str| {
                let named = counters.0.iter().map(|(name, count)| (format!("{name}{suffix}"), *count));
                named.collect::<BTreeMap<_, _>>()
            };
            let mut written = Run::of(column.name().to_owned(), self.input.clone());
            written.counters = named(&run.counters, "");
            written.counters.extend(scans(run.tiers.scans, ""));
            if let Some(at) = &run.tiers.at_turnover {
                written.counters.extend(named(&at.counters, "_at_turnover"));
                written.counters.extend(scans(at.scans, "_at_turnover"));
            }
            let timed = [("settles_timed", run.settles.waits_ps.len() as u64), ("settles_mixed", run.settles.mixed)];
            written.counters.extend(timed.map(|(name, count)| (name.to_owned(), count)));
            for percent in SETTLE_PERCENTILES {
                let wait = run.settles.percentile(percent);
                written.modelled.extend(wait.map(|wait| (format!("settle_p{percent}_ps"), wait)));
            }
            written.counters.extend(run.stale_hits.map(|hits| ("stale_hits".to_owned(), hits)));
            written.modelled.insert("elapsed_ns".to_owned(), run.elapsed_ns);
            written.modelled.insert("flush_wait_ns".to_owned(), run.flush_wait_ns);
            let [low, high] = run.memory_ns_band;
            let memory = [("memory_ns", run.memory_ns), ("memory_ns_low", low), ("memory_ns_high", high)];
            written.modelled.extend(memory.map(|(name, nanos)| (name.to_owned(), nanos)));
            written
        })
    }
}
