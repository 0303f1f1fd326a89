//! Compares the results with the figures of the series and with our own promises.
//!
//! A modelled figure is judged over the whole band of the assumed costs ([`Comparison`]): it
//! reproduces a published one only if every cost in the band does.

use super::super::{Claim, Comparison, EvaluateError, FigureKind, LeastStats, Promise, Stats};
use super::BatchResults;
use super::grid::{BATCH, Cell, FEW, PHONE, PROMISED_PART, X86, percent};
use super::half_memory::{AFTER, BEFORE, CapturePair};
use super::published::{DSB_SHARE, PUBLISHED, PublishedMachine};
use pagewright_sim::Cost;

/// The message id of the series' patch that has the figures.
const SERIES: &str = "20220822082120.8347-5-yangyicong@huawei.com";
/// The reviewers' mails.
const REVIEW: &str = "the same thread";
/// What every modelled time on arm64 rests on.
const DSB_ASSUMED: &str =
    "dsb_wait and dsb_wait_each: the cost of a DSB after a broadcast is assumed, the same on all arm64 machines";

pub(super) fn claims(results: &BatchResults) -> Result<Vec<Claim>, EvaluateError> {
    let mut claims = Vec::new();
    for machine in &PUBLISHED {
        claims.extend(published(results, machine)?);
    }
    claims.extend(few_cpus(results));
    claims.extend(waits(results));
    claims.extend(saved_part(results)?);
    claims.extend(sharers(results));
    claims.extend(half_memory(results));
    Ok(claims)
}

/// The rows of one machine of the series.
fn published(results: &BatchResults, machine: &PublishedMachine) -> Result<Vec<Claim>, EvaluateError> {
    let PublishedMachine { profile, name, cpus, .. } = *machine;
    let Some(cell) = results.grid.of_the_series(profile, cpus) else { return Ok(Vec::new()) };
    let is_phone = profile == PHONE;
    let fewer = results.grid.of_the_series(profile, 32).filter(|_| !is_phone);
    let row = |what: &str, published: String, figure: Stats, at_fewer: Option<Stats>, of: f64| {
        let at_fewer = at_fewer.map_or_else(String::new, |figure| format!("; {} at 32", percent(&figure)));
        let ours = format!("{} at {cpus} CPUs{at_fewer}", percent(&figure));
        let verdict = Comparison::near(&figure, of);
        let what = format!("{what}, {profile}");
        let row = Claim::published(what, &published, SERIES, ours, FigureKind::Modelled, verdict);
        let cpus = if is_phone { "" } else { "; the number of CPUs is assumed" };
        row.resting_on(format!("{DSB_ASSUMED}{cpus}"))
    };
    let shown = |part: f64| format!("{:.1} %", part * 100.0);
    let hold = if is_phone { "" } else { ", if the phone's 95 % hold there" };
    let share = format!(
        "{:.2} % in ptep_clear_flush, 95 % of it the final DSB{hold}: {}, {:.0} ns a flush ({name})",
        machine.share * 100.0,
        shown(machine.dsb_share()),
        machine.dsb_ns()
    );
    let [before, after] = machine.elapsed;
    let elapsed = format!("{before:.2} → {after:.2} s, {} ({name})", shown(machine.elapsed_saved()));
    let [system, after] = machine.system;
    let system = format!("{system:.2} → {after:.2} s, {} ({name})", shown(machine.system_saved()));
    let (waiting, saving) = (|cell: &Cell| cell.wait_share(), |cell: &Cell| cell.saving(&cell.after));
    let expected = format!(
        "the published share implies {} for one DSB per {BATCH} pages; the mail has {}",
        shown(machine.expected()),
        shown(machine.elapsed_saved())
    );
    let mut rows = vec![
        row("Share of time waiting for flushes before", share, waiting(cell), fewer.map(waiting), machine.dsb_share()),
        row("Elapsed time of the program", elapsed, saving(cell), fewer.map(saving), machine.elapsed_saved())
            .because(expected),
        row("System time of the program", system, saving(cell), fewer.map(saving), machine.system_saved())
            .leaving_out("user time and idle time: the modelled program has less than 0.1 % of either"),
    ];
    if is_phone {
        let what = "Share of ptep_clear_flush that is the final DSB";
        rows.push(row(what, "95 % (perf annotate)".to_owned(), cell.wait_share_of_flush()?, None, DSB_SHARE));
    }
    Ok(rows)
}

/// The reviewers' figures for systems with few CPUs.
fn few_cpus(results: &BatchResults) -> Option<Claim> {
    let forced = |cpus| {
        let cell = results.grid.of_the_series(PHONE, cpus)?;
        cell.forced.as_ref().map(|cost| cell.saving(cost))
    };
    let (one, few, eight) = (forced(1)?, forced(FEW)?, results.grid.of_the_series(PHONE, 8)?);
    let ours = format!(
        "saved {} at 1 CPU and {} at {FEW}, {} at 8",
        percent(&one),
        percent(&few),
        percent(&eight.saving(&eight.after))
    );
    let published = "less than 1 % for flushes even with four cores (Cortex-A55), an obvious cost with eight";
    let verdict = Comparison::over_band(few.median < 0.01, [few.p90 < 0.01]);
    let what = "Deferring flushes with few CPUs, snapdragon888";
    let row = Claim::published(what, published, REVIEW, ours, FigureKind::Modelled, verdict);
    let reason = "the profile is a Cortex-X1 with the cost of a barrier of a large machine";
    Some(row.because(reason).resting_on(DSB_ASSUMED))
}

/// The cell with the highest `figure`.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, figure: impl Fn(&Cell) -> f64) -> Option<(f64, &'a Cell)> {
    cells.map(|cell| (figure(cell), cell)).max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Whether there is at most one wait for each batch of pages.
fn waits_once_a_batch(waits_per_page: f64) -> bool {
    waits_per_page <= 1.0 / BATCH as f64
}

/// Waits per page, which are counted.
fn waits(results: &BatchResults) -> Vec<Claim> {
    let cases = [
        ("Waits per page, one process", 1, false),
        ("Waits per page, 100 sharers", 100, false),
        ("Waits per page, one process, all entries dirty", 1, true),
        ("Waits per page, 100 sharers, all entries dirty", 100, true),
    ];
    let row = |(what, sharers, stores)| {
        let cells = |multiprocessor: bool| {
            let all = results.grid.cells.iter();
            all.filter(move |cell| (cell.setup.cpus > 1) == multiprocessor)
                .filter(move |cell| cell.setup.sharers == sharers && cell.setup.stores == stores)
        };
        let (after, at) = worst(cells(true), |cell| cell.after.waits())?;
        let before = worst(cells(true), |cell| cell.before.waits()).map_or(0.0, |(before, _)| before);
        let ours = format!("{before:.3} → {after:.4} at worst ({})", at.setup.text());
        let verdict = Promise::kept(waits_once_a_batch(after));
        let row = Claim::promised(what, "1.0 → at most 1/32 (0.0313)", ours, FigureKind::Counted, verdict);
        Some(match worst(cells(false), |cell| cell.after.waits()) {
            Some((alone, _)) => row.leaving_out(format!("one CPU, where nothing is deferred: {alone:.3} after")),
            None => row,
        })
    };
    cases.into_iter().filter_map(row).collect()
}

/// What a batch saves of the time that one wait for 32 pages could save.
fn saved_part(results: &BatchResults) -> Result<Option<Claim>, EvaluateError> {
    let cells = results.grid.cells.iter().filter(|cell| cell.setup.cpus > 1);
    let parts = cells.filter_map(|cell| Some((cell.saved_part()?, cell)));
    let Some(least) = LeastStats::of(parts) else { return Ok(None) };
    let ((given, given_at), (low, low_at)) = (least.median, least.low);
    let whole = |part: f64| format!("{:.1} %", part * 100.0);
    let ours = format!(
        "{} at worst ({}); {} at worst over the band ({})",
        whole(given.median),
        given_at.setup.text(),
        whole(low.p10),
        low_at.setup.text()
    );
    let what = "Time saved, as a part of the share of waiting before × (1 − 1/32)";
    let row = Claim::promised(
        what,
        "at least 90 %",
        ours,
        FigureKind::Modelled,
        Promise::at_least(&least.figure(), PROMISED_PART),
    );
    let profile = given_at.setup.given_profile()?;
    let assumed = profile.cost(Cost::TlbiComplete).raw() as f64 / 1e3;
    let limit = match results.grid.tlbi_limit {
        Some(limit) => {
            let limit = limit.raw() / 1000;
            format!("from {limit} ns on, less than 90 % is saved on {PHONE} with 8 CPUs")
        }
        None => format!("no cost in its band changes the verdict on {PHONE} with 8 CPUs"),
    };
    let kunpeng = &PUBLISHED[1];
    let reason = format!(
        "invalidations that take longer to complete than the next page takes to unmap queue up before the one DSB; by the mail the {} saved {} of it",
        kunpeng.profile,
        whole(kunpeng.elapsed_saved() / kunpeng.expected())
    );
    let rests = format!("tlbi_complete, {assumed:.0} ns for each TLBI, measured on another machine: {limit}");
    Ok(Some(row.because(reason).resting_on(rests).leaving_out("one CPU; broadcasts of other CPUs at the same time")))
}

/// N sharers of a page cost N edits of entries and one wait for each batch.
fn sharers(results: &BatchResults) -> Option<Claim> {
    let of = |sharers| {
        results.grid.cells.iter().find(|cell| {
            cell.setup.profile == X86 && cell.setup.cpus == 128 && cell.setup.sharers == sharers && !cell.setup.stores
        })
    };
    let (ten, hundred) = (of(10)?, of(100)?);
    let ours = format!(
        "{:.1} entries and {:.4} waits with 10 sharers, {:.1} and {:.4} with 100 (icelake, 128 CPUs)",
        ten.after.entries(),
        ten.after.waits(),
        hundred.after.entries(),
        hundred.after.waits()
    );
    let is_kept =
        |cell: &Cell| cell.after.entries() <= f64::from(cell.setup.sharers) && waits_once_a_batch(cell.after.waits());
    let limit = "N sharers cost N edits of entries, and one wait for 32 pages (0.0313)";
    let verdict = Promise::kept(is_kept(ten) && is_kept(hundred));
    Some(Claim::promised("Sharers of a page", limit, ours, FigureKind::Counted, verdict))
}

/// Waits that reclaim and its deferred flushes cause in the captures.
fn half_memory(results: &BatchResults) -> Option<Claim> {
    let waits = |pair: &CapturePair| pair.caused_waits_per_page(AFTER);
    let worst = results.half_memory.0.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)))?;
    let ours = format!(
        "{:.3} → {:.4} at worst ({} on {}), {:.4} of it reclaim's own; batches of {:.1} entries",
        worst.caused_waits_per_page(BEFORE),
        waits(worst),
        worst.name,
        worst.profile,
        worst.own_waits_per_page(AFTER),
        worst.entries_per_batch(),
    );
    let what =
        "Waits that reclaim and its deferred flushes cause, per page reclaimed, captures in half of their peak memory";
    let verdict = Promise::kept(waits_once_a_batch(waits(worst)));
    let row = Claim::promised(what, "1.0 → at most 1/32 (0.0313)", ours, FigureKind::Counted, verdict);
    let other = worst.other_waits(AFTER);
    Some(row.leaving_out(format!("{other} waits for copy-on-write faults, forks, munmap and mprotect")))
}

#[cfg(test)]
mod tests;
