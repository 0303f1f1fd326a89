//! Compares the measurements with the figures of the series and with our own promises.
//!
//! The series measured other computers, so ratios are compared. A ratio is reproduced if ours is at
//! least nine tenths of the published one. A promise is kept or not.
//!
//! Not guaranteed: the same verdict twice, if a figure is near its limit or the computer is busy.

use super::super::plot::size;
use super::super::{Claim, FigureKind, OWN_PROMISE, Verdict};
use super::compile::CompileTimes;
use super::grid::{Cell, Method, TargetState};
use super::{ClearResults, pollution, prealloc, ratio};
use pagewright_tlb::frames::{ClearBackend, Residency};
use pagewright_types::Order;

/// The series' second version; its cover letter and patch 12 have the figures.
const SERIES: &str = "[PATCH v2 00/14] Use uncached stores while clearing huge pages, October 2021";
/// The series' third version.
const THIRD_VERSION: &str = "20220606202109.1306034-1";

pub(super) fn claims(results: &ClearResults) -> Vec<Claim> {
    let mut claims = published(results);
    claims.extend(promised(results));
    claims
}

fn claim(what: &str, published: &str, source: &str, ours: String, verdict: Verdict, reason: &str) -> Claim {
    Claim {
        what: what.to_owned(),
        published: published.to_owned(),
        source: source.to_owned(),
        ours,
        kind: FigureKind::Measured,
        verdict,
        reason: reason.to_owned(),
    }
}

/// Compares a ratio with a published one.
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

/// Bandwidth of MOVNTI divided by that of `rep stosb`, on cold memory.
fn movnti_over_stosb(results: &ClearResults, bytes: u64) -> Option<f64> {
    let cell = results.grid.cold(bytes)?;
    let of = |backend| cell.of(Method::Only(backend));
    Some(ratio(of(ClearBackend::Movnti)?, of(ClearBackend::Cached)?))
}

fn published(results: &ClearResults) -> Vec<Claim> {
    let mut claims = Vec::new();
    let largest = [4 << 30, 1 << 30].into_iter().find_map(|bytes| Some((bytes, movnti_over_stosb(results, bytes)?)));
    if let Some((bytes, ours)) = largest {
        let ours_text = format!("{ours:.2} × at {}, cold", size(bytes));
        let what = "MOVNTI against rep stosb, extent much larger than the cache";
        claims.push(claim(
            what,
            "12.1 → 24.0 GB/s at 4 GB (Xeon 8358), 1.98 ×",
            SERIES,
            ours_text,
            compare(ours, 24.0 / 12.1),
            "",
        ));
    }
    if let Some(ours) = movnti_over_stosb(results, Order::PMD.bytes()) {
        let reason = if ours < 0.9 {
            "on this CPU MOVNTI is slow after a locked instruction, such as an allocator's lock; the calibration detects that, and other stores are used"
        } else {
            "the 2 MB of the series were in the cache, ours are not; the state of the target decides, not its size"
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
    let rate = |name| results.prealloc.of(name, 1).map(|row| &row.rate);
    if let (Some(ours), Some(by_page)) = (rate(prealloc::OURS), rate(prealloc::BY_PAGE)) {
        let times = ratio(ours, by_page);
        let ours_text = format!("{:.1} → {:.1} GB/s, {times:.2} ×, one CPU", by_page.median, ours.median);
        let what = "A VM's memory preallocated in 2 MB folios, uncached against cached page by page";
        let icelake = "8.25 → 21.55 GBps, +161 % (Icelake, 200 GB: 25.2 → 9.3 s)";
        claims.push(claim(what, icelake, SERIES, ours_text.clone(), compare(times, 21.55 / 8.25), ""));
        let milan = "8.05 → 29.94 GBps, +272 % (Milan, CLZERO, 1550 GB: 192.6 → 51.7 s)";
        let (verdict, reason) =
            if results.grid.cells.iter().any(|cell| cell.of(Method::Only(ClearBackend::Clzero)).is_some()) {
                (compare(times, 29.94 / 8.05), "")
            } else {
                (Verdict::NotComparable, "this CPU has no CLZERO")
            };
        claims.push(claim(what, milan, SERIES, ours_text, verdict, reason));
    }
    claims.extend(fence(results));
    claims.extend(results.compile.as_ref().map(compilation));
    claims
}

/// A compilation while other CPUs clear memory.
fn compilation(times: &CompileTimes) -> Claim {
    let gain = (1.0 - ratio(&times.auto, &times.cached)) * 100.0;
    let slowdown = ratio(&times.cached, &times.alone);
    let ours = format!(
        "{gain:+.1} % less time than beside cached clearing, beside which it takes {slowdown:.2} × the time without clearing"
    );
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
        "the compiler runs on another CPU than the clearing, and uncached clearing covers more memory in the same time",
    )
}

/// The cost of a fence for every 4 KiB, with the stores that are fastest at 2 MiB.
fn fence(results: &ClearResults) -> Option<Claim> {
    let best = results.grid.cold(Order::PMD.bytes())?.best()?.0;
    let at = |bytes| results.grid.cold(bytes).and_then(|cell| cell.of(best));
    let (small, medium, large) = (at(4096)?, at(64 << 10)?, at(Order::PMD.bytes())?);
    let (small, medium) = (ratio(small, large), ratio(medium, large));
    let ours = format!(
        "{} with a fence every 4 KiB reaches {small:.2}, every 64 KiB {medium:.2} of its bandwidth with a fence every 2 MiB",
        best.name()
    );
    let verdict = if small < 0.9 && medium > 0.8 { Verdict::Reproduced } else { Verdict::Differs };
    Some(claim(
        "The cost of a store fence",
        "noticeable up to one for every 32 KB (32–128 KB in version 3)",
        THIRD_VERSION,
        ours,
        verdict,
        "",
    ))
}

/// The cell with the lowest `share`: its share and its description.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, share: impl Fn(&Cell) -> Option<f64>) -> Option<(f64, String)> {
    let shares = cells
        .filter_map(|cell| Some((share(cell)?, format!("{:?} {}, {} CPUs", cell.state, size(cell.bytes), cell.cpus))));
    shares.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Bandwidth of the auto policy divided by that of the fastest stores.
fn auto_over_best(cell: &Cell) -> Option<f64> {
    Some(ratio(cell.of(Method::Auto)?, &cell.best()?.1))
}

/// Bandwidth of the auto policy divided by that of cached stores.
fn auto_over_cached(cell: &Cell) -> Option<f64> {
    Some(ratio(cell.of(Method::Auto)?, cell.of(Method::Only(ClearBackend::Cached))?))
}

fn promised(results: &ClearResults) -> Vec<Claim> {
    let cells = || results.grid.cells.iter();
    let mut claims = Vec::new();
    let large = || cells().filter(|cell| cell.state == TargetState::Cold && cell.bytes >= Order::PMD.bytes());
    if let Some((share, at)) = worst(large(), auto_over_best) {
        let what = "Cold memory of 2 MiB and more: auto against the fastest stores of this run";
        claims.push(promise(what, "at least 0.95", format!("{share:.2} at worst ({at})"), share >= 0.95, ""));
    }
    claims.extend(preallocation(results));
    // A single page is cleared for a task that is about to access it, so it counts as cleared and
    // read. For larger extents the memory manager does not know when they are read.
    let counts = |cell: &Cell| {
        (cell.state == TargetState::ReadBack) == (cell.bytes == 4096)
            || matches!(cell.state, TargetState::Clean | TargetState::Dirty)
    };
    let known = || cells().filter(move |cell| cell.known != Residency::Unknown && counts(cell));
    if let Some((share, at)) = worst(known(), auto_over_best) {
        claims.push(promise(
            "Target known to be hot or cold: auto against the fastest stores",
            "at least 0.95 in every cell",
            format!("{share:.2} at worst ({at})"),
            share >= 0.95,
            "",
        ));
    }
    if let Some((share, at)) = worst(known(), auto_over_cached) {
        claims.push(promise(
            "Target known to be hot or cold: auto against cached",
            "never below 0.95",
            format!("{share:.2} at worst ({at})"),
            share >= 0.95,
            "",
        ));
    }
    claims.extend(regrets(results));
    claims.extend(results.faults.rows.iter().map(demand_faults));
    claims.extend(hot_set(results));
    claims.push(fences(results));
    claims.extend(budgets(results));
    claims
}

fn preallocation(results: &ClearResults) -> Option<Claim> {
    let rate = |name| results.prealloc.of(name, 1).map(|row| &row.rate);
    let times = ratio(rate(prealloc::OURS)?, rate(prealloc::BY_PAGE)?);
    let is_possible = results.cache.calibration.is_some_and(|calibration| calibration.ratio_permille >= 2000);
    let reason = if times < 2.0 && !is_possible { "the calibration measured less than a factor of 2 here" } else { "" };
    Some(promise(
        "A VM's memory, auto against cached page by page",
        "at least 2 ×, if the calibration measures that much",
        format!("{times:.2} ×"),
        times >= 2.0,
        reason,
    ))
}

/// Single pages are always cleared by cached stores, so both sides execute the same stores.
fn demand_faults(row: &super::faults::Row) -> Claim {
    let gain = row.gain();
    promise(
        &format!("Demand faults of 4 KiB on {} frames, auto against cached", row.state),
        "never slower",
        format!("{gain:.2} × as fast"),
        gain >= 0.98,
        if gain < 0.98 { "both execute the same stores, so the difference is noise" } else { "" },
    )
}

/// How much the auto policy loses if the memory manager lacks the information to choose better.
fn regrets(results: &ClearResults) -> Vec<Claim> {
    let cells = || results.grid.cells.iter();
    let mut claims = Vec::new();
    let unknown = || cells().filter(|cell| cell.known == Residency::Unknown);
    if let Some((share, at)) = worst(unknown(), auto_over_best) {
        let regret = format!("{:.0} % slower than the fastest stores at worst ({at})", (1.0 - share) * 100.0);
        claims.push(claim(
            "Target not known to be hot or cold: loss of auto",
            "none",
            OWN_PROMISE,
            regret,
            Verdict::NotComparable,
            "for information; nothing is promised",
        ));
    }
    let read = || cells().filter(|cell| cell.state == TargetState::ReadBack && cell.bytes > 4096);
    if let Some((share, at)) = worst(read(), auto_over_best) {
        let regret = format!("{:.0} % slower than the fastest stores at worst ({at})", (1.0 - share) * 100.0);
        claims.push(claim(
            "Cold memory that is read at once after the clear: loss of auto",
            "none",
            OWN_PROMISE,
            regret,
            Verdict::NotComparable,
            "the memory manager does not know this beforehand; nothing is promised",
        ));
    }
    claims
}

/// INV-CLEAR-FENCES, over the whole evaluation.
fn fences(results: &ClearResults) -> Claim {
    let of = |name: &str| results.counters.get(name).copied().unwrap_or(0);
    let (fences, batches, yields) = (of("pw_clear_fences"), of("pw_clear_batches"), of("pw_clear_yields"));
    let ours = format!("{fences} = {batches} + {yields}");
    let counted = promise("Fences of all clears", "batches + yields", ours, fences == batches + yields, "");
    Claim { kind: FigureKind::Counted, ..counted }
}

fn hot_set(results: &ClearResults) -> Option<Claim> {
    let undisturbed = results.pollution.undisturbed()?;
    let times = |method| Some(ratio(results.pollution.of(Order::PMD.bytes(), method)?, undisturbed));
    let (auto, cached) = (times(pollution::AUTO)?, times(pollution::CACHED)?);
    let ours = format!("{auto:.2} × undisturbed; {cached:.2} × after a cached clear");
    Some(promise("A hot set of 1 MiB read again after a clear of 2 MiB", "at most 1.1 ×", ours, auto <= 1.1, ""))
}

/// The time that calibration and the cache measurement may take.
fn budgets(results: &ClearResults) -> Vec<Claim> {
    let cache = &results.cache;
    let probe_time = cache.probe_time.as_secs_f64() * 1e3;
    let mut claims = vec![promise(
        "Time to measure the cache",
        "at most 100 ms",
        format!("{probe_time:.0} ms"),
        probe_time <= 100.0,
        "",
    )];
    if let Some(calibration) = cache.calibration {
        let took = calibration.elapsed.as_secs_f64() * 1e3;
        claims.push(promise("Time to calibrate", "at most 2 ms", format!("{took:.2} ms"), took <= 2.0, ""));
    }
    claims
}
