//! A captured compiler and generated heaps under `never`, `madvise` and `always`.
//!
//! Key type: [`ProgramRun`], a program with one value of `transparent_hugepage.enabled`.
//!
//! Not guaranteed: real time. Faults, memory and splits are counted; TLB misses and the time of
//! page walks are those of the modelled TLB.

use super::super::{Context, EvaluateError, Grid, Plot, PlotAxis, PlotScale, Run, Series, Table, run_parallel};
use crate::command::captures;
use pagewright_capture::replay::{EventSource, ReplayConfig, ReplayReport, replay};
use pagewright_capture::workload;
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::fmt::Display;

/// The captured program, and the heaps of `capture::workload`.
const COMPILE: &str = "compile";
const HEAPS: [&str; 4] = ["heap-dense", "heap-sparse", "heap-purging", "heap-evacuating"];
/// The words of `transparent_hugepage.enabled`.
pub(super) const WORDS: [&str; 3] = ["never", "madvise", "always"];
/// Bytes of the machine's memory: little more than the heaps, which reach 256 MiB.
const MEMORY: u64 = 512 << 20;

/// A program with one value of `transparent_hugepage.enabled`.
#[derive(Default)]
pub(super) struct ProgramRun {
    pub(super) program: &'static str,
    pub(super) word: &'static str,
    pub(super) faults: u64,
    pub(super) huge_faults: u64,
    pub(super) peak_bytes: u64,
    pub(super) split_pmd: u64,
    pub(super) split_page: u64,
    pub(super) deferred: u64,
    /// Modelled.
    pub(super) tlb_misses: u64,
    pub(super) walk_ns: u64,
}

impl ProgramRun {
    fn of(program: &'static str, word: &'static str, report: &ReplayReport) -> Self {
        let count = |name: &str| report.counters.get(name).unwrap_or(0);
        Self {
            program,
            word,
            faults: count("pgfault"),
            huge_faults: count("thp_fault_alloc"),
            peak_bytes: report.nodes.iter().map(|node| node.peak_used_bytes).sum(),
            split_pmd: count("thp_split_pmd"),
            split_page: count("thp_split_page"),
            deferred: count("thp_deferred_split_page"),
            tlb_misses: count("dTLB-load-misses") + count("dTLB-store-misses"),
            walk_ns: report.modelled.walk_ns,
        }
    }

    pub(super) fn run(program: &'static str, word: &'static str) -> Result<Self, EvaluateError> {
        let failed = |error: &dyn Display| EvaluateError::Machine(format!("{program} with {word}: {error}"));
        let profile = Profile::named(Profile::default_for(IsaKind::X86_64)).map_err(|error| failed(&error))?;
        let mut machine = MachineConfig::new(profile);
        machine.nodes[0].bytes = MEMORY;
        let value = MmSetting::ThpEnabled.parse(word).ok_or_else(|| failed(&"no such word"))?;
        let mut config = ReplayConfig::new(machine);
        config.settings.push((MmSetting::ThpEnabled, value));
        let run = |source: &mut dyn EventSource| replay(IsaKind::X86_64, source, &config);
        let report = if captures::is_capture(program) {
            run(&mut captures::open(program).map_err(|error| failed(&error))?)
        } else {
            let source = workload::named(program, config.machine.seed);
            run(&mut source.ok_or_else(|| failed(&"no such workload"))?)
        };
        report.map(|report| Self::of(program, word, &report)).map_err(|error| failed(&error))
    }
}

/// Runs the programs, each with all words in parallel.
///
/// # Errors
/// [`EvaluateError::Machine`].
pub(super) fn run(context: &Context<'_>) -> Result<Vec<ProgramRun>, EvaluateError> {
    let mut runs = Vec::new();
    for program in std::iter::once(COMPILE).chain(HEAPS) {
        context.show_step(&format!("{program} under never, madvise and always"));
        runs.extend(run_parallel(WORDS, |word| ProgramRun::run(program, word))?);
    }
    Ok(runs)
}

/// TLB misses and memory of each program, by word; none without runs.
pub(super) fn plots(runs: &[ProgramRun]) -> Vec<Plot> {
    if runs.is_empty() {
        return Vec::new();
    }
    let programs: Vec<&str> = std::iter::once(COMPILE).chain(HEAPS).collect();
    let names: Vec<String> = programs.iter().map(|name| name.trim_start_matches("heap-").to_owned()).collect();
    let plot = |title: &str, unit: &'static str, figure: fn(&ProgramRun) -> f64| {
        let of_word = |word: &&str| {
            let of_word = runs.iter().filter(|run| run.word == *word);
            let at = |run: &ProgramRun| programs.iter().position(|name| *name == run.program).unwrap_or(0);
            Series::of_counts(word, of_word.map(|run| (at(run) as u64, figure(run))))
        };
        Plot {
            title: title.to_owned(),
            unit,
            scale: PlotScale::Linear,
            axis: PlotAxis::Names(names.clone()),
            series: WORDS.iter().map(of_word).collect(),
        }
    };
    vec![
        plot(
            "TLB misses of a compiler and of four heaps, by transparent_hugepage.enabled, modelled",
            "thousands",
            |run| run.tlb_misses as f64 / 1e3,
        ),
        plot("Memory in use at the peak, of the same, counted", "MiB", |run| {
            run.peak_bytes as f64 / f64::from(1 << 20)
        }),
    ]
}

/// What is counted, and what is modelled, in tables of their own.
pub(super) fn tables(runs: &[ProgramRun]) -> Vec<Table> {
    let grid = |title| Grid::of(title, runs).text("program", |run| run.program).text("enabled", |run| run.word);
    let counted = counts(grid("Programs by transparent_hugepage.enabled, counted"));
    let modelled = grid("The same, modelled")
        .text("TLB misses of data", |run| run.tlb_misses)
        .text("ms of page walks", |run| format!("{:.2}", run.walk_ns as f64 / 1e6));
    vec![counted.table(), modelled.table()]
}

fn counts(grid: Grid<&ProgramRun>) -> Grid<&ProgramRun> {
    grid.counted("faults", "pgfault", |run| run.faults)
        .counted("of 2 MiB", "thp_fault_alloc", |run| run.huge_faults)
        .only_json("peak_used_bytes", |run| run.peak_bytes)
        .text("peak MiB", |run| format!("{:.1}", run.peak_bytes as f64 / f64::from(1 << 20)))
        .counted("thp_split_pmd", "thp_split_pmd", |run| run.split_pmd)
        .counted("thp_split_page", "thp_split_page", |run| run.split_page)
        .counted("thp_deferred_split_page", "thp_deferred_split_page", |run| run.deferred)
}

pub(super) fn runs(runs: &[ProgramRun]) -> Vec<Run> {
    counts(Grid::of("", runs))
        .modelled("tlb_misses", |run| run.tlb_misses)
        .modelled("walk_ns", |run| run.walk_ns)
        .runs(|run| [format!("enabled={}", run.word), run.program.to_owned()])
}
