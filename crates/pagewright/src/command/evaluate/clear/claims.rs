//! Compares the measurements with the figures of the series and with our own promises.
//!
//! The series measured other computers, so ratios are compared. A ratio is of samples of the same
//! rounds where both sides took turns, and is judged by its spread ([`Comparison`], [`Promise`]).
//! Each row names the cells that it does not judge, with their figures.
//!
//! Not guaranteed: the same verdict twice, if a figure is near its limit or the computer is busy.

use super::super::plot::size;
use super::super::{Claim, Comparison, FigureKind, LeastStats, Promise, Stats};
use super::ClearResults;
use super::bulk_pin::BulkPins;
use super::compile::CompileTimes;
use super::grid::{Cell, ClearCells, Method, TargetState};
use super::pollution::{AUTO, BlockHistory, CACHED, Pollution};
use pagewright_tlb::frames::{ClearBackend, Residency};
use pagewright_types::{Order, PAGE_SIZE};
use std::time::Duration;

/// The series' second version; its cover letter and patches 3 and 12 have the figures.
const SERIES: &str = "[PATCH v2 00/14] Use uncached stores while clearing huge pages, October 2021";
/// The series' third version.
const THIRD_VERSION: &str = "20220606202109.1306034-1";

pub(super) fn claims(results: &ClearResults) -> Vec<Claim> {
    let mut claims = published(results);
    claims.extend(promised(results));
    claims
}

fn published_row(what: &str, published: &str, ours: String, verdict: Comparison) -> Claim {
    Claim::published(what, published, SERIES, ours, FigureKind::Measured, verdict)
}

fn promise(what: impl Into<String>, limit: &str, ours: String, verdict: Promise) -> Claim {
    Claim::promised(what, limit, ours, FigureKind::Measured, verdict)
}

const CACHED_STORES: Method = Method::Only(ClearBackend::Cached);
const MOVNTI: Method = Method::Only(ClearBackend::Movnti);

fn published(results: &ClearResults) -> Vec<Claim> {
    let grid = &results.grid;
    let mut claims = uncached_stores(grid);
    claims.extend(same_buffer(grid));
    let has_clzero = grid.cells.iter().any(|cell| cell.of(Method::Only(ClearBackend::Clzero)).is_some());
    claims.extend(results.prealloc.gain().into_iter().flat_map(|gain| series_preallocation(&gain, has_clzero)));
    claims.extend(fence(grid));
    claims.extend(results.compile.as_ref().map(compilation));
    claims
}

/// MOVNTI against `rep stosb` on large cold extents.
fn uncached_stores(grid: &ClearCells) -> Vec<Claim> {
    let movnti = |bytes| grid.cold(bytes)?.ratio(MOVNTI, CACHED_STORES);
    let table = [
        ([4 << 30, 1 << 30], 24.0 / 12.1, "12.1 → 24.0 GB/s at 4 GB (Xeon 8358), 1.98 ×"),
        ([128 << 20; 2], 22.3 / 12.1, "12.1 → 22.3 GB/s at 128 MB (Xeon 8358), 1.84 ×"),
    ];
    let row = |(sizes, of, text): ([u64; 2], f64, &str)| {
        let (bytes, ours) = sizes.into_iter().find_map(|bytes| Some((bytes, movnti(bytes)?)))?;
        let shown = format!("{} × at {}, cold", ours.text(), size(bytes));
        let what = format!("MOVNTI against rep stosb, {}", size(bytes));
        Some(published_row(&what, text, shown, Comparison::more(&ours, of)).about(sizes[0], bytes))
    };
    table.into_iter().filter_map(row).collect()
}

/// The memory of a VM, beside the series' figures of the machines that have these stores.
fn series_preallocation(gain: &Stats, has_clzero: bool) -> Vec<Claim> {
    let what = "A VM's memory preallocated in 2 MB folios, uncached against cached page by page";
    let shown = format!("{} ×, one CPU", gain.text());
    let row = |text, of| published_row(what, text, shown.clone(), Comparison::more(gain, of));
    let mut claims = vec![row("8.25 → 21.55 GBps, +161 % (Icelake, 200 GB: 25.2 → 9.3 s)", 21.55 / 8.25)];
    // Without CLZERO there is nothing to set beside Milan's figure.
    if has_clzero {
        claims.push(row("8.05 → 29.94 GBps, +272 % (Milan, CLZERO, 1550 GB: 192.6 → 51.7 s)", 29.94 / 8.05));
    }
    claims
}

/// The series' 2 MB, which `perf bench` clears again and again by the same stores.
///
/// Its `rep stosb` finds lines that are dirty in the cache, and its MOVNTI lines that MOVNTI
/// evicted.
fn same_buffer(grid: &ClearCells) -> Option<Claim> {
    let bytes = Order::PMD.bytes();
    let dirty = |cell: &&Cell| cell.state == TargetState::Dirty && cell.bytes == bytes;
    let cached = grid.cells.iter().find(dirty)?.of(CACHED_STORES)?;
    let ours = grid.cold(bytes)?.of(MOVNTI)?.over(cached);
    let verdict = Comparison::more(&ours, 12.6 / 14.4);
    let shown = format!("{} ×, MOVNTI on cold and rep stosb on dirty lines", ours.text());
    let row = published_row(
        "MOVNTI against rep stosb, 2 MB cleared repeatedly",
        "14.4 → 12.6 GB/s (Xeon 8358), 0.88 ×",
        shown,
        verdict,
    );
    let row = row
        .resting_on("each kind of store finds the buffer as it left it; the two were not measured in the same rounds");
    Some(if grid.movnti_is_slow() {
        row.because(
            "on this CPU MOVNTI is slow after a locked instruction, such as an allocator's lock; other stores are used",
        )
    } else {
        row
    })
}

/// A compilation while other CPUs clear memory.
fn compilation(times: &CompileTimes) -> Claim {
    let (gain, slowdown) = (times.gain(), times.slowdown());
    let ours = format!(
        "{} × as fast as beside cached clearing, beside which it takes {} × the time without clearing",
        gain.text(),
        slowdown.text()
    );
    let verdict = Comparison::over_band(gain.median >= 0.975, [gain.p10 >= 0.975]);
    let published = "~5 % faster (Milan); fewer misses and no overall improvement (Icelake)";
    let row = published_row("A compilation beside background clearing", published, ours, verdict);
    row.because(
        "reproduced means not slower, which is Icelake's result: the compiler runs on another CPU than the clearing",
    )
    .leaving_out("that uncached clearing covers more memory in the same time")
}

/// The cost of a fence for every 4 KiB, with the stores that are fastest at 2 MiB.
fn fence(grid: &ClearCells) -> Option<Claim> {
    let best = grid.cold(Order::PMD.bytes())?.best()?.method;
    let at = |bytes| grid.cold(bytes).and_then(|cell| cell.of(best));
    let (small, medium, large) = (at(PAGE_SIZE)?, at(64 << 10)?, at(Order::PMD.bytes())?);
    let (small, medium) = (small.over(large), medium.over(large));
    let ours = format!(
        "{} with a fence every 4 KiB reaches {}, every 64 KiB {} of its bandwidth with a fence every 2 MiB",
        best.name(),
        small.text(),
        medium.text()
    );
    let given = small.median < 0.9 && medium.median > 0.8;
    let verdict = Comparison::over_band(given, [small.p90 < 0.9, medium.p10 > 0.8]);
    let published = "noticeable up to one for every 32 KB (32–128 KB in version 3)";
    Some(Claim::published("The cost of a store fence", published, THIRD_VERSION, ours, FigureKind::Measured, verdict))
}

/// A ratio of two methods in a cell.
type CellRatio<'a> = &'a dyn Fn(&Cell) -> Option<Stats>;

/// The least ratio of some cells: its median and lower end, each with its cell.
struct Worst {
    figure: Stats,
    text: String,
}

fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, ratio: impl Fn(&Cell) -> Option<Stats>) -> Option<Worst> {
    let least = LeastStats::of(cells.filter_map(|cell| Some((ratio(cell)?, cell))))?;
    let (median, low) = (least.median, least.low);
    let at = |cell: &Cell| format!("{}, {}, {} CPUs", cell.state.name(), size(cell.bytes), cell.cpus);
    let text = format!(
        "{} at worst ({}); lowest tenth percentile {:.2} ({})",
        median.0.text(),
        at(median.1),
        low.0.p10,
        at(low.1)
    );
    Some(Worst { figure: least.figure(), text })
}

/// Names cells that a row does not judge, with the lowest ratio among them.
fn excluded<'a>(
    name: &str,
    cells: impl Iterator<Item = &'a Cell>,
    ratio: impl Fn(&Cell) -> Option<Stats>,
) -> Option<String> {
    worst(cells, ratio).map(|worst| format!("{name}: {}", worst.text))
}

fn promised(results: &ClearResults) -> Vec<Claim> {
    let mut claims: Vec<Claim> = large_extents(&results.grid).into_iter().collect();
    let permille = results.cache.0.calibration().map(|calibration| calibration.ratio_permille);
    claims.extend(results.prealloc.gain().map(|gain| preallocation(&gain, permille)));
    claims.extend(known_targets(&results.grid));
    claims.extend(results.faults.rows.iter().map(demand_faults));
    claims.push(bulk_pins(&results.bulk_pins));
    claims.extend(hot_set(&results.pollution));
    claims.push(probe_budget(results.cache.0.probe_time()));
    claims.extend(results.cache.0.calibration().map(|calibration| calibration_budget(calibration.elapsed)));
    claims
}

/// What the memory manager chooses for cold memory, beside the stores that are fastest there.
fn large_extents(grid: &ClearCells) -> Option<Claim> {
    let cold = |is_large: bool| {
        let cells = grid.cells.iter().filter(|cell| cell.state == TargetState::Cold);
        cells.filter(move |cell| (cell.bytes >= Order::PMD.bytes()) == is_large)
    };
    let found = worst(cold(true), Cell::auto_over_best)?;
    let what = "Cold memory of 2 MiB and more: auto against the fastest stores of this run";
    let left = excluded("cold memory below 2 MiB", cold(false), Cell::auto_over_best);
    let row = promise(what, "at least 0.95", found.text, Promise::at_least(&found.figure, 0.95));
    Some(row.leaving_out(left.unwrap_or_default()))
}

/// Targets whose residency the allocator knows, and the cells that these rows leave out.
fn known_targets(grid: &ClearCells) -> Vec<Claim> {
    let cells = || grid.cells.iter();
    // A single page is cleared for a task that is about to access it, so it counts as cleared and
    // read. For larger extents the memory manager does not know when they are read.
    let is_judged = |cell: &&Cell| {
        let counts = match cell.state {
            TargetState::Cold => cell.bytes > PAGE_SIZE,
            TargetState::ReadBack => cell.bytes == PAGE_SIZE,
            TargetState::Clean | TargetState::Dirty => true,
        };
        counts && cell.known != Residency::Unknown
    };
    let left_out = |ratio: CellRatio<'_>| {
        let cold = cells().filter(|cell| cell.state == TargetState::Cold && cell.bytes == PAGE_SIZE);
        let read = cells().filter(|cell| cell.state == TargetState::ReadBack && cell.bytes > PAGE_SIZE);
        let unknown = cells().filter(|cell| cell.known == Residency::Unknown);
        let groups = [
            excluded("cold 4 KiB that nothing reads", cold, ratio),
            excluded("more than 4 KiB, read at once", read, ratio),
            excluded("targets not known to be hot or cold", unknown, ratio),
        ];
        groups.into_iter().flatten().collect::<Vec<_>>().join("; ")
    };
    let to_cached = |cell: &Cell| cell.ratio(Method::Auto, CACHED_STORES);
    let rows: [(&str, &str, CellRatio<'_>); 2] = [
        ("the fastest stores", "at least 0.95 in every cell judged", &Cell::auto_over_best),
        ("cached", "never below 0.95 in the cells judged", &to_cached),
    ];
    let row = |(against, limit, ratio): (&str, &str, CellRatio<'_>)| {
        let found = worst(cells().filter(is_judged), ratio)?;
        let what = format!("Target known to be hot or cold: auto against {against}");
        let row = promise(what, limit, found.text, Promise::at_least(&found.figure, 0.95)).leaving_out(left_out(ratio));
        Some(row.because("2 MiB that are dirty in the cache are cleared past it, for what else is in the cache: the rows of the hot set have both costs"))
    };
    rows.into_iter().filter_map(row).collect()
}

/// The memory of a VM, with the ratio that the calibration measured.
fn preallocation(times: &Stats, permille: Option<u32>) -> Claim {
    let row = promise(
        "A VM's memory, auto against cached page by page",
        "at least 2 ×",
        format!("{} ×", times.text()),
        Promise::at_least(times, 2.0),
    );
    match permille {
        Some(2000..) => row,
        _ => row.because("the calibration measured less than a factor of 2 here"),
    }
}

/// Single pages are always cleared by cached stores, also where uncached ones clear faster.
fn demand_faults(row: &super::faults::Row) -> Claim {
    let gain = row.gain();
    let what = format!("Demand faults of 4 KiB on {} frames, each page read at once, auto against uncached", row.state);
    promise(what, "never slower", format!("{} × as fast", gain.text()), Promise::at_least(&gain, 0.98))
        .leaving_out("pages that the program does not read after the fault; the exception itself")
}

/// What VFIO's hint for bulk pins gains.
fn bulk_pins(pins: &BulkPins) -> Claim {
    let gain = pins.gain();
    let what = "Pinning untouched memory for a device, FOLL_HINT_BULK against no hint";
    promise(what, "never slower", format!("{} × as fast", gain.text()), Promise::at_least(&gain, 1.0))
        .leaving_out("the IOMMU's mappings, which take the same time either way")
}

/// A hot set after a clear of 2 MiB by the memory manager's own choice.
fn hot_set(pollution: &Pollution) -> Vec<Claim> {
    let row = |history| {
        let of = |method| pollution.of(history, Order::PMD.bytes(), method);
        let (auto, cached) = (of(AUTO)?, of(CACHED)?);
        let slowdown = auto.slowdown();
        let ours = format!(
            "{} × undisturbed, allocator's answers: {}; {} × after a cached clear; clear and walk together {} × cached",
            slowdown.text(),
            auto.answers(),
            cached.slowdown().text(),
            auto.cost_over(cached).text()
        );
        let what = format!("A hot set of 1 MiB read again after a clear of 2 MiB ({})", history.name());
        Some(promise(what, "at most 1.1 ×", ours, Promise::at_most(&slowdown, 1.1)))
    };
    [BlockHistory::Written, BlockHistory::Untouched].into_iter().filter_map(row).collect()
}

/// The time that the measurement of the cache may take.
fn probe_budget(took: Duration) -> Claim {
    let took = took.as_secs_f64() * 1e3;
    promise("Time to measure the cache", "at most 100 ms", format!("{took:.0} ms"), Promise::kept(took <= 100.0))
}

/// The time that the calibration may take.
fn calibration_budget(took: Duration) -> Claim {
    let took = took.as_secs_f64() * 1e3;
    promise("Time to calibrate", "at most 2 ms", format!("{took:.2} ms"), Promise::kept(took <= 2.0))
}

#[cfg(test)]
mod tests;
