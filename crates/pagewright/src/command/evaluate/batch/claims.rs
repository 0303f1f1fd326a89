//! Compares the results with the figures of the series and with our own promises.
//!
//! A modelled figure is judged over the whole band of the assumed costs: it reproduces a published
//! one only if every cost in the band does.

use super::super::{Claim, ClaimRow, LeastStats, Limit, OurFigure, Stats, Unit, claims_of, promised, published};
use super::BatchResults;
use super::grid::{BATCH, Cell, FEW, PHONE, PROMISED_PART, X86};
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
const ONCE_A_BATCH: Limit = Limit::at_most(1.0 / BATCH as f64, Unit::PerPage);

pub(super) fn claims(results: &BatchResults) -> Vec<Claim> {
    let mut claims: Vec<Claim> = PUBLISHED.iter().flat_map(|machine| of_the_series(results, machine)).collect();
    claims.extend(claims_of(&CLAIMS, results));
    claims
}

/// The rows that are not about a single machine of the series.
const CLAIMS: [ClaimRow<BatchResults>; 8] = [
    published(
        "Deferring flushes with few CPUs, snapdragon888",
        REVIEW,
        Limit::at_most(0.01, Unit::Percent)
            .noting("for flushes with four cores of Cortex-A55; an obvious cost with eight"),
    )
    .because("the profile is a Cortex-X1 with the cost of a barrier of a large machine")
    .resting_on(DSB_ASSUMED)
    .modelled(few_cpus),
    promised("Waits per page, one process", ONCE_A_BATCH).counted(|results| waits(results, 1, false)),
    promised("Waits per page, 100 sharers", ONCE_A_BATCH).counted(|results| waits(results, 100, false)),
    promised("Waits per page, one process, all entries dirty", ONCE_A_BATCH).counted(|results| waits(results, 1, true)),
    promised("Waits per page, 100 sharers, all entries dirty", ONCE_A_BATCH)
        .counted(|results| waits(results, 100, true)),
    promised(
        "Time saved, as a part of the share of waiting before × (1 − 1/32)",
        Limit::at_least(PROMISED_PART, Unit::Percent),
    )
    .leaving_out("one CPU; broadcasts of other CPUs at the same time")
    .modelled(saved_part),
    promised(
        "Sharers of a page",
        Limit::holds("N sharers cost N edits of entries, and one wait for each batch of pages"),
    )
    .counted(sharers),
    promised(
        "Waits that reclaim and its deferred flushes cause, per page reclaimed, captures in half of their peak memory",
        ONCE_A_BATCH,
    )
    .counted(half_memory),
];

/// The program of the series on one of its machines, and on 32 CPUs where it has more.
struct OnMachine<'a> {
    machine: &'static PublishedMachine,
    cell: &'a Cell,
    fewer: Option<&'a Cell>,
}

/// The rows of each machine of the series.
fn machine_claims<'a>() -> [ClaimRow<OnMachine<'a>>; 4] {
    let head = |what| published(what, SERIES, Limit::OF_RESULTS).resting_on(DSB_ASSUMED);
    [
        head("Share of time waiting for flushes before").modelled(|on| Some(on.share())),
        head("Elapsed time of the program").modelled(|on| {
            let [implied, saved] =
                [on.machine.expected(), on.machine.elapsed_saved()].map(|part| Unit::Percent.exact(part));
            let reason =
                format!("the published share implies {implied} for one DSB per {BATCH} pages; the mail has {saved}");
            Some(OurFigure { reason, ..on.saving(on.machine.elapsed) })
        }),
        head("System time of the program")
            .leaving_out("user time and idle time: the modelled program has less than 0.1 % of either")
            .modelled(|on| Some(on.saving(on.machine.system))),
        head("Share of ptep_clear_flush that is the final DSB").modelled(|on| {
            let share = on.cell.wait_share_of_flush().ok().filter(|_| on.machine.profile == PHONE)?;
            let limit = Limit::near(DSB_SHARE, Unit::Percent).noting("perf annotate");
            Some(on.figure(limit, |_| share))
        }),
    ]
}

fn of_the_series(results: &BatchResults, machine: &'static PublishedMachine) -> Vec<Claim> {
    let cell = |cpus| results.grid.of_the_series(machine.profile, cpus);
    let fewer = cell(32).filter(|_| machine.profile != PHONE);
    cell(machine.cpus).map_or_else(Vec::new, |cell| claims_of(&machine_claims(), &OnMachine { machine, cell, fewer }))
}

impl OnMachine<'_> {
    fn figure(&self, limit: Limit, of: impl Fn(&Cell) -> Stats) -> OurFigure {
        let at_fewer = self.fewer.map_or_else(String::new, |cell| format!("; {} at 32", Unit::Percent.text(&of(cell))));
        let assumed = if self.machine.profile == PHONE { "" } else { "the number of CPUs is assumed" };
        OurFigure {
            of: self.machine.profile.to_owned(),
            details: format!("at {} CPUs{at_fewer}", self.machine.cpus),
            limit: Some(limit),
            rests_on: assumed.to_owned(),
            ..of(self.cell).into()
        }
    }

    fn share(&self) -> OurFigure {
        let machine = self.machine;
        let hold = if machine.profile == PHONE { "" } else { ", if the phone's part holds there" };
        let [flush, dsb] = [machine.share, DSB_SHARE].map(|part| Unit::Percent.exact(part));
        let reason = format!(
            "the mail has {flush} in ptep_clear_flush, {dsb} of it the final DSB{hold}: {:.0} ns a flush",
            machine.dsb_ns()
        );
        let limit = Limit::near(machine.dsb_share(), Unit::Percent).noting(machine.name);
        OurFigure { reason, ..self.figure(limit, Cell::wait_share) }
    }

    /// The time saved, beside the seconds of the mail.
    fn saving(&self, seconds: [f64; 2]) -> OurFigure {
        let limit = Limit::saved(seconds, Unit::Seconds).noting(self.machine.name);
        self.figure(limit, |cell| cell.saving(&cell.after))
    }
}

/// What forced deferral saves with few CPUs.
fn few_cpus(results: &BatchResults) -> Option<OurFigure> {
    let forced = |cpus| {
        let cell = results.grid.of_the_series(PHONE, cpus)?;
        cell.forced.as_ref().map(|cost| cell.saving(cost))
    };
    let (one, few, eight) = (forced(1)?, forced(FEW)?, results.grid.of_the_series(PHONE, 8)?);
    let [one, eight] = [one, eight.saving(&eight.after)].map(|saving| Unit::Percent.text(&saving));
    Some(OurFigure { details: format!("saved at {FEW} CPUs, {one} at 1 and {eight} at 8"), ..few.into() })
}

/// The cell with the highest `figure`.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, figure: impl Fn(&Cell) -> f64) -> Option<(f64, &'a Cell)> {
    cells.map(|cell| (figure(cell), cell)).max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The most waits per page with so many sharers.
fn waits(results: &BatchResults, sharers: u32, stores: bool) -> Option<OurFigure> {
    let cells = |multiprocessor: bool| {
        let of_setup = move |cell: &&Cell| cell.setup.sharers == sharers && cell.setup.stores == stores;
        results.grid.cells.iter().filter(of_setup).filter(move |cell| (cell.setup.cpus > 1) == multiprocessor)
    };
    let (after, at) = worst(cells(true), |cell| cell.after.waits())?;
    let (before, _) = worst(cells(true), |cell| cell.before.waits())?;
    let alone = worst(cells(false), |cell| cell.after.waits());
    let alone =
        alone.map(|(alone, _)| format!("one CPU, where nothing is deferred: {} after", Unit::PerPage.exact(alone)));
    Some(OurFigure {
        details: format!("at worst ({})", at.setup.text()),
        leaves_out: alone.unwrap_or_default(),
        ..OurFigure::change([before, after])
    })
}

/// What a batch saves of the time that one wait for 32 pages could save.
fn saved_part(results: &BatchResults) -> Option<OurFigure> {
    let cells = results.grid.cells.iter().filter(|cell| cell.setup.cpus > 1);
    let least = LeastStats::of(cells.filter_map(|cell| Some((cell.saved_part()?, cell))))?;
    let profile = least.median.1.setup.given_profile().ok()?;
    let assumed = profile.cost(Cost::TlbiComplete).raw() as f64 / 1e3;
    let promised = Unit::Percent.exact(PROMISED_PART);
    let limit = match results.grid.tlbi_limit {
        Some(limit) => {
            format!("from {} ns on, less than {promised} is saved on {PHONE} with 8 CPUs", limit.raw() / 1000)
        }
        None => format!("no cost in its band changes the verdict on {PHONE} with 8 CPUs"),
    };
    let kunpeng = &PUBLISHED[1];
    let reason = format!(
        "invalidations that take longer to complete than the next page takes to unmap queue up before the one DSB; by the mail the {} saved {} of it",
        kunpeng.profile,
        Unit::Percent.exact(kunpeng.elapsed_saved() / kunpeng.expected())
    );
    let rests_on = format!("tlbi_complete, {assumed:.0} ns for each TLBI, measured on another machine: {limit}");
    Some(OurFigure { reason, rests_on, ..OurFigure::least(&least, |cell| cell.setup.text()) })
}

/// Edits and waits with 10 and with 100 sharers of a page.
fn sharers(results: &BatchResults) -> Option<OurFigure> {
    let of = |sharers| {
        results.grid.cells.iter().find(|cell| {
            cell.setup.profile == X86 && cell.setup.cpus == 128 && cell.setup.sharers == sharers && !cell.setup.stores
        })
    };
    let both = [of(10)?, of(100)?];
    let [ten, hundred] =
        both.map(|cell| format!("{:.1} entries and {:.4} waits", cell.after.entries(), cell.after.waits()));
    let is_kept = |cell: &Cell| {
        cell.after.entries() <= f64::from(cell.setup.sharers) && cell.after.waits() <= ONCE_A_BATCH.figure()
    };
    let ours = format!("{ten} with 10 sharers, {hundred} with 100 (icelake, 128 CPUs)");
    Some(OurFigure::holds(both.into_iter().all(is_kept), ours))
}

/// Waits that reclaim and its deferred flushes cause in the captures.
fn half_memory(results: &BatchResults) -> Option<OurFigure> {
    let waits = |pair: &CapturePair| pair.caused_waits_per_page(AFTER);
    let worst = results.half_memory.0.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)))?;
    let details = format!(
        "at worst ({} on {}), {:.4} of it reclaim's own; batches of {:.1} entries",
        worst.name,
        worst.profile,
        worst.own_waits_per_page(AFTER),
        worst.entries_per_batch(),
    );
    Some(OurFigure {
        details,
        leaves_out: format!("{} waits for copy-on-write faults, forks, munmap and mprotect", worst.other_waits(AFTER)),
        ..OurFigure::change([worst.caused_waits_per_page(BEFORE), waits(worst)])
    })
}

#[cfg(test)]
mod tests;
