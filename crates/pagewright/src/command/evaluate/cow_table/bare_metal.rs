//! Instructions of forks on bare metal, as `cargo xtask instructions` last counted them.
//!
//! Key types: [`BareMetalFork`] and [`BareMetalCycle`], rows of `docs/benchmarks.md`. Nothing here
//! is measured when the evaluation runs: the count needs two kernels of Debian in QEMU.
//!
//! Not guaranteed: that this tree has the same figures as the one that was counted last.

use super::super::{Figures, Grid, Run, Stats};
use super::cycles::{self, CYCLE_HEAD, Cycle, GAIN_HEAD};
use super::parent::ForkMode;
use pagewright_types::IsaKind;

/// The document with the figures.
const BENCHMARKS: &str = include_str!("../../../../benchmarks.md");
/// What the head of the table says.
const HEAD: &str = "| kernel instructions in all, tables shared |";

/// The same of the table of cycles.
const CYCLES_HEAD: &str = "| thousands of kernel instructions in a cycle |";

/// The cells of the rows below a head.
fn rows_below(head: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let table = BENCHMARKS.lines().skip_while(move |line| !line.starts_with(head));
    table.take_while(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim).collect())
}

/// A row of the table of forks: kernel instructions of ours and of Linux 6.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BareMetalFork {
    pub(super) what: String,
    /// Ours and Linux's, of each instruction set.
    pub(super) x86_64: [u64; 2],
    pub(super) arm64: [u64; 2],
}

impl BareMetalFork {
    /// The rows of forks that share page tables.
    pub(super) fn all() -> Vec<Self> {
        rows_below(HEAD).filter_map(|cells| Self::parse(&cells)).collect()
    }

    /// A row with six figures; `None` for the head and the rule below it.
    fn parse(cells: &[&str]) -> Option<Self> {
        let count = |cell: usize| cells.get(cell)?.parse().ok();
        let pair = |cell: usize| Some([count(cell)?, count(cell + 1)?]);
        Some(Self { what: (*cells.get(1)?).to_owned(), x86_64: pair(2)?, arm64: pair(5)? })
    }

    fn isas(&self) -> [(&'static str, [u64; 2]); 2] {
        [("x86-64", self.x86_64), ("arm64", self.arm64)]
    }
}

/// A cycle of the matrix: kernel instructions in thousands.
pub(super) struct BareMetalCycle {
    pub(super) isa: IsaKind,
    pub(super) cycle: Cycle,
    pub(super) linux: f64,
    /// By [`ForkMode`].
    pub(super) ours: [f64; 3],
}

impl BareMetalCycle {
    /// The cycles of the matrix, for each instruction set.
    pub(super) fn all() -> Vec<Self> {
        let rows: Vec<_> = rows_below(CYCLES_HEAD).collect();
        let row = |isa: IsaKind, cycle: Cycle| {
            let name = cycle.labels().join(", ");
            let cells = rows.iter().find(|cells| cells.get(1) == Some(&name.as_str()))?;
            let first = 2 + 4 * isa as usize;
            let count = |cell: usize| cells.get(first + cell)?.parse().ok();
            Some(Self { isa, cycle, linux: count(0)?, ours: [count(1)?, count(2)?, count(3)?] })
        };
        let of = |isa| cycles::matrix(u64::MAX).filter_map(move |cycle| row(isa, cycle));
        IsaKind::ALL.into_iter().flat_map(of).collect()
    }

    /// Classic in multiples of another way.
    pub(super) fn gain(&self, mode: ForkMode) -> Stats {
        Stats::exact(self.ours[ForkMode::Classic as usize] / self.ours[mode as usize])
    }
}

fn ratio([ours, linux]: [u64; 2]) -> f64 {
    ours as f64 / linux as f64
}

pub(super) fn figures() -> Figures {
    [forks()].into_iter().chain(IsaKind::ALL.into_iter().map(matrix)).collect()
}

/// The cycles on one instruction set.
fn matrix(isa: IsaKind) -> Figures {
    let run = |counts: BareMetalCycle| {
        let label = format!("bare metal, {}, {}", counts.isa.name(), counts.cycle.labels().join(", "));
        let [classic, shared, auto] = counts.ours.map(in_ones);
        Run::of(label, "docs/benchmarks.md".to_owned()).with_counters([
            ("linux_kernel_instructions", in_ones(counts.linux)),
            ("classic_kernel_instructions", classic),
            ("shared_kernel_instructions", shared),
            ("auto_kernel_instructions", auto),
        ])
    };
    let of_isa = || BareMetalCycle::all().into_iter().filter(move |cycle| cycle.isa == isa);
    let title = format!(
        "The matrix of cycles on bare metal, {}, thousands of kernel instructions, from docs/benchmarks.md, not counted in this run",
        isa.name()
    );
    Grid::of(title, of_isa())
        .texts(CYCLE_HEAD, |counts| counts.cycle.labels())
        .text("Linux 6.1", |counts| format!("{:.1}", counts.linux))
        .texts(["classic", "shared", "auto"], |counts| counts.ours.map(|count| format!("{count:.1}")))
        .texts(GAIN_HEAD, |counts| ForkMode::AGAINST_CLASSIC.map(|mode| format!("{:.3}", counts.gain(mode).median)))
        .with_runs(of_isa().map(run))
}

fn forks() -> Figures {
    let runs = BareMetalFork::all().into_iter().flat_map(|fork| {
        fork.isas().map(|(isa, [ours, linux])| {
            Run::of(format!("bare metal, {isa}, {}", fork.what), "docs/benchmarks.md".to_owned())
                .with_counters([("kernel_instructions", ours), ("linux_kernel_instructions", linux)])
        })
    });
    let of_isa = |fork: &BareMetalFork, at: usize| {
        let [ours, linux] = fork.isas()[at].1;
        [ours.to_string(), linux.to_string(), format!("{:.3}", ratio([ours, linux]))]
    };
    Grid::of(
        "Kernel instructions on bare metal, from docs/benchmarks.md, not counted in this run",
        BareMetalFork::all(),
    )
    .text("tables shared", |fork| fork.what.clone())
    .texts(["x86-64", "Linux 6.1", "ratio"], |fork| of_isa(fork, 0))
    .texts(["arm64", "Linux 6.1", "ratio"], |fork| of_isa(fork, 1))
    .with_runs(runs)
}

/// A count that the document has in thousands.
fn in_ones(thousands: f64) -> u64 {
    (thousands * 1e3).round() as u64
}
