//! `evaluate lines`: models the cache lines that CPUs share while they fault, by lock and counter.
//!
//! Key types: [`Cell`], one machine with one workload; [`ModeCost`], its cost in one mode.
//!
//! Each CPU stores to new pages of its own (`lab::contention`): in one space, as the threads of a
//! process, or in spaces of their own. *Before* is the same memory manager with `lru_batch=1`: each
//! new page takes the lock of its node's LRU lists. The band is what results with the transfer
//! times of a line at the ends of their bands.
//!
//! Not guaranteed: anything about real time. Lines that no owner reports, memory bandwidth and the
//! interconnect's own limits have no price (`docs/machine.md`).

use super::{ClaimRow, Context, EvaluateError, Evaluation, Figures, Grid, Limit, OurFigure, Run, Stats, Table, Unit};
use super::{claims_of, promised, run_parallel};
use crate::command::CommandError;
use pagewright_arch::{Aarch64, X86_64};
use pagewright_lab::contention::{self, FaultContention, FaultWorkload};
use pagewright_mm::{MmSetting, MmSettings};
use pagewright_sim::{BandEnd, LineCosts, MachineConfig, NodeConfig, Profile};
use pagewright_types::{CpuMask, IsaKind};
use std::collections::BTreeMap;

const CPUS: [u16; 4] = [1, 2, 8, MOST];
/// CPUs of the machine that the rows judge.
const MOST: u16 = 64;
/// Pages to which each CPU stores.
const PAGES: u64 = 512;
/// Bytes of the machine's one node.
const MEMORY: u64 = 1 << 30;

/// The values of `lru_batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchMode {
    Before,
    After,
}

impl BatchMode {
    const ALL: [Self; 2] = [Self::Before, Self::After];

    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    const fn value(self) -> u64 {
        match self {
            Self::Before => 1,
            Self::After => MmSetting::LruBatch.default(),
        }
    }
}

/// A machine and the workload on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setup {
    isa: IsaKind,
    cpus: u16,
    workload: FaultWorkload,
}

impl Setup {
    fn run(self, mode: BatchMode, end: BandEnd) -> Result<FaultContention, EvaluateError> {
        let name = Profile::default_for(self.isa);
        let failed = |error: &dyn std::fmt::Display| EvaluateError::Machine(format!("{name}: {error}"));
        let profile = Profile::named(name).map_err(|error| failed(&error))?.with_lines_at(end);
        let mut machine = MachineConfig::new(profile);
        machine.cpus = self.cpus;
        machine.nodes = vec![NodeConfig { bytes: MEMORY, cpus: CpuMask::EMPTY }];
        let settings = MmSettings::default();
        settings.set(MmSetting::LruBatch, mode.value()).map_err(|error| failed(&error))?;
        let run = match self.isa {
            IsaKind::X86_64 => contention::run::<X86_64>,
            IsaKind::Aarch64 => contention::run::<Aarch64>,
        };
        run(machine, settings, self.workload, PAGES, || {}).map_err(|error| failed(&error))
    }

    fn label(self, mode: BatchMode) -> String {
        let Self { isa, cpus, workload } = self;
        format!("{}, {cpus} CPUs, {}, {}", Profile::default_for(isa), workload.name(), mode.name())
    }
}

/// The cost of a workload in one mode.
struct ModeCost {
    given: FaultContention,
    /// Nanoseconds of a fault as given, and with the transfer times at the ends of their bands.
    each: Stats,
}

impl ModeCost {
    fn run(setup: Setup, mode: BatchMode) -> Result<Self, EvaluateError> {
        let given = setup.run(mode, BandEnd::Given)?;
        let nanos = |costs: &FaultContention| costs.per_fault() as f64 / 1e3;
        let [low, high] = [BandEnd::Low, BandEnd::High].map(|end| setup.run(mode, end));
        let each = Stats { median: nanos(&given), p10: nanos(&low?), p90: nanos(&high?), samples: 3 };
        Ok(Self { given, each })
    }

    /// The nanoseconds of a fault that transfers and waits of a line take.
    fn line(&self, line: &LineCosts) -> [f64; 3] {
        let per_fault = |raw: u64| raw as f64 / self.given.faults as f64;
        let nanos = [line.transfer_time.raw(), line.wait_time.raw()].map(|raw| per_fault(raw) / 1e3);
        [per_fault(line.uses), nanos[0], nanos[1]]
    }
}

/// One machine with one workload, in both modes.
struct Cell {
    setup: Setup,
    before: ModeCost,
    after: ModeCost,
}

impl Cell {
    fn run(setup: Setup) -> Result<Self, EvaluateError> {
        let [before, after] = BatchMode::ALL.map(|mode| ModeCost::run(setup, mode));
        Ok(Self { setup, before: before?, after: after? })
    }

    fn modes(&self) -> [(BatchMode, &ModeCost); 2] {
        [(BatchMode::Before, &self.before), (BatchMode::After, &self.after)]
    }
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    context.show_step("first stores of 1 to 64 CPUs");
    let setups = IsaKind::ALL.iter().flat_map(|isa| {
        let machines = CPUS.iter().flat_map(|cpus| FaultWorkload::ALL.map(|workload| (*cpus, workload)));
        machines.map(|(cpus, workload)| Setup { isa: *isa, cpus, workload })
    });
    let cells = run_parallel(setups, Cell::run)?;
    let tables = IsaKind::ALL.iter().map(|isa| faults(*isa, &cells));
    let most = cells.iter().filter(|cell| cell.setup.cpus == MOST);
    Ok(Evaluation {
        name: "lines",
        title: "cache lines that CPUs share while they fault",
        isa: "x86-64, arm64",
        config: BTreeMap::from([
            ("program".to_owned(), format!("{PAGES} first stores by each CPU")),
            ("lru_batch before, after".to_owned(), BatchMode::ALL.map(|mode| mode.value().to_string()).join(", ")),
        ]),
        measured_on: BTreeMap::new(),
        figures: Figures {
            runs: cells.iter().flat_map(runs).collect(),
            tables: tables.chain(most.map(lines)).collect(),
            plots: Vec::new(),
        },
        claims: claims_of(&CLAIMS, &cells[..]),
        notes: notes(),
    })
}

fn find(cells: &[Cell], isa: IsaKind, cpus: u16, workload: FaultWorkload) -> Option<&Cell> {
    cells.iter().find(|cell| cell.setup == Setup { isa, cpus, workload })
}

/// What a fault costs on one machine, by number of CPUs and workload.
fn faults(isa: IsaKind, cells: &[Cell]) -> Table {
    let alone = |cell: &Cell| find(cells, isa, 1, cell.setup.workload).map(|cell| cell.after.each.median);
    let times = |cell: &Cell, each: &Stats| alone(cell).map(|alone| format!("{:.2}", each.median / alone));
    let nanos = |each: &Stats| format!("{:.0} [{:.0}–{:.0}]", each.median, each.p10, each.p90);
    let title = format!("{}, a first store", Profile::default_for(isa));
    Grid::of(title, cells.iter().filter(|cell| cell.setup.isa == isa))
        .text("CPUs", |cell| u64::from(cell.setup.cpus))
        .text("workload", |cell| cell.setup.workload.name())
        .text("ns per fault before", |cell| nanos(&cell.before.each))
        .text("× of one CPU", |cell| times(cell, &cell.before.each))
        .text("after", |cell| nanos(&cell.after.each))
        .text("× of one CPU", |cell| times(cell, &cell.after.each))
        .table()
}

/// What each lock and counter costs a fault on the largest machine.
fn lines(cell: &Cell) -> Table {
    let [before, after] = [&cell.before, &cell.after];
    let has = |costs: &[LineCosts], name| costs.iter().any(|line| line.name == name);
    let gone = before.given.lines.iter().filter(|line| !has(&after.given.lines, line.name));
    let figures = |mode: &ModeCost, name: &str| {
        let costs = mode.given.lines.iter().find(|line| line.name == name);
        let [uses, transfer, wait] = costs.map_or([0.0; 3], |costs| mode.line(costs));
        [format!("{uses:.2}"), format!("{transfer:.1}"), format!("{wait:.1}")]
    };
    let Setup { isa, cpus, workload } = cell.setup;
    let title = format!("{}, {cpus} CPUs, {}: each line", Profile::default_for(isa), workload.name());
    Grid::of(title, after.given.lines.iter().chain(gone).map(|line| line.name))
        .text("lock or counter", |name| *name)
        .texts(["uses per fault before", "ns of transfers", "ns of waits"], |name| figures(before, name))
        .texts(["after", "transfers", "waits"], |name| figures(after, name))
        .table()
}

/// The promise about spaces of their own, by instruction set.
const CLAIMS: [ClaimRow<[Cell]>; 2] =
    [own_spaces(|cells| own_space(IsaKind::X86_64, cells)), own_spaces(|cells| own_space(IsaKind::Aarch64, cells))];

const fn own_spaces(find: fn(&[Cell]) -> Option<OurFigure>) -> ClaimRow<[Cell]> {
    let limit = Limit::at_most(1.2, Unit::Times).noting("of one CPU");
    promised("A first store in spaces of their own", limit)
        .resting_on(
            "the transfer time of a line between cores (line_near, line_far), and every shared line being reported",
        )
        .modelled(find)
}

/// A first store on the largest machine, in multiples of one CPU's.
fn own_space(isa: IsaKind, cells: &[Cell]) -> Option<OurFigure> {
    let own = find(cells, isa, MOST, FaultWorkload::OwnSpaces)?;
    let one = find(cells, isa, MOST, FaultWorkload::OneSpace)?;
    let alone = &find(cells, isa, 1, FaultWorkload::OwnSpaces)?.after;
    let nanos = |mode: &ModeCost| format!("{:.0}", mode.each.median);
    let dearest = one.after.given.lines.first().map_or("", |line| line.name);
    Some(OurFigure {
        of: format!("{MOST} CPUs, {}", Profile::default_for(isa)),
        details: format!("of {} ns; before {} ns, after {}", nanos(alone), nanos(&own.before), nanos(&own.after)),
        leaves_out: format!(
            "threads of one space: {:.2} × ({} ns before, {} after; the dearest line is {dearest})",
            one.after.each.over(&alone.each).median,
            nanos(&one.before),
            nanos(&one.after)
        ),
        ..own.after.each.over(&alone.each).into()
    })
}

fn runs(cell: &Cell) -> Vec<Run> {
    let run = |(mode, costs): (BatchMode, &ModeCost)| {
        let mut run = Run::of(cell.setup.label(mode), format!("{PAGES} first stores by each CPU"));
        run.counters.insert("faults".to_owned(), costs.given.faults);
        run.modelled.insert("fault_ps".to_owned(), costs.given.per_fault());
        for line in &costs.given.lines {
            let name = line.name.replace(' ', "_").to_lowercase();
            run.counters.insert(format!("{name}_uses"), line.uses);
            run.modelled.insert(format!("{name}_transfers_ps"), line.transfer_time.raw());
            run.modelled.insert(format!("{name}_waits_ps"), line.wait_time.raw());
        }
        run
    };
    cell.modes().map(run).into()
}

fn notes() -> Vec<String> {
    [
        "All figures are modelled; no time is measured. A line that another CPU stored to last costs a transfer, and a CPU that acquires a held lock waits until \
         the hold ends. docs/machine.md lists the lines that are reported, and those that are not.",
        "[low–high]: with the transfer times at the ends of their bands. The profiles have the sources: published latencies between two cores.",
        "Each CPU stores to pages under tables of its own. CPUs that fault in one table also share its lock, which this program does not show.",
        "Left out: memory bandwidth, false sharing, the copies that waiting CPUs take of a held lock, and what the CPUs did before the stores.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests;
