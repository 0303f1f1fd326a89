//! The figures beside those of the series and beside our own promises.

use super::super::plot::size;
use super::super::{Claim, Comparison, FigureKind, LeastStats, Promise, Stats};
use super::cycles::{ChildWork, Cycle, CycleTimes, Density};
use super::fallbacks::Fallback;
use super::faults::{FaultCosts, StoreOrder};
use super::fork_time::{ForkResults, ForkTimes};
use super::large::LargeSpace;
use super::memory::TableMemory;
use super::parent::ForkMode;
use super::snapshot::{ALL_STORES, PAUSE, Snapshots, TAIL};
use super::{CowTableResults, LARGEST, LARGEST_IN_MATRIX, UseCases};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// The mail of the series.
const SERIES: &str = "20230414142341.354556-1-shiyn.lin@gmail.com";
/// Bytes of a child's tables after its first three stores: eight tables.
const FEW_TABLES: u64 = 8 * PAGE_SIZE;
/// The same in the series.
const SERIES_TABLES: f64 = 44.0 * 1024.0;
/// Microseconds of a fork of one mapping.
const FORK_MICROS: f64 = 20.0;
/// What the largest parent's fork may take, in multiples of the smallest's.
const FORK_GROWTH: f64 = 2.0;
/// Shared stores in order after a fork, in multiples of classic ones.
const SEQUENTIAL: f64 = 1.05;
/// Classic in multiples of shared for a fork and exit of 1 GB.
const FORK_EXIT: f64 = 10.0;
/// The same for the pause of a snapshot of 1 GB.
const SNAPSHOT_PAUSE: f64 = 10.0;
/// Pause and stores of a snapshot, in multiples of those with a classic fork.
const SNAPSHOT_STORES: f64 = 1.05;
/// The same for cycles that store to one page under each table.
const ONE_PAGE_PER_TABLE: f64 = 0.8;
/// Microseconds of a read of `/proc/PID/status`.
const STATUS_MICROS: f64 = 50.0;
/// A `munmap` in a large space, in multiples of one in a small space.
const UNMAP_GROWTH: f64 = 1.1;
const NO_ENTRY: &str = "the exception and the rest of fork(2); contents of pages";

pub(super) fn claims(results: &CowTableResults) -> Vec<Claim> {
    let mut claims: Vec<Claim> = results.memory.iter().filter_map(|of| child_tables(of)).flatten().collect();
    claims.extend(series_fork(&results.forks));
    claims.extend(fork_of_largest(&results.forks));
    claims.extend(fork_growth(&results.forks));
    claims.extend(touched(&results.forks));
    claims.push(fallbacks(&results.fallbacks));
    claims.extend(use_cases(&results.use_cases));
    claims
}

fn use_cases(cases: &UseCases) -> Vec<Claim> {
    let mut claims: Vec<Claim> = cases.faults.iter().flat_map(stores_after_fork).collect();
    claims.extend(cases.named.iter().filter_map(cycle));
    let cells = cases.matrix.iter().map(|times| MatrixCell::of(times.cycle, |mode| times.gain(mode)));
    claims.extend(matrix(&cells.collect::<Vec<_>>(), &MEASURED));
    for (isa, figures) in IsaKind::ALL.iter().zip(&MODELLED) {
        let of_isa = cases.modelled.iter().filter(|times| times.isa == *isa);
        let cells = of_isa.map(|times| MatrixCell::of(times.cycle, |mode| times.gain(mode)));
        claims.extend(matrix(&cells.collect::<Vec<_>>(), figures));
    }
    claims.extend(snapshot(&cases.snapshots));
    claims.extend(large(&cases.large));
    claims
}

/// The tables of a child before and after its first stores.
fn child_tables(of: &[TableMemory]) -> Option<[Claim; 3]> {
    let find = |mode| of.iter().find(|memory| memory.mode == mode);
    let (classic, shared) = (find(ForkMode::Classic)?, find(ForkMode::Shared)?);
    let (first, last) = (shared.moments.first()?, shared.moments.last()?);
    let kib = |bytes: u64| format!("{} kB", bytes >> 10);
    let isa = shared.isa.name();
    let root = Claim::promised(
        format!("Private tables of a child of {} MB before its first store, {isa}", shared.bytes >> 20),
        "the root alone (4 kB)",
        format!("{}, classic {}", kib(first.private), kib(classic.moments.first()?.private)),
        FigureKind::Counted,
        Promise::kept(first.private == PAGE_SIZE),
    );
    let ours = format!("{}, classic {}", kib(last.private), kib(classic.moments.last()?.private));
    let what = format!(
        "Private tables of a child of {} MB after stores to its TID, stack and data, {isa}",
        shared.bytes >> 20
    );
    let verdict = Promise::kept(last.private <= FEW_TABLES);
    let few = Claim::promised(what.clone(), "at most 32 kB", ours.clone(), FigureKind::Counted, verdict);
    let figure = Stats::of(vec![last.private as f64]);
    let verdict = Comparison::less(&figure, SERIES_TABLES);
    let stores = Claim::published(what, "44 kB (VmPTE), classic 2096 kB", SERIES, ours, FigureKind::Counted, verdict);
    let differs = "VmRSS and VmPTE of the series leave out what is shared; ours include it, as Linux counts a page that \
                   several processes map";
    Some([root, stores.because(differs), few])
}

/// The series' fork of 512 MB, which sharing did not make faster.
fn series_fork(forks: &ForkResults) -> Option<Claim> {
    let times = forks.by_size.iter().find(|times| times.bytes == 512 << 20)?;
    let gain = times.gain();
    let micros = |samples: &[f64]| Stats::of(samples.to_vec()).text();
    let ours = format!("{} µs against {}: {} ×", micros(&times.shared), micros(&times.classic), gain.text());
    let what = "Fork of 512 MB with shared tables, against a classic one";
    let reason = "the series visits each entry under the table that it shares; this fork visits none";
    let row = Claim::published(
        what,
        "about 10 ms either way",
        SERIES,
        ours,
        FigureKind::Measured,
        Comparison::more(&gain, 1.0),
    );
    Some(row.because(reason).leaving_out(NO_ENTRY))
}

fn fork_of_largest(forks: &ForkResults) -> Option<Claim> {
    let times = forks.by_size.last()?;
    let figure = Stats::of(times.shared.clone());
    let what = format!("Fork of {} in one mapping, shared", size(times.bytes));
    let limit = format!("at most {FORK_MICROS} µs, up to {}", size(LARGEST));
    let ours = format!("{} µs", figure.text());
    let row = Claim::promised(what, &limit, ours, FigureKind::Measured, Promise::at_most(&figure, FORK_MICROS));
    Some(row.because(COLD).leaving_out(NO_ENTRY).about(LARGEST, times.bytes))
}

fn fork_growth(forks: &ForkResults) -> Option<Claim> {
    let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
    let [small, large] = [first, last].map(|times| Stats::of(times.shared.clone()));
    let growth = large.over(&small);
    let what = format!("Fork of {} against {}, shared", size(last.bytes), size(first.bytes));
    let limit = format!("at most {FORK_GROWTH} ×, up to {}", size(LARGEST));
    let ours = format!("{} × ({} µs, {} µs)", growth.text(), large.text(), small.text());
    let row = Claim::promised(what, &limit, ours, FigureKind::Measured, Promise::at_most(&growth, FORK_GROWTH));
    Some(row.because(COLD).about(LARGEST, last.bytes))
}

/// Tables that were copied although nothing forbade to share them.
pub(super) fn fallbacks(all: &[Fallback]) -> Claim {
    let shareable = all.iter().filter(|fork| fork.setting == "always" && fork.before.leaves_all_shareable());
    let (forks, shared) = shareable.clone().fold((0, 0), |(forks, shared), fork| (forks + 1, shared + fork.shared));
    let copied: u64 = shareable.flat_map(|fork| fork.copied).sum();
    let what = "Tables that forks copied of unpinned memory that may be shared, with always";
    let ours = format!("{copied} in {forks} forks, which shared {shared}");
    Claim::promised(what, "0", ours, FigureKind::Counted, Promise::kept(copied == 0 && shared > 0))
}

/// Why a fork of the largest parent may take longer than the same accesses of a small one.
const COLD: &str = "a classic fork of the same parent ran just before, and has filled the caches with its entries";

/// Entries and records that a fork touches, at the smallest size and at the largest.
fn touched(forks: &ForkResults) -> Option<Claim> {
    let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
    let shared = |times: &ForkTimes| *times.counts_of(ForkMode::Shared);
    let text = |times: &ForkTimes| {
        let counts = shared(times);
        format!("{} and {} at {}", counts.entry_accesses, counts.records, size(times.bytes))
    };
    let classic = last.counts_of(ForkMode::Classic);
    let ours = format!(
        "{}, {}; classic {} and {} at {}",
        text(first),
        text(last),
        classic.entry_accesses,
        classic.records,
        size(last.bytes)
    );
    let what = "Accesses to entries and memmap records changed by a fork with shared tables";
    let kept = shared(first) == shared(last);
    let row = Claim::promised(
        what,
        &format!("the same from {} to {}", size(first.bytes), size(LARGEST)),
        ours,
        FigureKind::Counted,
        Promise::kept(kept),
    );
    Some(row.leaving_out("records that a fork reads and does not change").about(LARGEST, last.bytes))
}

/// The series' stores to a buffer of 512 MB.
pub(super) fn stores_after_fork(costs: &FaultCosts) -> Vec<Claim> {
    let ratio = costs.ratio();
    let [classic, shared] = ForkMode::BOTH.map(|mode| costs.stats(mode).text());
    let ours =
        format!("{} × ({shared} ns, {classic} ns); with the fork {} ×", ratio.text(), costs.ratio_with_fork().text());
    let (published, figure) = match costs.order {
        StoreOrder::Sequential => ("795 ns against 770: 1.03 ×", 795.0 / 770.0),
        StoreOrder::Random => ("29 ns an access against 26: 1.12 ×", 29.0 / 26.0),
    };
    let what = format!("Stores to 512 MB after a fork, {}, shared against classic", costs.order.name());
    let verdict = Promise::at_most(&ratio, SEQUENTIAL);
    let promise = Claim::promised(what.clone(), "at most 1.05 ×", ours.clone(), FigureKind::Measured, verdict);
    let promise = (costs.order == StoreOrder::Sequential).then_some(promise);
    let row = Claim::published(what, published, SERIES, ours, FigureKind::Measured, Comparison::less(&ratio, figure));
    let left = match costs.order {
        StoreOrder::Sequential => "the exception",
        StoreOrder::Random => "the exception; accesses that do not fault, which are most of the series' million",
    };
    let reason = "the first store under a table copies the table, which a classic fork has copied before";
    let rows = [Some(row), promise].into_iter().flatten();
    rows.map(|row| row.because(reason).leaving_out(left)).collect()
}

/// A cycle with a published figure or a promise.
pub(super) fn cycle(times: &CycleTimes) -> Option<Claim> {
    let gain = times.gain(ForkMode::Shared);
    let [classic, shared] = ForkMode::BOTH.map(|mode| times.stats(mode).text());
    let ours = format!("{} × ({classic} µs, {shared} µs)", gain.text());
    let what = format!("Memory management in a cycle: {}, {}", times.cycle.name, size(times.cycle.bytes));
    let published = |figure, limit| {
        let verdict = Comparison::more(&gain, limit);
        let row = Claim::published(what.clone(), figure, SERIES, ours.clone(), FigureKind::Measured, verdict);
        row.leaving_out("the time of the programs themselves, which is most of the published figure")
    };
    match (times.cycle.name, times.cycle.work) {
        ("fork server", _) => Some(published("AFL and SQLite: 53.50 → 52.15 executions a second (0.97 ×)", 0.97)),
        ("VM clone", _) => Some(published("TriforceAFL: 102.30 → 105.54 executions a second (1.03 ×)", 1.03)),
        (_, ChildWork::Exit) => {
            let limit = format!("at least {FORK_EXIT} ×");
            let verdict = Promise::at_least(&gain, FORK_EXIT);
            Some(Claim::promised(what, &limit, ours, FigureKind::Measured, verdict))
        }
        _ => None,
    }
}

/// A cell of the matrix: classic in multiples of shared and of auto.
pub(super) struct MatrixCell {
    pub(super) cycle: Cycle,
    pub(super) gains: [Stats; 2],
}

impl MatrixCell {
    fn of(cycle: Cycle, gain: impl FnMut(ForkMode) -> Stats) -> Self {
        Self { cycle, gains: ForkMode::AGAINST_CLASSIC.map(gain) }
    }

    /// Whether less is promised of it.
    fn is_hard(&self) -> bool {
        self.cycle.density == Density::OnePerTable && self.cycle.work == ChildWork::Touch(100)
    }
}

/// In what the cells of a matrix are counted.
pub(super) struct MatrixFigures {
    name: &'static str,
    kind: FigureKind,
    leaves_out: &'static str,
    rests_on: &'static str,
}

pub(super) const MEASURED: MatrixFigures = MatrixFigures {
    name: "time on this computer",
    kind: FigureKind::Measured,
    leaves_out: "exceptions, and the rest of the system calls",
    rests_on: "",
};
const MODELLED: [MatrixFigures; 2] = [modelled_on("modelled time on x86-64"), modelled_on("modelled time on arm64")];

const fn modelled_on(name: &'static str) -> MatrixFigures {
    let leaves_out = "exceptions, the rest of the system calls, and cache misses";
    MatrixFigures {
        name,
        kind: FigureKind::Modelled,
        leaves_out,
        rests_on: "the costs of the profile (docs/machine.md)",
    }
}

/// The worst cell of the matrix with each setting, beside those for which less is promised.
pub(super) fn matrix(all: &[MatrixCell], figures: &MatrixFigures) -> Vec<Claim> {
    let row = |(way, hard, limit): (usize, bool, f64)| {
        let cells = || all.iter().filter(|cell| cell.is_hard() == hard);
        let least = LeastStats::of(cells().map(|cell| (cell.gains[way], cell)))?;
        let ((gain, worst), (low, lowest)) = (least.median, least.low);
        let (below, of) = (cells().filter(|cell| cell.gains[way].p90 < limit).count(), cells().count());
        let at = |cell: &MatrixCell| cell.cycle.labels().join(", ");
        // A figure that is the same in every run has no band, and its third digit may decide.
        let ours = match gain.samples {
            1 => format!("{:.3} × at worst ({}); {below} of {of} cells below the limit", gain.median, at(worst)),
            _ => format!(
                "{} × at worst ({}); lowest tenth percentile {:.2} ({}); {below} of {of} cells below the limit over their whole band",
                gain.text(),
                at(worst),
                low.p10,
                at(lowest)
            ),
        };
        let verdict = Promise::at_least(&least.figure(), limit);
        let what = match hard {
            false => "Cycles of the matrix",
            true => "Cycles that store to one page under each table",
        };
        let what = format!("{what}, classic against {}, {}", ForkMode::AGAINST_CLASSIC[way].name(), figures.name);
        let row = Claim::promised(what, &format!("at least {limit:.1} ×"), ours, figures.kind, verdict);
        let largest = all.iter().map(|cell| cell.cycle.bytes).max()?;
        Some(row.leaving_out(figures.leaves_out).resting_on(figures.rests_on).about(LARGEST_IN_MATRIX, largest))
    };
    let limits = [(false, 1.0), (true, ONE_PAGE_PER_TABLE)];
    let rows = (0..ForkMode::AGAINST_CLASSIC.len()).flat_map(|way| limits.map(|(hard, limit)| (way, hard, limit)));
    rows.filter_map(row).collect()
}

/// A snapshot under write load: the pause, and the stores into which sharing moves it.
pub(super) fn snapshot(snapshots: &Snapshots) -> [Claim; 2] {
    let both = |figure| ForkMode::BOTH.map(|mode| snapshots.stats(mode, figure));
    let ([classic, shared], gain) = (both(PAUSE), snapshots.gain(PAUSE));
    let ours = format!("{} × ({} µs, {} µs)", gain.text(), classic.text(), shared.text());
    let what = format!("Pause of a snapshot of {}, classic against shared", size(snapshots.bytes));
    let limit = format!("at least {SNAPSHOT_PAUSE} ×");
    let verdict = Promise::at_least(&gain, SNAPSHOT_PAUSE);
    let pause = Claim::promised(what, &limit, ours, FigureKind::Measured, verdict);
    let pause = pause.leaving_out("the exception and the rest of fork(2)");
    let ([classic, shared], cost) = (both(ALL_STORES), snapshots.cost(ALL_STORES));
    let ours = format!("{} × ({} ms, {} ms)", cost.text(), shared.text(), classic.text());
    let what = format!("Pause and {} first stores of a snapshot under write load, shared against classic", {
        snapshots.stores
    });
    let limit = format!("at most {SNAPSHOT_STORES} ×");
    let verdict = Promise::at_most(&cost, SNAPSHOT_STORES);
    let [classic, shared] = both(TAIL);
    let left = format!(
        "the exception, and the load of the child's reads; single stores: the 99th percentile is {} ns, classic {}",
        shared.text(),
        classic.text()
    );
    let stores = Claim::promised(what, &limit, ours, FigureKind::Measured, verdict)
        .because("the first store under a table copies the table, which a classic fork has copied in its pause")
        .leaving_out(left);
    [pause, stores]
}

/// Operations that do not depend on the size of the space.
pub(super) fn large(large: &LargeSpace) -> Vec<Claim> {
    let [_, bytes] = large.bytes;
    let read = |name: &str, samples: &[f64]| {
        let figure = Stats::of(samples.to_vec());
        let what = format!("Read of /proc/PID/status at {}, warm, {name}", size(bytes));
        let limit = format!("at most {STATUS_MICROS} µs, up to {}", size(LARGEST));
        let ours = format!("{} µs", figure.text());
        Claim::promised(what, &limit, ours, FigureKind::Measured, Promise::at_most(&figure, STATUS_MICROS))
            .about(LARGEST, bytes)
    };
    let growth = LargeSpace::growth(&large.unmap);
    let what = format!("munmap of a page at {} against {}", size(bytes), size(large.bytes[0]));
    let ours = format!("{} ×; as the first operation after a fork {} ×", growth.text(), {
        LargeSpace::growth(&large.unmap_shared).text()
    });
    let limit = format!("at most {UNMAP_GROWTH} ×, up to {}", size(LARGEST));
    let unmap = Claim::promised(what, &limit, ours, FigureKind::Measured, Promise::at_most(&growth, UNMAP_GROWTH))
        .about(LARGEST, bytes);
    let first = Stats::of(large.status_first[1].clone());
    let edited = read("tables shared and edited for all", &large.status_edited[1]);
    let edited = edited.leaving_out(format!("the first read after the edit: {} µs", first.text()));
    vec![read("tables own", &large.status[1]), read("tables shared", &large.status_shared[1]), edited, unmap]
}

#[cfg(test)]
mod tests;
