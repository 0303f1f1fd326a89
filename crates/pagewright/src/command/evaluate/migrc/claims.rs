//! Compares the results with the figures of the series.
//!
//! The mail's before is Linux 6.7, which batches the flushes of migration. So ours is the column
//! `batched`. Counts are compared per migrated page, because the series migrates 15 % more pages.

use super::super::{Claim, ClaimRow, Limit, OurFigure, Unit, claims_of, promised, published};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use super::published::{COUNTS, ELAPSED, MIGRATED, PublishedCount, REMOTE, REMOTE_PER_PAGE, SERIES};
use super::rows::{FlushPart, RunPart, each, reclaimed};
use super::{MigrcResults, arm64, variants};

pub(super) fn claims(results: &MigrcResults) -> Vec<Claim> {
    let mut claims = Vec::new();
    for inputs in &results.tiers {
        claims.extend(claims_of(&FLUSHES, inputs));
        // Pages are no cost.
        let costs = COUNTS.iter().filter(|count| MIGRATED != count.counts && count.name != "numa_pages_migrated");
        claims.extend(costs.flat_map(|count| claims_of(&events(), &(inputs, count))));
        claims.extend(claims_of(&TIMES, inputs));
    }
    let parts = [(&results.stores, &STORES), (&results.gaps, &GAPS), (&results.captures, &CAPTURES)];
    let arm64 = [(&results.arm64, &ARM64_WAITS), (&results.arm64_captures, &ARM64_WAITS)];
    let tables = parts.into_iter().chain(arm64);
    claims.extend(tables.flat_map(|(all, table)| all.iter().flat_map(|inputs| claims_of(table, inputs))));
    claims
}

/// What all rows of the look-ups rest on.
const PROGRAM: &str = "look-ups as XSBench's, 4 threads on 4 CPUs; the mail has 16 CPUs";
const COSTS: &str =
    "the costs of IPIs, and of the latencies of the two tiers; no cache is modelled, so each load reaches memory";

/// The published flushes, in the columns in which translations linger.
const FLUSHES: [ClaimRow<InputRuns>; 2] = [
    remote_flushes(|inputs| flushes(inputs, FlushColumn::Migration)),
    remote_flushes(|inputs| flushes(inputs, FlushColumn::Unmap)),
];

const fn remote_flushes(find: fn(&InputRuns) -> Option<OurFigure>) -> ClaimRow<InputRuns> {
    let limit = Limit::fall(REMOTE_PER_PAGE, Unit::PerPage);
    published("Remote flushes per migrated page after the turnover", SERIES, limit).resting_on(PROGRAM).counted(find)
}

/// What the mail counts, per migrated page.
fn events<'a>() -> [ClaimRow<(&'a InputRuns, &'static PublishedCount)>; 1] {
    [published("Fewer per migrated page", SERIES, Limit::OF_RESULTS).resting_on(PROGRAM).counted(fewer)]
}

/// The published times, in the same columns.
const TIMES: [ClaimRow<InputRuns>; 2] =
    [time(|inputs| saved_time(inputs, FlushColumn::Migration)), time(|inputs| saved_time(inputs, FlushColumn::Unmap))];

const fn time(find: fn(&InputRuns) -> Option<OurFigure>) -> ClaimRow<InputRuns> {
    published("Time saved", SERIES, Limit::saved(ELAPSED, Unit::Seconds)).resting_on(COSTS).modelled(find)
}

/// Pages that are written.
pub(super) const STORES: [ClaimRow<InputRuns>; 1] = [promised(
    "Remote flushes per migrated page of written pages",
    Limit::at_most(1.02, Unit::Times).noting("of batched"),
)
.resting_on("stores at random in the look-ups; the columns do not move the same pages")
.counted(variants::stores)];

/// Watermarks that are farther apart.
pub(super) const GAPS: [ClaimRow<InputRuns>; 1] = [promised("Settles per migrated page", Limit::OF_RESULTS)
    .resting_on("half of the migrated pages are promotions, which owe nothing; other flushes settle, too")
    .counted(variants::settles_by_gap)];

/// Captures where reclaim unmaps.
const CAPTURES: [ClaimRow<InputRuns>; 1] = [promised("Remote flushes per page reclaimed, unmap", Limit::OF_RESULTS)
    .resting_on("reclaimed pages differ between the columns, because time decides when reclaim runs")
    .counted(capture)];

/// Look-ups and captures on arm64.
pub(super) const ARM64_WAITS: [ClaimRow<InputRuns>; 1] = [promised("Waits per page", Limit::OF_RESULTS)
    .resting_on(
        "4 CPUs, one tag for each space (no KPTI), no FEAT_TLBIRANGE; each TLBI is issued when its entry is cleared, \
         and a later DSB of the same CPU completes it",
    )
    .counted(arm64::waits)];

/// The causes of the flushes per migrated page, the most first.
fn causes(run: &ColumnRun, part: RunPart) -> Vec<(FlushPart, f64)> {
    let figure = |cause: FlushPart| (cause, part.per_page(run, cause.flushes(run, part)));
    let mut causes = FlushPart::ALL.map(figure).to_vec();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    causes
}

/// Remote flushes per migrated page, once the fast node has turned over.
fn flushes(inputs: &InputRuns, column: FlushColumn) -> Option<OurFigure> {
    let both = [inputs.of(FlushColumn::Batched)?, inputs.of(column)?];
    let [_, run] = both;
    let [_, limit] = REMOTE_PER_PAGE;
    let [before, ours] = both.map(|run| RunPart::Later.remote_per_page(run));
    let [whole_before, whole] = both.map(|run| each(RunPart::Whole.remote_per_page(run)));
    let causes = causes(run, RunPart::Later);
    let parts: Vec<String> = causes.iter().map(|(cause, of)| format!("{} {}", cause.name(), each(*of))).collect();
    let reason = match causes.first() {
        _ if run.tiers.at_turnover.is_none() => "the fast node has not turned over".to_owned(),
        Some((cause, of)) if ours > limit => {
            let over = causes.iter().filter(|(_, of)| *of > limit).map(|(cause, _)| cause.name());
            let over = match over.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "no cause alone is over the limit".to_owned(),
                some => format!("over the limit by themselves: {some}"),
            };
            let most = format!("most are {}, one for {:.0} migrated pages", cause.name(), 1.0 / of);
            format!("{most}; the limit is one for {:.0}; {over}", 1.0 / limit)
        }
        Some(_) | None => String::new(),
    };
    Some(OurFigure {
        of: format!("{}, {}", column.name(), inputs.input),
        details: format!("({})", parts.join(", ")),
        reason,
        leaves_out: format!("flushes before the turnover; with them {whole_before} → {whole}"),
        ..OurFigure::change([before, ours])
    })
}

/// How many times fewer there are of what the mail counts, per migrated page.
fn fewer((inputs, count): &(&InputRuns, &'static PublishedCount)) -> Option<OurFigure> {
    let of = |column| {
        let run: &ColumnRun = inputs.of(column)?;
        Some(RunPart::Whole.per_page(run, run.count(count.name)))
    };
    let (before, migration) = (of(FlushColumn::Batched)?, of(FlushColumn::Migration)?);
    let unmap = of(FlushColumn::Unmap).map_or_else(String::new, |unmap| format!("; unmap {}", each(unmap)));
    Some(OurFigure {
        of: format!("{}, {}", count.name, inputs.input),
        details: format!("({} → {}{unmap})", each(before), each(migration)),
        limit: Some(Limit::fewer(count.per_page(), Unit::PerPage)),
        ..OurFigure::exact(before / migration)
    })
}

/// The time that lingering translations save.
fn saved_time(inputs: &InputRuns, column: FlushColumn) -> Option<OurFigure> {
    let moved = |column| inputs.of(column).map_or(0, |run| run.count("pgmigrate_success"));
    Some(OurFigure {
        of: format!("{}, {}", column.name(), inputs.input),
        reason: format!("{} pages migrated → {}", moved(FlushColumn::Batched), moved(column)),
        ..inputs.saved_time(column)?.into()
    })
}

/// What a capture gains where reclaim unmaps: it sends no more flushes than batched.
fn capture(inputs: &InputRuns) -> Option<OurFigure> {
    let both = [inputs.of(FlushColumn::Batched)?, inputs.of(FlushColumn::Unmap)?];
    let change = both.map(|run| run.count(REMOTE) as f64 / reclaimed(run).max(1) as f64);
    Some(OurFigure {
        of: inputs.input.clone(),
        details: format!("({} pages linger)", both[1].count("pw_linger_pages")),
        limit: Some(Limit::at_most(change[0], Unit::PerPage).noting("as batched")),
        ..OurFigure::change(change)
    })
}

#[cfg(test)]
pub(super) mod tests;
