//! The rows that set the columns side by side: counts, causes of flushes, refusals and times.
//!
//! Key types: [`FlushPart`], a cause of remote flushes; [`REFUSALS`], the rules that keep a page
//! from lingering. Each row says whether it is counted or modelled.

use super::super::FigureKind::{self, Counted, Modelled};
use super::super::{Plot, PlotAxis, PlotScale, Stats, Table};
use super::column::{ColumnRun, InputRuns, SETTLE_PERCENTILES};
use super::published::{COUNTS, ELAPSED, PublishedCount, REMOTE};
use pagewright_capture::replay::RemoteFlushes;

/// Pages whose flush a rule decides, and the rules, by their counters.
pub(super) const REFUSALS: [(&str, &str); 7] = [
    ("pw_linger_writable", "the entry allowed stores"),
    ("pw_linger_nothing_owed", "nothing was owed: a hint entry, flushed by its scan"),
    ("pw_linger_unflushed", "a flush of the table or the space was not complete"),
    ("pw_linger_shared", "several spaces reach the table"),
    ("pw_linger_page_refused", "shared memory, or a file that has or had a writer"),
    ("pw_linger_device", "a device walks the tables"),
    ("pw_linger_no_wait", "no other CPU could hold it"),
];

/// A cause of remote flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPart {
    /// Scans that make pages inaccessible.
    Scans,
    /// Batches of pages that move or are paged out.
    Batches,
    /// Stores to pages that TLBs may still read elsewhere.
    Stores,
    /// Parked frames, in their allocation or ahead of it.
    Settles,
    /// All others: flushes at once, copy-on-write, unmapping.
    Rest,
}

impl FlushPart {
    pub(super) const ALL: [Self; 5] = [Self::Scans, Self::Batches, Self::Stores, Self::Settles, Self::Rest];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Scans => "hint scans",
            Self::Batches => "batches",
            Self::Stores => "settles for stores",
            Self::Settles => "settles of parked frames",
            Self::Rest => "rest",
        }
    }

    /// The flushes of this cause, after the turnover of the fast node or in the whole run.
    pub(super) fn flushes(self, run: &ColumnRun, part: RunPart) -> u64 {
        let scans = part.scans(run);
        let others = RemoteFlushes::of(|counter| part.count(run, counter.name())).since(scans);
        match self {
            Self::Scans => scans.all,
            Self::Batches => others.batches,
            Self::Stores => others.stores,
            Self::Settles => others.settles,
            Self::Rest => others.rest(),
        }
    }
}

/// The part of a run that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunPart {
    Whole,
    /// From the turnover of the fast node on; nothing is counted without one.
    Later,
}

impl RunPart {
    pub(super) fn count(self, run: &ColumnRun, name: &str) -> u64 {
        match self {
            Self::Whole => run.count(name),
            Self::Later => run.after_turnover(name).unwrap_or(0),
        }
    }

    /// The remote flushes of hint scans.
    fn scans(self, run: &ColumnRun) -> RemoteFlushes {
        match (self, &run.tiers.at_turnover) {
            (Self::Whole, _) => run.tiers.scans,
            (Self::Later, Some(at)) => run.tiers.scans.since(at.scans),
            (Self::Later, None) => RemoteFlushes::default(),
        }
    }

    /// Remote flushes per migrated page.
    pub(super) fn remote_per_page(self, run: &ColumnRun) -> f64 {
        self.per_page(run, self.count(run, REMOTE))
    }

    pub(super) fn per_page(self, run: &ColumnRun, count: u64) -> f64 {
        count as f64 / self.count(run, "pgmigrate_success") as f64
    }
}

/// A row: its name, its kind, and a cell for each column.
pub(super) fn row(
    name: &str,
    kind: FigureKind,
    inputs: &InputRuns,
    cell: impl Fn(&ColumnRun) -> String,
) -> Vec<String> {
    let first = [name.to_owned(), kind.name().to_owned()];
    first.into_iter().chain(inputs.columns.iter().map(|(_, run)| cell(run))).collect()
}

pub(super) fn head(first: &str, inputs: &InputRuns, more: &[&str]) -> Vec<String> {
    let columns = inputs.columns.iter().map(|(column, _)| column.name());
    [first, "kind"].into_iter().chain(columns).chain(more.iter().copied()).map(str::to_owned).collect()
}

/// A figure per page, with as many digits as it needs.
pub(super) fn each(figure: f64) -> String {
    if !figure.is_finite() {
        return "–".to_owned();
    }
    match figure {
        0.0 => "0".to_owned(),
        ..0.01 => format!("{figure:.5}"),
        ..10.0 => format!("{figure:.3}"),
        _ => format!("{figure:.0}"),
    }
}

/// The counts of the mail, and others that explain them.
pub(super) fn counts(inputs: &InputRuns) -> Table {
    let published = |count: &PublishedCount| count.counts.map(|figure| figure.to_string());
    let named = COUNTS.iter().map(|count| {
        let mut cells = row(count.name, Counted, inputs, |run| run.count(count.name).to_string());
        cells.extend(published(count));
        cells
    });
    let own = [
        "pgfault",
        "numa_hint_faults",
        "pw_spurious_fault",
        "pgpromote_success",
        "pgdemote_kswapd",
        "pgdemote_direct",
        "pw_tlb_settle_on_alloc",
        "pw_tlb_settle_ahead",
        "pw_linger_settled_for_store",
    ];
    let own = own.into_iter().map(|name| {
        let mut cells = row(name, Counted, inputs, |run| run.count(name).to_string());
        cells.extend([String::new(), String::new()]);
        cells
    });
    Table {
        title: format!("{}: counts", inputs.input),
        head: head("count", inputs, &["published before", "after"]),
        rows: named.chain(own).collect(),
    }
}

/// The counts of the mail per migrated page.
pub(super) fn per_page(inputs: &InputRuns) -> Table {
    let rows = COUNTS.iter().filter(|count| count.name != "pgmigrate_success").map(|count| {
        let figure = |run: &ColumnRun| each(RunPart::Whole.per_page(run, run.count(count.name)));
        let mut cells = row(count.name, Counted, inputs, figure);
        cells.extend(count.per_page().map(each));
        cells
    });
    Table {
        title: format!("{}: per migrated page", inputs.input),
        head: head("count", inputs, &["published before", "after"]),
        rows: rows.collect(),
    }
}

/// Remote flushes per migrated page by mechanism, for each input.
pub(super) fn plot<'a>(inputs: impl Iterator<Item = &'a InputRuns> + Clone) -> Plot {
    let points = inputs.clone().zip(0..).flat_map(|(inputs, at)| {
        let figure = |run| Stats::exact(RunPart::Whole.remote_per_page(run));
        inputs.columns.iter().map(move |(column, run)| (column.name(), at, figure(run)))
    });
    let title = "Remote flushes per page that moved, by mechanism, counted";
    let names = PlotAxis::Names(inputs.map(|inputs| inputs.input.clone()).collect());
    Plot::of(title, "flushes", PlotScale::Linear, names, points)
}

/// The frames between the low and the high watermark of the fast node.
pub(super) fn gap(run: &ColumnRun) -> u64 {
    run.tiers.low_to_high
}

/// The remote flushes by cause, and what the fast node's watermarks allow one flush to settle.
pub(super) fn flushes(inputs: &InputRuns) -> Table {
    let mut rows = vec![
        row("G: frames between low and high mark of the fast node", Counted, inputs, |run| gap(run).to_string()),
        row("frames of the fast node", Counted, inputs, |run| run.tiers.frames.to_string()),
    ];
    for (part, of) in [(RunPart::Whole, "whole run"), (RunPart::Later, "after the turnover")] {
        let count = |name: &'static str| move |run: &ColumnRun| part.count(run, name).to_string();
        rows.push(row(&format!("pages migrated, {of}"), Counted, inputs, count("pgmigrate_success")));
        rows.push(row(&format!("remote flushes, {of}"), Counted, inputs, count(REMOTE)));
        rows.push(row("  per migrated page", Counted, inputs, |run| each(part.remote_per_page(run))));
        rows.extend(FlushPart::ALL.map(|cause| {
            let figure = |run: &ColumnRun| {
                let flushes = cause.flushes(run, part);
                format!("{flushes} ({})", each(part.per_page(run, flushes)))
            };
            row(&format!("  {}", cause.name()), Counted, inputs, figure)
        }));
    }
    Table { title: format!("{}: remote flushes by cause", inputs.input), head: head("flushes", inputs, &[]), rows }
}

/// The pages that lingered, of those that a rule judged, and the rules that refused others.
pub(super) fn eligible(inputs: &InputRuns) -> Table {
    let all = judged_pages;
    let shared = |name: &'static str| {
        move |run: &ColumnRun| match all(run) {
            0 => "–".to_owned(),
            all => format!("{} ({:.2} %)", run.count(name), run.count(name) as f64 * 100.0 / all as f64),
        }
    };
    let mut rows = vec![
        row("pages that a rule judged", Counted, inputs, |run| all(run).to_string()),
        row("eligible: left in TLBs", Counted, inputs, shared("pw_linger_pages")),
    ];
    rows.extend(REFUSALS.map(|(name, rule)| row(&format!("refused: {rule}"), Counted, inputs, shared(name))));
    Table { title: format!("{}: which pages linger", inputs.input), head: head("pages", inputs, &[]), rows }
}

fn judged_pages(run: &ColumnRun) -> u64 {
    run.count("pw_linger_pages") + REFUSALS.iter().map(|(name, _)| run.count(name)).sum::<u64>()
}

/// The waits of the operations in which an allocation settled.
pub(super) fn settle_waits<'r>(inputs: &'r InputRuns, prefix: &'r str) -> impl Iterator<Item = Vec<String>> + 'r {
    let waits = SETTLE_PERCENTILES.into_iter().map(move |percent| {
        let name = format!("{prefix}ns that a settling allocation waits, p{percent} (how many)");
        row(&name, Modelled, inputs, |run| match run.settles.percentile(percent) {
            Some(picos) => format!("{} ({})", picos / 1000, run.settles.waits_ps.len()),
            None => "–".to_owned(),
        })
    });
    let mixed =
        row(&format!("{prefix}left out: also waits for others"), Counted, inputs, |run| run.settles.mixed.to_string());
    waits.chain([mixed])
}

/// Modelled times.
pub(super) fn times(inputs: &InputRuns) -> Table {
    let seconds = |stats: Stats| format!("{:.4} [{:.4}–{:.4}]", stats.median, stats.p10, stats.p90);
    let mut elapsed = row("seconds elapsed", Modelled, inputs, |run| seconds(run.elapsed()));
    elapsed.extend(ELAPSED.map(|seconds| format!("{seconds:.1}")));
    let waits = row("ms of waits for flushes, all CPUs", Modelled, inputs, |run| {
        format!("{:.3}", run.flush_wait_ns as f64 / 1e6)
    });
    let later = row("seconds elapsed after the turnover", Modelled, inputs, |run| {
        let at = run.tiers.at_turnover.as_ref().map(|at| run.elapsed_ns - at.elapsed_ns);
        at.map_or_else(|| "–".to_owned(), |nanos| format!("{:.4}", nanos as f64 / 1e9))
    });
    let mut rows = vec![elapsed, waits, later];
    rows.extend(settle_waits(inputs, ""));
    rows.iter_mut().for_each(|row| row.resize(4 + inputs.columns.len(), String::new()));
    Table {
        title: format!("{}: modelled time", inputs.input),
        head: head("time", inputs, &["published before", "after"]),
        rows,
    }
}

/// The accesses that lingering translations answer, and what the oracle found.
pub(super) fn stale_hits(judged: &InputRuns) -> Table {
    let hits = |run: &ColumnRun| run.stale_hits.map_or_else(|| "–".to_owned(), |hits| hits.to_string());
    let rows = vec![
        row("reads of a page at the frame that it left", Counted, judged, hits),
        row("pages migrated", Counted, judged, |run| run.count("pgmigrate_success").to_string()),
        row("pages that linger", Counted, judged, |run| run.count("pw_linger_pages").to_string()),
        row("findings of the oracle", Counted, judged, |run| run.findings.len().to_string()),
    ];
    Table { title: format!("{}: stale hits", judged.input), head: head("count", judged, &[]), rows }
}

/// The captures: reclaim in little memory on one node, where only `unmap` can change anything.
pub(super) fn captures(captures: &[InputRuns]) -> Table {
    const ROWS: [&str; 11] = [
        "pgsteal_kswapd",
        "pgsteal_direct",
        "pgfault",
        REMOTE,
        "pw_reclaim_waits",
        "pw_tlb_batch_waits",
        "pw_tlb_settle_waits",
        "pw_linger_pages",
        "pw_tlb_settle_on_alloc",
        "pw_tlb_settle_ahead",
        "pw_linger_settled_for_store",
    ];
    let of = |inputs: &InputRuns| {
        let named = |name: &str| format!("{}: {name}", inputs.input);
        let mut rows: Vec<_> =
            ROWS.iter().map(|name| row(&named(name), Counted, inputs, |run| run.count(name).to_string())).collect();
        rows.push(row(&named("remote flushes per page reclaimed"), Counted, inputs, |run| {
            each(run.count(REMOTE) as f64 / reclaimed(run) as f64)
        }));
        let seconds = |run: &ColumnRun| format!("{:.4}", run.elapsed().median);
        rows.push(row(&named("seconds elapsed"), Modelled, inputs, seconds));
        rows.extend(settle_waits(inputs, &named("")));
        rows
    };
    let head = captures.first().map_or_else(Vec::new, |inputs| head("count", inputs, &[]));
    let title = "Captures in half of their peak memory".to_owned();
    Table { title, head, rows: captures.iter().flat_map(of).collect() }
}

/// Pages that reclaim freed.
pub(super) fn reclaimed(run: &ColumnRun) -> u64 {
    run.count("pgsteal_kswapd") + run.count("pgsteal_direct")
}
