//! Compares the results with the figures of the series and with our own promises.

use super::super::{Claim, FigureKind, OWN_PROMISE, Stats, Verdict};
use super::BatchResults;
use super::grid::{BATCH, Cell, FEW, KUNPENG, PHONE, X86, percent};
use super::half_memory::{AFTER, BEFORE, CapturePair};

/// The message id of the series' patch that has the figures.
const SERIES: &str = "20220822082120.8347-5-yangyicong@huawei.com";
/// The reviewers' mails.
const REVIEW: &str = "the same thread";

/// The published figures of one machine of the series.
struct PublishedMachine {
    profile: &'static str,
    /// Number of CPUs in the mail; if it gives none, the most that the grid has.
    cpus: u16,
    /// Share of the time before that was spent in `ptep_clear_flush`.
    share: f64,
    share_text: &'static str,
    /// Share of the time before that was saved.
    saved: f64,
    saved_text: &'static str,
    /// Why our figures may differ.
    reason: &'static str,
}

const PUBLISHED: [PublishedMachine; 2] = [
    PublishedMachine {
        profile: PHONE,
        cpus: 8,
        share: 0.0536,
        share_text: "5.36 % (Snapdragon 888, 8 cores)",
        saved: 1.0 - 13.80 / 14.69,
        saved_text: "14.69 → 13.80 s, around 5 % (Snapdragon 888, 8 cores)",
        reason: "",
    },
    PublishedMachine {
        profile: KUNPENG,
        cpus: 128,
        share: 0.1699,
        share_text: "16.99 % (Kunpeng 920)",
        saved: 1.0 - 11.771 / 13.460,
        saved_text: "13.460 → 11.771 s, around 12.5 % (Kunpeng 920)",
        reason: "the mail does not give the number of CPUs, and the cost that each CPU adds to a barrier (dsb_wait_each) is assumed",
    },
];

pub(super) fn claims(results: &BatchResults) -> Vec<Claim> {
    let mut claims = published(results);
    claims.extend(promised(results));
    claims
}

fn claim(
    what: &str,
    published: &str,
    source: &str,
    ours: String,
    kind: FigureKind,
    verdict: Verdict,
    reason: &str,
) -> Claim {
    let (what, published, source, reason) =
        (what.to_owned(), published.to_owned(), source.to_owned(), reason.to_owned());
    Claim { what, published, source, ours, kind, verdict, reason }
}

fn promise(what: &str, published: &str, ours: String, kind: FigureKind, kept: bool) -> Claim {
    let verdict = if kept { Verdict::Reproduced } else { Verdict::Differs };
    claim(what, published, OWN_PROMISE, ours, kind, verdict, "")
}

/// Compares a published figure with our band: reproduced if it lies within.
fn within(band: &Stats, published: f64) -> Verdict {
    if (band.p10..=band.p90).contains(&published) { Verdict::Reproduced } else { Verdict::Differs }
}

fn published(results: &BatchResults) -> Vec<Claim> {
    let mut claims = Vec::new();
    for machine in PUBLISHED {
        let PublishedMachine { profile, cpus, share, share_text, saved, saved_text, reason } = machine;
        let Some(cell) = results.grid.of_the_series(profile, cpus) else { continue };
        let fewer = results.grid.of_the_series(profile, 32).filter(|_| !reason.is_empty());
        let ours = |figure: &dyn Fn(&Cell) -> Stats| {
            let fewer = fewer.map_or_else(String::new, |cell| format!("; {} at 32", percent(&figure(cell))));
            format!("{} at {cpus} CPUs{fewer}", percent(&figure(cell)))
        };
        let waiting = |cell: &Cell| cell.wait_share();
        let what = format!("Share of time in ptep_clear_flush before, and our share of time waiting, {profile}");
        let verdict = within(&cell.wait_share(), share);
        claims.push(claim(&what, share_text, SERIES, ours(&waiting), FigureKind::Modelled, verdict, reason));
        let saving = |cell: &Cell| cell.saving(&cell.after);
        // By the same mail, the wait is 95 % of ptep_clear_flush.
        let by_share = share * 0.95 * (1.0 - cell.after.waits() / cell.before.waits()) * 100.0;
        let ours = format!("saves {}; {by_share:.1} % with the published share of waiting", ours(&saving));
        let verdict = within(&cell.saving(&cell.after), saved);
        let what = format!("Elapsed time of the program, {profile}");
        claims.push(claim(&what, saved_text, SERIES, ours, FigureKind::Modelled, verdict, reason));
    }
    claims.extend(few_cpus(results));
    claims
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
    let verdict = if few.median < 0.01 { Verdict::Reproduced } else { Verdict::Differs };
    let reason = "a barrier is assumed to cost 200 ns without any other CPU (dsb_wait), which is most of its cost with eight CPUs";
    let what = "Deferring flushes with few CPUs, snapdragon888";
    Some(claim(what, published, REVIEW, ours, FigureKind::Modelled, verdict, reason))
}

/// The cell with the highest `figure`.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, figure: impl Fn(&Cell) -> f64) -> Option<(f64, &'a Cell)> {
    cells.map(|cell| (figure(cell), cell)).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn promised(results: &BatchResults) -> Vec<Claim> {
    let limit = 1.0 / BATCH as f64;
    let multiprocessor = || results.grid.cells.iter().filter(|cell| cell.setup.cpus > 1);
    let mut claims = Vec::new();
    let cases = [
        ("Waits per page, one process", 1, false),
        ("Waits per page, 100 sharers", 100, false),
        ("Waits per page, one process, all entries dirty", 1, true),
        ("Waits per page, 100 sharers, all entries dirty", 100, true),
    ];
    for (what, sharers, stores) in cases {
        let cells = || multiprocessor().filter(|cell| cell.setup.sharers == sharers && cell.setup.stores == stores);
        let Some((after, at)) = worst(cells(), |cell| cell.after.waits()) else { continue };
        let before = worst(cells(), |cell| cell.before.waits()).map_or(0.0, |(before, _)| before);
        let ours = format!("{before:.3} → {after:.4} at worst ({})", at.setup.text());
        claims.push(promise(what, "1.0 → at most 1/32 (0.0313)", ours, FigureKind::Counted, after <= limit));
    }
    let fractions = multiprocessor().filter_map(|cell| Some((cell.saved_fraction()?, cell)));
    if let Some((fraction, at)) = fractions.min_by(|a, b| a.0.total_cmp(&b.0)) {
        let ours = format!("{:.1} % at worst ({}), over the whole band", fraction * 100.0, at.setup.text());
        let what = "Time saved, as a part of the share of waiting before × (1 − 1/32)";
        claims.push(promise(what, "at least 90 %", ours, FigureKind::Modelled, fraction >= 0.9));
    }
    claims.extend(sharers(results));
    claims.extend(half_memory(results));
    claims
}

/// N sharers of a page cost N edits of entries and one wait.
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
    let kept = hundred.after.entries() <= 100.0 && hundred.after.waits() <= ten.after.waits() * 1.01;
    let what = "Sharers of a page";
    Some(promise(what, "N sharers cost N edits of entries, and one wait", ours, FigureKind::Counted, kept))
}

fn half_memory(results: &BatchResults) -> Option<Claim> {
    let waits = |pair: &CapturePair| pair.waits_per_page(AFTER);
    let worst = results.half_memory.0.iter().max_by(|a, b| waits(a).total_cmp(&waits(b)))?;
    let ours = format!(
        "{:.3} → {:.4} at worst ({} on {}), batches of {:.1} entries; {} other waits, for copy-on-write faults, forks, munmap and mprotect",
        worst.waits_per_page(BEFORE),
        worst.waits_per_page(AFTER),
        worst.name,
        worst.profile,
        worst.entries_per_batch(),
        worst.other_waits(AFTER)
    );
    let kept = worst.waits_per_page(AFTER) <= 1.0 / BATCH as f64;
    let what = "Waits of reclaim per page reclaimed, captures in half of their peak memory";
    Some(promise(what, "1.0 → at most 1/32 (0.0313)", ours, FigureKind::Counted, kept))
}
