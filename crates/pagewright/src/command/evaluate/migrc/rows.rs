//! The rows that set the columns side by side: counts, causes of flushes, refusals and times.
//!
//! Key types: [`FlushPart`], a cause of remote flushes; [`REFUSALS`], the rules that keep a page
//! from lingering. Each row says whether it is counted or modelled.

use super::super::FigureKind::{self, Counted, Modelled};
use super::super::{Grid, Plot, PlotAxis, PlotScale, Stats, Table};
use super::column::{ColumnRun, InputRuns, SETTLE_PERCENTILES};
use super::published::{COUNTS, ELAPSED, REMOTE};
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

/// A row of a table that sets runs side by side: its name, its kind, and its cell of a run.
pub(super) struct ColumnRow<'a> {
    name: String,
    kind: FigureKind,
    cell: Box<dyn Fn(&ColumnRun) -> String + 'a>,
    /// The mail's figures before and after.
    published: Option<[String; 2]>,
}

impl<'a> ColumnRow<'a> {
    pub(super) fn counted(name: impl Into<String>, cell: impl Fn(&ColumnRun) -> String + 'a) -> Self {
        Self { name: name.into(), kind: Counted, cell: Box::new(cell), published: None }
    }

    pub(super) fn modelled(name: impl Into<String>, cell: impl Fn(&ColumnRun) -> String + 'a) -> Self {
        Self { kind: Modelled, ..Self::counted(name, cell) }
    }

    /// The row of a counter, by another name.
    pub(super) fn of_counter(name: impl Into<String>, counter: &'a str) -> Self {
        Self::counted(name, |run| run.count(counter).to_string())
    }

    fn published(self, published: [String; 2]) -> Self {
        Self { published: Some(published), ..self }
    }
}

/// The table of runs side by side, each with the heading of its column.
pub(super) fn side_by_side<'a>(
    title: impl Into<String>,
    first: &str,
    rows: impl IntoIterator<Item = ColumnRow<'a>>,
    runs: impl IntoIterator<Item = (String, &'a ColumnRun)>,
) -> Table {
    let rows: Vec<_> = rows.into_iter().collect();
    let has_published = rows.iter().any(|row| row.published.is_some());
    let named = Grid::of(title, rows).text(first, |row| row.name.clone()).text("kind", |row| row.kind.name());
    let columns = runs.into_iter().fold(named, |grid, (head, run)| grid.text(head, |row| (row.cell)(run)));
    if !has_published {
        return columns.table();
    }
    columns
        .texts(["published before", "after"], |row| row.published.clone().map_or([None, None], |both| both.map(Some)))
        .table()
}

/// The table of the columns of one input.
pub(super) fn table<'a>(
    inputs: &'a InputRuns,
    (of, first): (&str, &str),
    rows: impl IntoIterator<Item = ColumnRow<'a>>,
) -> Table {
    let runs = inputs.columns.iter().map(|(column, run)| (column.name().to_owned(), run));
    side_by_side(format!("{}: {of}", inputs.input), first, rows, runs)
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
    let named = COUNTS.iter().map(|count| {
        ColumnRow::of_counter(count.name, count.name).published(count.counts.map(|figure| figure.to_string()))
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
    table(inputs, ("counts", "count"), named.chain(own.map(|name| ColumnRow::of_counter(name, name))))
}

/// The counts of the mail per migrated page.
pub(super) fn per_page(inputs: &InputRuns) -> Table {
    let rows = COUNTS.iter().filter(|count| count.name != "pgmigrate_success").map(|count| {
        let figure = |run: &ColumnRun| each(RunPart::Whole.per_page(run, run.count(count.name)));
        ColumnRow::counted(count.name, figure).published(count.per_page().map(each))
    });
    table(inputs, ("per migrated page", "count"), rows)
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
        ColumnRow::counted("G: frames between low and high mark of the fast node", |run| gap(run).to_string()),
        ColumnRow::counted("frames of the fast node", |run| run.tiers.frames.to_string()),
    ];
    for (part, of) in [(RunPart::Whole, "whole run"), (RunPart::Later, "after the turnover")] {
        let count = |name: &'static str| move |run: &ColumnRun| part.count(run, name).to_string();
        rows.push(ColumnRow::counted(format!("pages migrated, {of}"), count("pgmigrate_success")));
        rows.push(ColumnRow::counted(format!("remote flushes, {of}"), count(REMOTE)));
        rows.push(ColumnRow::counted("  per migrated page", move |run| each(part.remote_per_page(run))));
        rows.extend(FlushPart::ALL.map(|cause| {
            ColumnRow::counted(format!("  {}", cause.name()), move |run| {
                let flushes = cause.flushes(run, part);
                format!("{flushes} ({})", each(part.per_page(run, flushes)))
            })
        }));
    }
    table(inputs, ("remote flushes by cause", "flushes"), rows)
}

/// The pages that lingered, of those that a rule judged, and the rules that refused others.
pub(super) fn eligible(inputs: &InputRuns) -> Table {
    let shared = |name: &'static str| {
        move |run: &ColumnRun| match judged_pages(run) {
            0 => "–".to_owned(),
            all => format!("{} ({:.2} %)", run.count(name), run.count(name) as f64 * 100.0 / all as f64),
        }
    };
    let rows = [
        ColumnRow::counted("pages that a rule judged", |run| judged_pages(run).to_string()),
        ColumnRow::counted("eligible: left in TLBs", shared("pw_linger_pages")),
    ];
    let refused = REFUSALS.map(|(name, rule)| ColumnRow::counted(format!("refused: {rule}"), shared(name)));
    table(inputs, ("which pages linger", "pages"), rows.into_iter().chain(refused))
}

fn judged_pages(run: &ColumnRun) -> u64 {
    run.count("pw_linger_pages") + REFUSALS.iter().map(|(name, _)| run.count(name)).sum::<u64>()
}

/// The waits of the operations in which an allocation settled.
pub(super) fn settle_waits<'a>(prefix: &str) -> impl Iterator<Item = ColumnRow<'a>> {
    let waits = SETTLE_PERCENTILES.map(|percent| {
        let name = format!("{prefix}ns that a settling allocation waits, p{percent} (how many)");
        ColumnRow::modelled(name, move |run| match run.settles.percentile(percent) {
            Some(picos) => format!("{} ({})", picos / 1000, run.settles.waits_ps.len()),
            None => "–".to_owned(),
        })
    });
    let mixed = format!("{prefix}left out: also waits for others");
    waits.into_iter().chain([ColumnRow::counted(mixed, |run| run.settles.mixed.to_string())])
}

/// Modelled times.
pub(super) fn times(inputs: &InputRuns) -> Table {
    let rows = [
        ColumnRow::modelled("seconds elapsed", |run| {
            let Stats { median, p10, p90, .. } = run.elapsed();
            format!("{median:.4} [{p10:.4}–{p90:.4}]")
        })
        .published(ELAPSED.map(|seconds| format!("{seconds:.1}"))),
        ColumnRow::modelled("ms of waits for flushes, all CPUs", |run| {
            format!("{:.3}", run.flush_wait_ns as f64 / 1e6)
        }),
        ColumnRow::modelled("seconds elapsed after the turnover", |run| {
            let at = run.tiers.at_turnover.as_ref().map(|at| run.elapsed_ns - at.elapsed_ns);
            at.map_or_else(|| "–".to_owned(), |nanos| format!("{:.4}", nanos as f64 / 1e9))
        }),
    ];
    table(inputs, ("modelled time", "time"), rows.into_iter().chain(settle_waits("")))
}

/// The accesses that lingering translations answer, and what the oracle found.
pub(super) fn stale_hits(judged: &InputRuns) -> Table {
    let rows = [
        ColumnRow::counted("reads of a page at the frame that it left", |run| {
            run.stale_hits.map_or_else(|| "–".to_owned(), |hits| hits.to_string())
        }),
        ColumnRow::of_counter("pages migrated", "pgmigrate_success"),
        ColumnRow::of_counter("pages that linger", "pw_linger_pages"),
        ColumnRow::counted("findings of the oracle", |run| run.findings.len().to_string()),
    ];
    table(judged, ("stale hits", "count"), rows)
}

/// A capture: reclaim in little memory on one node, where only `unmap` can change anything.
fn capture(inputs: &InputRuns) -> Table {
    let counters = [
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
    let named = |name: &str| format!("{}: {name}", inputs.input);
    let others = [
        ColumnRow::counted(named("remote flushes per page reclaimed"), |run| {
            each(run.count(REMOTE) as f64 / reclaimed(run) as f64)
        }),
        ColumnRow::modelled(named("seconds elapsed"), |run| format!("{:.4}", run.elapsed().median)),
    ];
    let rows = counters.map(|name| ColumnRow::of_counter(named(name), name)).into_iter().chain(others);
    table(inputs, ("", "count"), rows.chain(settle_waits(&named(""))))
}

/// The captures, one below the other.
pub(super) fn captures(captures: &[InputRuns]) -> Option<Table> {
    let tables = captures.iter().map(capture).reduce(|mut all, of| {
        all.rows.extend(of.rows);
        all
    });
    Some(Table { title: "Captures in half of their peak memory".to_owned(), ..tables? })
}

/// Pages that reclaim freed.
pub(super) fn reclaimed(run: &ColumnRun) -> u64 {
    run.count("pgsteal_kswapd") + run.count("pgsteal_direct")
}
