//! What was found, beside the figures of the series and our own promises.
//!
//! Figures of the series are those of other computers; a ratio is reproduced if ours is at least
//! nine tenths of it. A promise is kept or it is not.
//!
//! Not guaranteed: the same verdict twice, near a limit, on a computer that is busy.

use super::super::plot::size;
use super::super::{Claim, Kind, OWN_PROMISE, Verdict};
use super::beside::Beside;
use super::grid::{Cell, State, Way};
use super::{Found, pollution, prealloc, ratio};
use pagewright_tlb::frames::{ClearBackend, Residency};
use pagewright_types::Order;

/// The series' second version, whose cover letter and patch 12 have its figures.
const SERIES: &str = "[PATCH v2 00/14] Use uncached stores while clearing huge pages, October 2021";
/// Its third.
const THIRD: &str = "20220606202109.1306034-1";

pub(super) fn claims(found: &Found) -> Vec<Claim> {
    let mut claims = published(found);
    claims.extend(promised(found));
    claims
}

fn claim(what: &str, published: &str, source: &str, ours: String, verdict: Verdict, reason: &str) -> Claim {
    Claim {
        what: what.to_owned(),
        published: published.to_owned(),
        source: source.to_owned(),
        ours,
        kind: Kind::Measured,
        verdict,
        reason: reason.to_owned(),
    }
}

/// A ratio against a published one.
fn compare(ours: f64, published: f64) -> Verdict {
    if ours > published * 1.1 {
        Verdict::Better
    } else if ours >= published * 0.9 {
        Verdict::Reproduced
    } else {
        Verdict::Differs
    }
}

fn promise(what: &str, limit: &str, ours: String, kept: bool, reason: &str) -> Claim {
    claim(what, limit, OWN_PROMISE, ours, if kept { Verdict::Reproduced } else { Verdict::Differs }, reason)
}

/// MOVNTI over `rep stosb` on cold memory.
fn movnti_over_stosb(found: &Found, bytes: u64) -> Option<f64> {
    let cell = found.grid.cold(bytes)?;
    let of = |backend| cell.of(Way::Only(backend));
    Some(ratio(of(ClearBackend::Movnti)?, of(ClearBackend::Cached)?))
}

fn published(found: &Found) -> Vec<Claim> {
    let mut claims = Vec::new();
    let largest = [4 << 30, 1 << 30].into_iter().find_map(|bytes| Some((bytes, movnti_over_stosb(found, bytes)?)));
    if let Some((bytes, ours)) = largest {
        let ours_text = format!("{ours:.2} × at {}, cold", size(bytes));
        let what = "MOVNTI against rep stosb, far more than the cache";
        claims.push(claim(
            what,
            "12.1 → 24.0 GB/s at 4 GB (Xeon 8358), 1.98 ×",
            SERIES,
            ours_text,
            compare(ours, 24.0 / 12.1),
            "",
        ));
    }
    if let Some(ours) = movnti_over_stosb(found, Order::PMD.bytes()) {
        let reason = if ours < 0.9 {
            "MOVNTI is slow here after locked instructions, which an allocator's are; a calibration finds that, and other stores are chosen"
        } else {
            "there the 2 MB were in the cache, here they are not: the state decides, and not the size"
        };
        let what = "MOVNTI against rep stosb, 2 MB";
        let ours_text = format!("{ours:.2} ×, cold");
        claims.push(claim(
            what,
            "14.4 → 12.6 GB/s (Xeon 8358), 0.88 ×",
            SERIES,
            ours_text,
            Verdict::NotComparable,
            reason,
        ));
    }
    let rate = |name| found.prealloc.of(name, 1).map(|row| &row.rate);
    if let (Some(ours), Some(by_page)) = (rate(prealloc::OURS), rate(prealloc::BY_PAGE)) {
        let times = ratio(ours, by_page);
        let ours_text = format!("{:.1} → {:.1} GB/s, {times:.2} ×, one CPU", by_page.median, ours.median);
        let what = "A VM's memory preallocated in 2 MB folios, cached page by page against uncached";
        let icelake = "8.25 → 21.55 GBps, +161 % (Icelake, 200 GB: 25.2 → 9.3 s)";
        claims.push(claim(what, icelake, SERIES, ours_text.clone(), compare(times, 21.55 / 8.25), ""));
        let milan = "8.05 → 29.94 GBps, +272 % (Milan, CLZERO, 1550 GB: 192.6 → 51.7 s)";
        let (verdict, reason) =
            if found.grid.cells.iter().any(|cell| cell.of(Way::Only(ClearBackend::Clzero)).is_some()) {
                (compare(times, 29.94 / 8.05), "")
            } else {
                (Verdict::NotComparable, "this CPU has no CLZERO")
            };
        claims.push(claim(what, milan, SERIES, ours_text, verdict, reason));
    }
    claims.extend(fence(found));
    claims.extend(found.beside.as_ref().map(compilation));
    claims
}

/// A compiler beside clearing.
fn compilation(beside: &Beside) -> Claim {
    let gain = (1.0 - ratio(&beside.auto, &beside.cached)) * 100.0;
    let alone = ratio(&beside.cached, &beside.alone);
    let ours = format!("{gain:+.1} % less time than beside cached clearing, which makes it {alone:.2} × of alone");
    let verdict = if gain > 2.5 {
        Verdict::Better
    } else if gain > -2.5 {
        Verdict::Reproduced
    } else {
        Verdict::Differs
    };
    let published = "~5 % faster (Milan); fewer misses and no overall improvement (Icelake)";
    claim(
        "A compilation beside background clearing",
        published,
        SERIES,
        ours,
        verdict,
        "on another CPU than the clearing, which gets through more memory in the same time if it goes past the cache",
    )
}

/// What a fence for every 4 KiB costs, by the stores that are best at 2 MiB.
fn fence(found: &Found) -> Option<Claim> {
    let best = found.grid.cold(Order::PMD.bytes())?.best()?.0;
    let at = |bytes| found.grid.cold(bytes).and_then(|cell| cell.of(best));
    let (small, worth, large) = (at(4096)?, at(64 << 10)?, at(Order::PMD.bytes())?);
    let (small, worth) = (ratio(small, large), ratio(worth, large));
    let ours = format!(
        "a fence each 4 KiB {small:.2}, each 64 KiB {worth:.2} of what {} reaches with one each 2 MiB",
        best.name()
    );
    let verdict = if small < 0.9 && worth > 0.8 { Verdict::Reproduced } else { Verdict::Differs };
    Some(claim(
        "The cost of a store fence",
        "noticeable up to one for every 32 KB (32–128 KB in version 3)",
        THIRD,
        ours,
        verdict,
        "",
    ))
}

/// The worst of all cells by `share`, and where.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, share: impl Fn(&Cell) -> Option<f64>) -> Option<(f64, String)> {
    let shares = cells
        .filter_map(|cell| Some((share(cell)?, format!("{:?} {}, {} CPUs", cell.state, size(cell.bytes), cell.cpus))));
    shares.min_by(|a, b| a.0.total_cmp(&b.0))
}

fn of_best(cell: &Cell) -> Option<f64> {
    Some(ratio(cell.of(Way::Auto)?, &cell.best()?.1))
}

fn of_cached(cell: &Cell) -> Option<f64> {
    Some(ratio(cell.of(Way::Auto)?, cell.of(Way::Only(ClearBackend::Cached))?))
}

fn promised(found: &Found) -> Vec<Claim> {
    let cells = || found.grid.cells.iter();
    let mut claims = Vec::new();
    let large = || cells().filter(|cell| cell.state == State::Cold && cell.bytes >= Order::PMD.bytes());
    if let Some((share, at)) = worst(large(), of_best) {
        let what = "Cold memory of 2 MiB and more: the choice against the best stores of this run";
        claims.push(promise(what, "at least 0.95", format!("{share:.2} at worst ({at})"), share >= 0.95, ""));
    }
    let rate = |name| found.prealloc.of(name, 1).map(|row| &row.rate);
    if let (Some(ours), Some(by_page)) = (rate(prealloc::OURS), rate(prealloc::BY_PAGE)) {
        let times = ratio(ours, by_page);
        let able = found.measured.calibration.is_some_and(|found| found.ratio_permille >= 2000);
        let short = times < 2.0 && !able;
        let reason = if short { "the calibration says that this computer has not twice" } else { "" };
        claims.push(promise(
            "A VM's memory against cached page by page",
            "at least 2, where the computer has it",
            format!("{times:.2} ×"),
            times >= 2.0,
            reason,
        ));
    }
    // A page alone is for who is about to touch it, so it counts as cleared and read. Of more
    // nobody knows who will read it, and when.
    let counts = |cell: &Cell| {
        (cell.state == State::ReadBack) == (cell.bytes == 4096) || matches!(cell.state, State::Clean | State::Dirty)
    };
    let known = || cells().filter(move |cell| cell.known != Residency::Unknown && counts(cell));
    if let Some((share, at)) = worst(known(), of_best) {
        claims.push(promise(
            "Where the allocator knows: the choice against the best stores",
            "at least 0.95 in every cell",
            format!("{share:.2} at worst ({at})"),
            share >= 0.95,
            "",
        ));
    }
    if let Some((share, at)) = worst(known(), of_cached) {
        claims.push(promise(
            "Where the allocator knows: the choice against cached",
            "never below 0.95",
            format!("{share:.2} at worst ({at})"),
            share >= 0.95,
            "",
        ));
    }
    claims.extend(regrets(found));
    claims.extend(found.faults.rows.iter().map(demand_faults));
    claims.extend(hot_set(found));
    claims.push(fences(found));
    claims.extend(budgets(found));
    claims
}

/// Faults take the same stores either way, so that what differs is noise.
fn demand_faults(row: &super::faults::Row) -> Claim {
    let gain = row.gain();
    promise(
        &format!("Demand faults of 4 KiB on {} frames, the choice against cached", row.state),
        "never slower",
        format!("{gain:.2} × as fast"),
        gain >= 0.98,
        if gain < 0.98 { "the same stores; what differs is noise" } else { "" },
    )
}

/// What the choice loses where nobody could know better.
fn regrets(found: &Found) -> Vec<Claim> {
    let cells = || found.grid.cells.iter();
    let mut claims = Vec::new();
    let unknown = || cells().filter(|cell| cell.known == Residency::Unknown);
    if let Some((share, at)) = worst(unknown(), of_best) {
        let regret = format!("{:.0} % slower than the best at worst ({at})", (1.0 - share) * 100.0);
        claims.push(claim(
            "Where the allocator knows nothing: the regret",
            "none",
            OWN_PROMISE,
            regret,
            Verdict::NotComparable,
            "printed, not promised",
        ));
    }
    let read = || cells().filter(|cell| cell.state == State::ReadBack && cell.bytes > 4096);
    if let Some((share, at)) = worst(read(), of_best) {
        let regret = format!("{:.0} % slower than the best at worst ({at})", (1.0 - share) * 100.0);
        let what = "Cold memory that is read as soon as it is cleared: the regret";
        claims.push(claim(
            what,
            "none",
            OWN_PROMISE,
            regret,
            Verdict::NotComparable,
            "nobody says so beforehand; printed, not promised",
        ));
    }
    claims
}

/// INV-CLEAR-FENCES, over the whole evaluation.
fn fences(found: &Found) -> Claim {
    let of = |name: &str| found.counted.get(name).copied().unwrap_or(0);
    let (fences, batches, yields) = (of("pw_clear_fences"), of("pw_clear_batches"), of("pw_clear_yields"));
    let ours = format!("{fences} = {batches} + {yields}");
    let counted =
        promise("Fences of all that was cleared here", "batches + yields", ours, fences == batches + yields, "");
    Claim { kind: Kind::Counted, ..counted }
}

fn hot_set(found: &Found) -> Option<Claim> {
    let nothing = found.pollution.undisturbed()?;
    let times = |how| Some(ratio(found.pollution.of(Order::PMD.bytes(), how)?, nothing));
    let (auto, cached) = (times(pollution::AUTO)?, times(pollution::CACHED)?);
    let ours = format!("{auto:.2} × undisturbed; {cached:.2} × after a cached clear");
    Some(promise("A hot set of 1 MiB read again after 2 MiB were cleared", "within 10 %", ours, auto <= 1.1, ""))
}

fn budgets(found: &Found) -> Vec<Claim> {
    let measured = &found.measured;
    let knee = measured.knee_took.as_secs_f64() * 1e3;
    let mut claims =
        vec![promise("Measuring the cache", "at most 100 ms, idle", format!("{knee:.0} ms"), knee <= 100.0, "")];
    if let Some(calibration) = measured.calibration {
        let took = calibration.elapsed.as_secs_f64() * 1e3;
        claims.push(promise("Calibrating", "at most 2 ms", format!("{took:.2} ms"), took <= 2.0, ""));
    }
    claims
}
