//! The figures beside those of the series and beside our own promises, by the part of the results.

use super::super::FigureKind::{self, Measured, Modelled};
use super::super::plot::size;
use super::super::{
    Claim, ClaimHead, ClaimRow, LeastStats, Limit, OurFigure, Stats, Unit, claims_of, promised, published,
};
use super::cycles::{ChildWork, Cycle, CycleTimes, Density};
use super::fallbacks::Fallback;
use super::faults::{FaultCosts, StoreOrder};
use super::fork_time::{ForkResults, ForkTimes};
use super::large::LargeSpace;
use super::memory::TableMemory;
use super::parent::ForkMode;
use super::snapshot::{ALL_STORES, PAUSE, Snapshots, TAIL};
use super::{CowTableResults, LARGEST, LARGEST_IN_MATRIX};
use pagewright_types::{IsaKind, PAGE_SIZE};

/// The mail of the series.
const SERIES: &str = "20230414142341.354556-1-shiyn.lin@gmail.com";

pub(super) fn claims(results: &CowTableResults) -> Vec<Claim> {
    let cases = &results.use_cases;
    let mut claims: Vec<_> = results.memory.iter().flat_map(|of| claims_of(&TABLES, &of[..])).collect();
    claims.extend(claims_of(&FORKS, &results.forks));
    claims.extend(claims_of(&FALLBACKS, &results.fallbacks[..]));
    claims.extend(cases.faults.iter().flat_map(|costs| claims_of(&STORES, costs)));
    claims.extend(cases.named.iter().flat_map(|times| claims_of(&CYCLES, times)));
    let cells = cases.matrix.iter().map(|times| MatrixCell::of(times.cycle, |mode| times.gain(mode)));
    claims.extend(claims_of(&MEASURED, &Matrix { name: "time on this computer", cells: cells.collect() }));
    for (isa, name) in [(IsaKind::X86_64, "modelled time on x86-64"), (IsaKind::Aarch64, "modelled time on arm64")] {
        let of_isa = cases.modelled.iter().filter(|times| times.isa == isa);
        let cells = of_isa.map(|times| MatrixCell::of(times.cycle, |mode| times.gain(mode)));
        claims.extend(claims_of(&MODELLED, &Matrix { name, cells: cells.collect() }));
    }
    claims.extend(claims_of(&SNAPSHOTS, &cases.snapshots));
    claims.extend(claims_of(&LARGE, &cases.large));
    claims
}

const KB_OF_A_TABLE: f64 = (PAGE_SIZE >> 10) as f64;
const AFTER_STORES: &str = "Private tables of a child after stores to its TID, stack and data";
const WITH_SHARED: &str = "VmRSS and VmPTE of the series leave out what is shared; ours include it, as Linux counts a page that \
     several processes map";
const NO_ENTRY: &str = "the exception and the rest of fork(2); contents of pages";
/// Why a fork of the largest parent may take longer than the same accesses of a small one.
const COLD: &str = "a classic fork of the same parent ran just before, and has filled the caches with its entries";

/// The tables of a child before and after its first stores, with both ways to fork.
const TABLES: [ClaimRow<[TableMemory]>; 3] = [
    promised(
        "Private tables of a child before its first store",
        Limit::exactly(KB_OF_A_TABLE, Unit::Kilobytes).noting("the root alone"),
    )
    .counted(|of| child_tables(of, false)),
    published(AFTER_STORES, SERIES, Limit::fall([2096.0, 44.0], Unit::Kilobytes).noting("VmPTE"))
        .because(WITH_SHARED)
        .counted(|of| child_tables(of, true)),
    promised(AFTER_STORES, Limit::at_most(8.0 * KB_OF_A_TABLE, Unit::Kilobytes).noting("eight tables"))
        .counted(|of| child_tables(of, true)),
];

/// Kilobytes of a child's own tables, classic and shared, before or after its stores.
fn child_tables(of: &[TableMemory], has_stored: bool) -> Option<OurFigure> {
    let kilobytes = |mode| {
        let moments = &of.iter().find(|memory| memory.mode == mode)?.moments;
        let moment = if has_stored { moments.last() } else { moments.first() };
        Some(moment?.private as f64 / 1024.0)
    };
    let parent = of.first().map(|memory| format!("{} MB, {}", memory.bytes >> 20, memory.isa.name()))?;
    let figure = OurFigure::change([kilobytes(ForkMode::Classic)?, kilobytes(ForkMode::Shared)?]);
    Some(OurFigure { of: parent, details: "(classic → shared)".to_owned(), ..figure })
}

/// The time of a fork, and what it touches.
const FORKS: [ClaimRow<ForkResults>; 4] = [
    published(
        "Fork of 512 MB, classic against shared tables",
        SERIES,
        Limit::more(1.0, Unit::Times).noting("about 10 ms either way"),
    )
    .because("the series visits each entry under the table that it shares; this fork visits none")
    .leaving_out(NO_ENTRY)
    .measured(|forks| {
        let times = forks.by_size.iter().find(|times| times.bytes == 512 << 20)?;
        let [shared, classic] =
            [&times.shared, &times.classic].map(|samples| Unit::Micros.text(&Stats::of(samples.clone())));
        Some(OurFigure { details: format!("({classic}, {shared})"), ..times.gain().into() })
    }),
    promised("Fork of one mapping, shared", Limit::at_most(20.0, Unit::Micros))
        .because(COLD)
        .leaving_out(NO_ENTRY)
        .up_to(LARGEST)
        .measured(|forks| {
            let times = forks.by_size.last()?;
            Some(of_largest(times, Stats::of(times.shared.clone()).into()))
        }),
    promised("Fork of the largest against the smallest mapping, shared", Limit::at_most(2.0, Unit::Times))
        .because(COLD)
        .up_to(LARGEST)
        .measured(|forks| {
            let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
            let [small, large] = [first, last].map(|times| Stats::of(times.shared.clone()));
            let [smaller, larger] = [&small, &large].map(|stats| Unit::Micros.text(stats));
            let details = format!("({larger}; {smaller} at {})", size(first.bytes));
            Some(of_largest(last, OurFigure { details, ..large.over(&small).into() }))
        }),
    promised(
        "Accesses to entries and memmap records changed by a fork with shared tables",
        Limit::holds("the same at the smallest size and at the largest"),
    )
    .leaving_out("records that a fork reads and does not change")
    .up_to(LARGEST)
    .counted(touched),
];

fn of_largest(times: &ForkTimes, figure: OurFigure) -> OurFigure {
    OurFigure { of: size(times.bytes), reached: Some(times.bytes), ..figure }
}

/// Entries and records that a fork touches, at the smallest size and at the largest.
fn touched(forks: &ForkResults) -> Option<OurFigure> {
    let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
    let text = |times: &ForkTimes, mode| {
        let counts = times.counts_of(mode);
        format!("{} and {} at {}", counts.entry_accesses, counts.records, size(times.bytes))
    };
    let [small, large] = [first, last].map(|times| text(times, ForkMode::Shared));
    let is_same = first.counts_of(ForkMode::Shared) == last.counts_of(ForkMode::Shared);
    let ours = format!("{small}, {large}; classic {}", text(last, ForkMode::Classic));
    Some(of_largest(last, OurFigure::holds(is_same, ours)))
}

/// Tables that were copied although nothing forbade to share them.
pub(super) const FALLBACKS: [ClaimRow<[Fallback]>; 1] = [promised(
    "Tables that forks copied of unpinned memory that may be shared, with always",
    Limit::holds("none, and some are shared"),
)
.counted(|all| {
    let shareable = all.iter().filter(|fork| fork.setting == "always" && fork.before.leaves_all_shareable());
    let (forks, shared) = shareable.clone().fold((0, 0), |(forks, shared), fork| (forks + 1, shared + fork.shared));
    let copied: u64 = shareable.flat_map(|fork| fork.copied).sum();
    let ours = format!("{copied} in {forks} forks, which shared {shared}");
    Some(OurFigure::holds(copied == 0 && shared > 0, ours))
})];

const STORES_AFTER: &str = "Stores to 512 MB after a fork, shared against classic";
const DEFERRED: &str = "the first store under a table copies the table, which a classic fork has copied before";

/// The series' stores to a buffer of 512 MB.
const STORES: [ClaimRow<FaultCosts>; 3] = [
    published(STORES_AFTER, SERIES, Limit::cost([770.0, 795.0], Unit::Nanos))
        .because(DEFERRED)
        .leaving_out("the exception")
        .measured(|costs| stores(costs, StoreOrder::Sequential)),
    promised(STORES_AFTER, Limit::at_most(1.05, Unit::Times))
        .because(DEFERRED)
        .leaving_out("the exception")
        .measured(|costs| stores(costs, StoreOrder::Sequential)),
    published(STORES_AFTER, SERIES, Limit::cost([26.0, 29.0], Unit::Nanos).noting("an access"))
        .because(DEFERRED)
        .leaving_out("the exception; accesses that do not fault, which are most of the series' million")
        .measured(|costs| stores(costs, StoreOrder::Random)),
];

fn stores(costs: &FaultCosts, order: StoreOrder) -> Option<OurFigure> {
    let [classic, shared] = ForkMode::BOTH.map(|mode| Unit::Nanos.text(&costs.stats(mode)));
    let with_fork = Unit::Times.text(&costs.ratio_with_fork());
    let details = format!("({shared}, {classic}); with the fork {with_fork}");
    (costs.order == order).then(|| OurFigure { of: order.name().to_owned(), details, ..costs.ratio().into() })
}

const A_CYCLE: &str = "Memory management in a cycle, classic against shared";
const PROGRAMS: &str = "the time of the programs themselves, which is most of the published figure";

/// Cycles with a published figure or a promise.
const CYCLES: [ClaimRow<CycleTimes>; 3] = [
    published(A_CYCLE, SERIES, Limit::gain([53.50, 52.15], Unit::RunsPerSecond).noting("AFL and SQLite"))
        .leaving_out(PROGRAMS)
        .measured(|times| cycle(times, times.cycle.name == "fork server")),
    published(A_CYCLE, SERIES, Limit::gain([102.30, 105.54], Unit::RunsPerSecond).noting("TriforceAFL"))
        .leaving_out(PROGRAMS)
        .measured(|times| cycle(times, times.cycle.name == "VM clone")),
    promised(A_CYCLE, Limit::at_least(10.0, Unit::Times))
        .measured(|times| cycle(times, times.cycle.work == ChildWork::Exit)),
];

fn cycle(times: &CycleTimes, is_meant: bool) -> Option<OurFigure> {
    let [classic, shared] = ForkMode::BOTH.map(|mode| Unit::Micros.text(&times.stats(mode)));
    is_meant.then(|| OurFigure {
        of: format!("{}, {}", times.cycle.name, size(times.cycle.bytes)),
        details: format!("({classic}, {shared})"),
        ..times.gain(ForkMode::Shared).into()
    })
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

/// The cells of a matrix, and in what they are counted.
pub(super) struct Matrix {
    pub(super) name: &'static str,
    pub(super) cells: Vec<MatrixCell>,
}

pub(super) const MEASURED: [ClaimRow<Matrix>; 4] = matrix(Measured);
const MODELLED: [ClaimRow<Matrix>; 4] = matrix(Modelled);
/// What the worst cell gains at least, and the worst of those that store to one page a table.
const GAIN: Limit = Limit::at_least(1.0, Unit::Times);
const HARD_GAIN: Limit = Limit::at_least(0.8, Unit::Times);

/// The worst cell with each setting, beside those for which less is promised.
const fn matrix(kind: FigureKind) -> [ClaimRow<Matrix>; 4] {
    let (all, hard) = ("Cycles of the matrix", "Cycles that store to one page under each table");
    [
        gain_of(all, GAIN, kind).by(kind, |matrix| matrix.least(0, false)),
        gain_of(hard, HARD_GAIN, kind).by(kind, |matrix| matrix.least(0, true)),
        gain_of(all, GAIN, kind).by(kind, |matrix| matrix.least(1, false)),
        gain_of(hard, HARD_GAIN, kind).by(kind, |matrix| matrix.least(1, true)),
    ]
}

const fn gain_of(what: &'static str, limit: Limit, kind: FigureKind) -> ClaimHead {
    let head = promised(what, limit).up_to(LARGEST_IN_MATRIX);
    match kind {
        Measured => head.leaving_out("exceptions, and the rest of the system calls"),
        _ => head
            .leaving_out("exceptions, the rest of the system calls, and cache misses")
            .resting_on("the costs of the profile (docs/machine.md)"),
    }
}

impl Matrix {
    /// The cell that gains least in one of the ways [`ForkMode::AGAINST_CLASSIC`].
    fn least(&self, way: usize, is_hard: bool) -> Option<OurFigure> {
        let cells = || self.cells.iter().filter(|cell| cell.is_hard() == is_hard);
        let least = LeastStats::of(cells().map(|cell| (cell.gains[way], cell)))?;
        let limit = if is_hard { HARD_GAIN } else { GAIN }.figure();
        let (below, of) = (cells().filter(|cell| cell.gains[way].p90 < limit).count(), cells().count());
        let figure = OurFigure::least(&least, |cell| cell.cycle.labels().join(", "));
        // A figure that is the same in every run has no band.
        let band = if least.median.0.samples == 1 { "" } else { " over their whole band" };
        Some(OurFigure {
            of: format!("classic against {}, {}", ForkMode::AGAINST_CLASSIC[way].name(), self.name),
            details: format!("{}, {below} of {of} cells below the limit{band}", figure.details),
            reached: self.cells.iter().map(|cell| cell.cycle.bytes).max(),
            ..figure
        })
    }
}

/// A snapshot under write load: the pause, and the stores into which sharing moves it.
const SNAPSHOTS: [ClaimRow<Snapshots>; 2] = [
    promised("Pause of a snapshot, classic against shared", Limit::at_least(10.0, Unit::Times))
        .leaving_out("the exception and the rest of fork(2)")
        .measured(|snapshots| {
            let [classic, shared] = ForkMode::BOTH.map(|mode| Unit::Micros.text(&snapshots.stats(mode, PAUSE)));
            let details = format!("({classic}, {shared})");
            Some(OurFigure { of: size(snapshots.bytes), details, ..snapshots.gain(PAUSE).into() })
        }),
    promised(
        "Pause and first stores of a snapshot under write load, shared against classic",
        Limit::at_most(1.05, Unit::Times),
    )
    .because("the first store under a table copies the table, which a classic fork has copied in its pause")
    .leaving_out("the exception, and the load of the child's reads")
    .measured(|snapshots| {
        let [classic, shared] = ForkMode::BOTH.map(|mode| Unit::Millis.text(&snapshots.stats(mode, ALL_STORES)));
        let [tail, shared_tail] = ForkMode::BOTH.map(|mode| Unit::Nanos.text(&snapshots.stats(mode, TAIL)));
        Some(OurFigure {
            of: format!("{} stores", snapshots.stores),
            details: format!("({shared}, {classic})"),
            leaves_out: format!("single stores: the 99th percentile is {shared_tail}, classic {tail}"),
            ..snapshots.cost(ALL_STORES).into()
        })
    }),
];

const READ: Limit = Limit::at_most(50.0, Unit::Micros);

/// Operations that do not depend on the size of the space.
const LARGE: [ClaimRow<LargeSpace>; 4] = [
    promised("Warm read of /proc/PID/status, tables own", READ)
        .up_to(LARGEST)
        .measured(|large| read(large, &large.status)),
    promised("Warm read of /proc/PID/status, tables shared", READ)
        .up_to(LARGEST)
        .measured(|large| read(large, &large.status_shared)),
    promised("Warm read of /proc/PID/status, tables shared and edited for all", READ).up_to(LARGEST).measured(
        |large| {
            let first = Unit::Micros.text(&Stats::of(large.status_first[1].clone()));
            Some(OurFigure {
                leaves_out: format!("the first read after the edit: {first}"),
                ..read(large, &large.status_edited)?
            })
        },
    ),
    promised("munmap of a page in a large space against a small one", Limit::at_most(1.1, Unit::Times))
        .up_to(LARGEST)
        .measured(|large| {
            let shared = Unit::Times.text(&LargeSpace::growth(&large.unmap_shared));
            let details = format!("({shared} as the first operation after a fork)");
            Some(OurFigure { details, ..in_large(large, LargeSpace::growth(&large.unmap)) })
        }),
];

/// A read in the large space.
fn read(large: &LargeSpace, samples: &[Vec<f64>; 2]) -> Option<OurFigure> {
    Some(in_large(large, Stats::of(samples[1].clone())))
}

fn in_large(large: &LargeSpace, figure: Stats) -> OurFigure {
    let [_, bytes] = large.bytes;
    OurFigure { of: size(bytes), reached: Some(bytes), ..figure.into() }
}

#[cfg(test)]
mod tests;
