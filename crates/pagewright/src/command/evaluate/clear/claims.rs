//! Compares the measurements with the figures of the series and with our own promises.
//!
//! The series measured other computers, so ratios are compared. A ratio is of samples of the same
//! rounds where both sides took turns, and is judged by its spread. Each row names the cells that
//! it does not judge, with their figures.
//!
//! Not guaranteed: the same verdict twice, if a figure is near its limit or the computer is busy.

use super::super::plot::size;
use super::super::{Claim, ClaimRow, LeastStats, Limit, OurFigure, Stats, Unit, claims_of, promised, published};
use super::ClearResults;
use super::bulk_pin::BulkPins;
use super::compile::CompileTimes;
use super::faults::Row;
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
    let calibration = results.cache.0.calibration();
    let has_clzero = results.grid.cells.iter().any(|cell| cell.of(Method::Only(ClearBackend::Clzero)).is_some());
    let permille = calibration.as_ref().map(|calibration| calibration.ratio_permille);
    let gain = results.prealloc.gain().map(|gain| VmGain { gain, has_clzero, permille });
    let budgets = Budgets { probe: results.cache.0.probe_time(), calibration: calibration.map(|of| of.elapsed) };
    let mut claims = claims_of(&CELLS, &results.grid);
    claims.extend(gain.iter().flat_map(|gain| claims_of(&VM, gain)));
    claims.extend(results.compile.iter().flat_map(|times| claims_of(&COMPILATION, times)));
    claims.extend(results.faults.rows.iter().flat_map(|row| claims_of(&FAULTS, row)));
    claims.extend(claims_of(&BULK_PINS, &results.bulk_pins));
    claims.extend(claims_of(&HOT_SET, &results.pollution));
    claims.extend(claims_of(&BUDGETS, &budgets));
    claims
}

const CACHED_STORES: Method = Method::Only(ClearBackend::Cached);
const MOVNTI: Method = Method::Only(ClearBackend::Movnti);
/// What our choice reaches of another method's bandwidth at least.
const CHOICE: Limit = Limit::at_least(0.95, Unit::Times);
const PAST_CACHE: &str = "2 MiB that are dirty in the cache are cleared past it, for what else is in the cache: the rows of the hot \
     set have both costs";

/// The bandwidth of stores, by extent and state of the target.
const CELLS: [ClaimRow<ClearCells>; 8] = [
    published(
        "MOVNTI against rep stosb on cold memory",
        SERIES,
        Limit::gain([12.1, 24.0], Unit::GigabytesPerSecond).noting("4 GB, Xeon 8358"),
    )
    .up_to(4 << 30)
    .measured(|grid| uncached_stores(grid, &[4 << 30, 1 << 30])),
    published(
        "MOVNTI against rep stosb on cold memory",
        SERIES,
        Limit::gain([12.1, 22.3], Unit::GigabytesPerSecond).noting("128 MB, Xeon 8358"),
    )
    .measured(|grid| uncached_stores(grid, &[128 << 20])),
    published(
        "MOVNTI against rep stosb, 2 MB cleared repeatedly",
        SERIES,
        Limit::gain([14.4, 12.6], Unit::GigabytesPerSecond).noting("Xeon 8358"),
    )
    .resting_on("each kind of store finds the buffer as it left it; the two were not measured in the same rounds")
    .measured(same_buffer),
    published(
        "Bandwidth with a fence every 4 KiB, of that with one every 2 MiB",
        THIRD_VERSION,
        Limit::at_most(0.9, Unit::Times).noting("noticeable up to one for every 32 KB, 32–128 KB in version 3"),
    )
    .measured(|grid| fence_every(grid, PAGE_SIZE)),
    published(
        "Bandwidth with a fence every 64 KiB, of that with one every 2 MiB",
        THIRD_VERSION,
        Limit::at_least(0.8, Unit::Times).noting("noticeable up to one for every 32 KB, 32–128 KB in version 3"),
    )
    .measured(|grid| fence_every(grid, 64 << 10)),
    promised("Cold memory of 2 MiB and more: auto against the fastest stores of this run", CHOICE)
        .measured(large_extents),
    promised("Target known to be hot or cold: auto against the fastest stores", CHOICE)
        .because(PAST_CACHE)
        .measured(|grid| known_targets(grid, Cell::auto_over_best)),
    promised("Target known to be hot or cold: auto against cached", CHOICE)
        .because(PAST_CACHE)
        .measured(|grid| known_targets(grid, |cell| cell.ratio(Method::Auto, CACHED_STORES))),
];

/// MOVNTI against `rep stosb` on the largest of these extents that was measured.
fn uncached_stores(grid: &ClearCells, sizes: &[u64]) -> Option<OurFigure> {
    let movnti = |bytes: &u64| Some((*bytes, grid.cold(*bytes)?.ratio(MOVNTI, CACHED_STORES)?));
    let (bytes, ours) = sizes.iter().find_map(movnti)?;
    Some(OurFigure { of: size(bytes), reached: Some(bytes), ..ours.into() })
}

/// The series' 2 MB, which `perf bench` clears again and again by the same stores.
///
/// Its `rep stosb` finds lines that are dirty in the cache, and its MOVNTI lines that MOVNTI
/// evicted.
fn same_buffer(grid: &ClearCells) -> Option<OurFigure> {
    let bytes = Order::PMD.bytes();
    let dirty = |cell: &&Cell| cell.state == TargetState::Dirty && cell.bytes == bytes;
    let cached = grid.cells.iter().find(dirty)?.of(CACHED_STORES)?;
    let slow =
        "on this CPU MOVNTI is slow after a locked instruction, such as an allocator's lock; other stores are used";
    Some(OurFigure {
        details: "(MOVNTI on cold and rep stosb on dirty lines)".to_owned(),
        reason: if grid.movnti_is_slow() { slow.to_owned() } else { String::new() },
        ..grid.cold(bytes)?.of(MOVNTI)?.over(cached).into()
    })
}

/// The part of its bandwidth that the fastest stores of 2 MiB have left with more fences.
fn fence_every(grid: &ClearCells, bytes: u64) -> Option<OurFigure> {
    let best = grid.cold(Order::PMD.bytes())?.best()?.method;
    let [fenced, whole] = [bytes, Order::PMD.bytes()].map(|bytes| grid.cold(bytes).and_then(|cell| cell.of(best)));
    Some(OurFigure { details: format!("by {}", best.name()), ..fenced?.over(whole?).into() })
}

/// The least ratio of some cells: its median and lower end, each with its cell.
fn worst<'a>(cells: impl Iterator<Item = &'a Cell>, ratio: impl Fn(&Cell) -> Option<Stats>) -> Option<OurFigure> {
    let least = LeastStats::of(cells.filter_map(|cell| Some((ratio(cell)?, cell))))?;
    let at = |cell: &Cell| format!("{}, {}, {} CPUs", cell.state.name(), size(cell.bytes), cell.cpus);
    Some(OurFigure::least(&least, at))
}

/// Names cells that a row does not judge, with the lowest ratio among them.
fn excluded<'a>(
    name: &str,
    cells: impl Iterator<Item = &'a Cell>,
    ratio: impl Fn(&Cell) -> Option<Stats>,
) -> Option<String> {
    worst(cells, ratio).map(|worst| format!("{name}: {}", worst.text(Unit::Times)))
}

/// What the memory manager chooses for cold memory, beside the stores that are fastest there.
fn large_extents(grid: &ClearCells) -> Option<OurFigure> {
    let cold = |is_large: bool| {
        let cells = grid.cells.iter().filter(|cell| cell.state == TargetState::Cold);
        cells.filter(move |cell| (cell.bytes >= Order::PMD.bytes()) == is_large)
    };
    let leaves_out = excluded("cold memory below 2 MiB", cold(false), Cell::auto_over_best).unwrap_or_default();
    Some(OurFigure { leaves_out, ..worst(cold(true), Cell::auto_over_best)? })
}

/// Targets whose residency the allocator knows, and the cells that these rows leave out.
fn known_targets(grid: &ClearCells, ratio: fn(&Cell) -> Option<Stats>) -> Option<OurFigure> {
    let cells = |group: fn(&Cell) -> bool| grid.cells.iter().filter(move |cell| group(cell));
    // A single page is cleared for a task that is about to access it, so it counts as cleared and
    // read. For larger extents the memory manager does not know when they are read.
    let judged = cells(|cell| {
        let counts = match cell.state {
            TargetState::Cold => cell.bytes > PAGE_SIZE,
            TargetState::ReadBack => cell.bytes == PAGE_SIZE,
            TargetState::Clean | TargetState::Dirty => true,
        };
        counts && cell.known != Residency::Unknown
    });
    let cold = cells(|cell| cell.state == TargetState::Cold && cell.bytes == PAGE_SIZE);
    let read = cells(|cell| cell.state == TargetState::ReadBack && cell.bytes > PAGE_SIZE);
    let groups = [
        excluded("cold 4 KiB that nothing reads", cold, ratio),
        excluded("more than 4 KiB, read at once", read, ratio),
        excluded("targets not known to be hot or cold", cells(|cell| cell.known == Residency::Unknown), ratio),
    ];
    let leaves_out = groups.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Some(OurFigure { leaves_out, ..worst(judged, ratio)? })
}

/// The gain for a VM's memory, on one CPU.
struct VmGain {
    gain: Stats,
    has_clzero: bool,
    /// The ratio that the calibration measured.
    permille: Option<u32>,
}

const PREALLOCATED: &str = "A VM's memory preallocated in 2 MB folios, uncached against cached page by page";
const VM: [ClaimRow<VmGain>; 3] = [
    published(
        PREALLOCATED,
        SERIES,
        Limit::gain([8.05, 29.94], Unit::GigabytesPerSecond).noting("Milan, CLZERO, 1550 GB: 192.6 → 51.7 s"),
    )
    .measured(
        // Without CLZERO there is nothing to set beside Milan's figure.
        |vm| vm.has_clzero.then(|| vm.gain.into()),
    ),
    published(
        PREALLOCATED,
        SERIES,
        Limit::gain([8.25, 21.55], Unit::GigabytesPerSecond).noting("Icelake, 200 GB: 25.2 → 9.3 s"),
    )
    .measured(|vm| Some(vm.gain.into())),
    promised("A VM's memory, auto against cached page by page", Limit::at_least(2.0, Unit::Times)).measured(|vm| {
        let too_slow = vm.permille.is_none_or(|permille| permille < 2000);
        let reason = if too_slow { "the calibration measured less than a factor of 2 here" } else { "" };
        Some(OurFigure { reason: reason.to_owned(), ..vm.gain.into() })
    }),
];

/// A compilation while other CPUs clear memory.
const COMPILATION: [ClaimRow<CompileTimes>; 1] = [published(
    "A compilation beside background clearing, as fast as beside cached clearing",
    SERIES,
    Limit::at_least(0.975, Unit::Times)
        .noting("~5 % faster on Milan; fewer misses and no overall improvement on Icelake"),
)
.because("reproduced means not slower, which is Icelake's result: the compiler runs on another CPU than the clearing")
.leaving_out("that uncached clearing covers more memory in the same time")
.measured(|times| {
    let slowdown = Unit::Times.text(&times.slowdown());
    let details = format!("(cached clearing makes it take {slowdown} of the time without clearing)");
    Some(OurFigure { details, ..times.gain().into() })
})];

/// Single pages are always cleared by cached stores, also where uncached ones clear faster.
const FAULTS: [ClaimRow<Row>; 1] = [promised(
    "Speed of demand faults of 4 KiB, each page read at once, auto against uncached",
    Limit::at_least(0.98, Unit::Times),
)
.leaving_out("pages that the program does not read after the fault; the exception itself")
.measured(|row| Some(OurFigure { of: format!("{} frames", row.state), ..row.gain().into() }))];

/// What VFIO's hint for bulk pins gains.
const BULK_PINS: [ClaimRow<BulkPins>; 1] = [promised(
    "Speed of pinning untouched memory for a device, FOLL_HINT_BULK against no hint",
    Limit::at_least(1.0, Unit::Times),
)
.leaving_out("the IOMMU's mappings, which take the same time either way")
.measured(|pins| Some(pins.gain().into()))];

/// A hot set after a clear of 2 MiB by the memory manager's own choice.
const HOT_SET: [ClaimRow<Pollution>; 2] = [
    hot_set(|pollution| walk(pollution, BlockHistory::Written)),
    hot_set(|pollution| walk(pollution, BlockHistory::Untouched)),
];

const fn hot_set(find: fn(&Pollution) -> Option<OurFigure>) -> ClaimRow<Pollution> {
    let limit = Limit::at_most(1.1, Unit::Times).noting("of undisturbed");
    promised("A hot set of 1 MiB read again after a clear of 2 MiB", limit).measured(find)
}

fn walk(pollution: &Pollution, history: BlockHistory) -> Option<OurFigure> {
    let of = |method| pollution.of(history, Order::PMD.bytes(), method);
    let (auto, cached) = (of(AUTO)?, of(CACHED)?);
    let details = format!(
        "(allocator's answers: {}); {} after a cached clear; clear and walk together {} of cached",
        auto.answers(),
        Unit::Times.text(&cached.slowdown()),
        Unit::Times.text(&auto.cost_over(cached))
    );
    Some(OurFigure { of: history.name().to_owned(), details, ..auto.slowdown().into() })
}

/// The time that the measurements which come first take.
struct Budgets {
    probe: Duration,
    calibration: Option<Duration>,
}

const BUDGETS: [ClaimRow<Budgets>; 2] = [
    promised("Time to measure the cache", Limit::at_most(100.0, Unit::Millis))
        .measured(|took| Some(millis(took.probe))),
    promised("Time to calibrate", Limit::at_most(2.0, Unit::Millis)).measured(|took| took.calibration.map(millis)),
];

fn millis(took: Duration) -> OurFigure {
    OurFigure::exact(took.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests;
