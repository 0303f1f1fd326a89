//! Compares the results with the figures of the series.
//!
//! The mail's before is Linux 6.7, which batches the flushes of migration. So ours is the column
//! `batched`. Counts are compared per migrated page, because the series migrates 15 % more pages.

use super::super::{Claim, Comparison, FigureKind, Promise, Stats};
use super::column::{ColumnRun, FlushColumn, InputRuns};
use super::published::{COUNTS, ELAPSED, MIGRATED, PublishedCount, SERIES, remote_per_page};
use super::rows::{FlushPart, RunPart, each, reclaimed};
use super::{MigrcResults, arm64, variants};

/// What all rows of the look-ups rest on.
const PROGRAM: &str = "look-ups as XSBench's, 4 threads on 4 CPUs; the mail has 16 CPUs";

pub(super) fn claims(results: &MigrcResults) -> Vec<Claim> {
    let mut claims = Vec::new();
    for inputs in &results.tiers {
        for column in FlushColumn::LINGERING {
            claims.extend(remote_flushes(inputs, column));
        }
        claims.extend(COUNTS.iter().filter_map(|count| fewer(inputs, count)));
        claims.extend(FlushColumn::LINGERING.into_iter().filter_map(|column| time(inputs, column)));
    }
    claims.extend(results.stores.iter().filter_map(variants::stores));
    claims.extend(results.gaps.iter().filter_map(variants::gap_claim));
    claims.extend(results.captures.iter().filter_map(capture));
    claims.extend(results.arm64.iter().chain(&results.arm64_captures).filter_map(arm64::claim));
    claims
}

/// The causes of the flushes per migrated page, the most first.
fn causes(run: &ColumnRun, part: RunPart) -> Vec<(FlushPart, f64)> {
    let figure = |cause: FlushPart| (cause, part.per_page(run, cause.flushes(run, part)));
    let mut causes = FlushPart::ALL.map(figure).to_vec();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    causes
}

/// Remote flushes per migrated page, once the fast node has turned over.
fn remote_flushes(inputs: &InputRuns, column: FlushColumn) -> Option<Claim> {
    let (batched, run) = (inputs.of(FlushColumn::Batched)?, inputs.of(column)?);
    let [before, limit] = remote_per_page();
    let published = format!("{before:.4} → {limit:.5}, so at most {limit:.5}");
    let what = format!("Remote flushes per migrated page after the turnover, {}, {}", column.name(), inputs.input);
    let ours = RunPart::Later.remote_per_page(run);
    let whole = RunPart::Whole;
    let before = RunPart::Later.remote_per_page(batched);
    let causes = causes(run, RunPart::Later);
    let parts: Vec<String> = causes.iter().map(|(cause, of)| format!("{} {}", cause.name(), each(*of))).collect();
    let shown = format!("{} → {}: {}", each(before), each(ours), parts.join(", "));
    let verdict = Comparison::less(&Stats::of(vec![ours]), limit);
    let row = Claim::published(what, &published, SERIES, shown, FigureKind::Counted, verdict);
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
    let left = format!(
        "flushes before the turnover; with them {} → {}",
        each(whole.remote_per_page(batched)),
        each(whole.remote_per_page(run))
    );
    Some(row.because(reason).leaving_out(left).resting_on(PROGRAM))
}

/// How many times fewer there are of what the mail counts, per migrated page.
fn fewer(inputs: &InputRuns, count: &PublishedCount) -> Option<Claim> {
    // Pages are no cost.
    if MIGRATED == count.counts || count.name == "numa_pages_migrated" {
        return None;
    }
    let of = |column| {
        let run: &ColumnRun = inputs.of(column)?;
        Some(RunPart::Whole.per_page(run, run.count(count.name)))
    };
    let (before, migration) = (of(FlushColumn::Batched)?, of(FlushColumn::Migration)?);
    let unmap = of(FlushColumn::Unmap).map_or_else(String::new, |unmap| format!("; unmap {}", each(unmap)));
    let [published_before, after] = count.per_page();
    let published = format!("{} → {}, {:.2} ×", each(published_before), each(after), count.factor());
    let factor = before / migration;
    let ours = format!("{} → {}, {factor:.2} ×{unmap}", each(before), each(migration));
    let what = format!("{} per migrated page, fewer by, {}", count.name, inputs.input);
    let verdict = Comparison::more(&Stats::of(vec![factor]), count.factor());
    Some(Claim::published(what, &published, SERIES, ours, FigureKind::Counted, verdict).resting_on(PROGRAM))
}

/// The time that lingering translations save.
fn time(inputs: &InputRuns, column: FlushColumn) -> Option<Claim> {
    let saved = inputs.saved_time(column)?;
    let [before, after] = ELAPSED;
    let published_part = 1.0 - after / before;
    let published = format!("{before:.1} → {after:.1} s, {:.1} %", published_part * 100.0);
    let percent = |part: f64| part * 100.0;
    let ours = format!("{:.4} % [{:.4}–{:.4}]", percent(saved.median), percent(saved.p10), percent(saved.p90));
    let what = format!("Time saved, {}, {}", column.name(), inputs.input);
    let verdict = Comparison::near(&saved, published_part);
    let row = Claim::published(what, &published, SERIES, ours, FigureKind::Modelled, verdict);
    let moved = |column| inputs.of(column).map_or(0, |run| run.count("pgmigrate_success"));
    let reason = format!("{} pages migrated → {}", moved(FlushColumn::Batched), moved(column));
    let rests =
        "the costs of IPIs, and of the latencies of the two tiers; no cache is modelled, so each load reaches memory";
    Some(row.because(reason).resting_on(rests))
}

/// What a capture gains where reclaim unmaps; a promise that it sends no more flushes.
fn capture(inputs: &InputRuns) -> Option<Claim> {
    let (batched, unmap) = (inputs.of(FlushColumn::Batched)?, inputs.of(FlushColumn::Unmap)?);
    let per_page = |run: &ColumnRun| run.count("nr_tlb_remote_flush") as f64 / reclaimed(run).max(1) as f64;
    let (before, after) = (per_page(batched), per_page(unmap));
    let ours = format!("{} → {}, {} pages linger", each(before), each(after), unmap.count("pw_linger_pages"));
    let what = format!("Remote flushes per page reclaimed, unmap, {}", inputs.input);
    let verdict = Promise::at_most(&Stats::of(vec![after]), before);
    Some(
        Claim::promised(what, "no more than batched", ours, FigureKind::Counted, verdict)
            .resting_on("reclaimed pages differ between the columns, because time decides when reclaim runs"),
    )
}

#[cfg(test)]
pub(super) mod tests;
