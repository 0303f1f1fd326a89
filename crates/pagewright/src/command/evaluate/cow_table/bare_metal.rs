//! Instructions of forks on bare metal, as `cargo xtask instructions` last counted them.
//!
//! Key type: [`BareMetalFork`], a row of `docs/benchmarks.md`. Nothing here is measured when the
//! evaluation runs: the count needs two kernels of Debian in QEMU.
//!
//! Not guaranteed: that this tree has the same figures as the one that was counted last.

use super::super::{Claim, FigureKind, Run, Table, Verdict};

/// The document with the figures.
const BENCHMARKS: &str = include_str!("../../../../benchmarks.md");
/// What the head of the table says.
const HEAD: &str = "| kernel instructions in all, tables shared |";
/// The row that the promise is about, and one that it leaves out.
const LARGE: &str = "fork of 512 MB";
const SMALL: &str = "fork and exit of a small process";

/// A row of the table: kernel instructions of ours and of Linux 6.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BareMetalFork {
    pub(super) what: String,
    /// Ours and Linux's, of each instruction set.
    pub(super) x86_64: [u64; 2],
    pub(super) arm64: [u64; 2],
}

/// What a fork of 512 MB may take of Linux's instructions.
const LIMIT: f64 = 0.02;

impl BareMetalFork {
    /// The rows of forks that share page tables.
    pub(super) fn all() -> Vec<Self> {
        let table =
            BENCHMARKS.lines().skip_while(|line| !line.starts_with(HEAD)).take_while(|line| line.starts_with('|'));
        table.filter_map(Self::parse).collect()
    }

    /// A row with six figures; `None` for the head and the rule below it.
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let count = |cell: usize| cells.get(cell)?.parse().ok();
        let pair = |cell: usize| Some([count(cell)?, count(cell + 1)?]);
        Some(Self { what: (*cells.get(1)?).to_owned(), x86_64: pair(2)?, arm64: pair(5)? })
    }

    fn isas(&self) -> [(&'static str, [u64; 2]); 2] {
        [("x86-64", self.x86_64), ("arm64", self.arm64)]
    }
}

fn ratio([ours, linux]: [u64; 2]) -> f64 {
    ours as f64 / linux as f64
}

pub(super) fn table() -> Table {
    let rows = BareMetalFork::all().into_iter().map(|fork| {
        let figures = fork
            .isas()
            .map(|(_, figures)| [figures[0].to_string(), figures[1].to_string(), format!("{:.3}", ratio(figures))]);
        [fork.what.clone()].into_iter().chain(figures.into_iter().flatten()).collect()
    });
    let head = ["tables shared", "x86-64", "Linux 6.1", "ratio", "arm64", "Linux 6.1", "ratio"];
    Table {
        title: "Kernel instructions on bare metal, from docs/benchmarks.md, not counted in this run".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

pub(super) fn runs() -> impl Iterator<Item = Run> {
    BareMetalFork::all().into_iter().flat_map(|fork| {
        fork.isas().map(|(isa, [ours, linux])| {
            Run::of(format!("bare metal, {isa}, {}", fork.what), "docs/benchmarks.md".to_owned())
                .with_counters([("kernel_instructions", ours), ("linux_kernel_instructions", linux)])
        })
    })
}

/// The promise about a large fork, with the small one that it leaves out.
pub(super) fn claim() -> Option<Claim> {
    let forks = BareMetalFork::all();
    let find = |what| forks.iter().find(|fork| fork.what == what);
    let (large, small) = (find(LARGE)?, find(SMALL)?);
    let percent = |fork: &BareMetalFork| {
        fork.isas().map(|(isa, figures)| format!("{:.1} % on {isa}", ratio(figures) * 100.0)).join(", ")
    };
    let kept = large.isas().into_iter().all(|(_, figures)| ratio(figures) <= LIMIT);
    let what = "Kernel instructions of a fork of 512 MB on bare metal, of Linux 6.1's";
    let row = Claim::promised(what, "at most 2 %", percent(large), FigureKind::Counted, Verdict::kept(kept));
    let small = format!("later faults of parent and child; {}: {}", small.what, percent(small));
    let rests = "the count of docs/benchmarks.md (cargo xtask instructions), which was not made in this run";
    Some(row.leaving_out(small).resting_on(rests))
}
