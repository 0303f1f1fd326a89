//! A captured compiler and generated heaps under `never`, `madvise` and `always`.
//!
//! Key type: [`ProgramRun`], a program with one value of `transparent_hugepage.enabled`.
//!
//! Not guaranteed: real time. Faults, memory and splits are counted; TLB misses and the time of
//! page walks are those of the modelled TLB.

use super::super::{Context, EvaluateError, Figures, Grid, Plot, PlotAxis, PlotScale, Stats, run_parallel};
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

    fn peak_mib(&self) -> f64 {
        self.peak_bytes as f64 / f64::from(1 << 20)
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
pub(super) fn run(context: &Context<'_>) -> Result<Vec<ProgramRun>, EvaluateError> {
    let mut runs = Vec::new();
    for program in std::iter::once(COMPILE).chain(HEAPS) {
        context.show_step(&format!("{program} under never, madvise and always"));
        runs.extend(run_parallel(WORDS, |word| ProgramRun::run(program, word))?);
    }
    Ok(runs)
}

/// What is counted, and what is modelled, in tables and plots of their own.
pub(super) fn figures(runs: &[ProgramRun]) -> Figures {
    let grid = |title| Grid::of(title, runs).text("program", |run| run.program).text("enabled", |run| run.word);
    let modelled = grid("The same, modelled")
        .text("TLB misses of data", |run| run.tlb_misses)
        .text("ms of page walks", |run| format!("{:.2}", run.walk_ns as f64 / 1e6));
    let mut figures = counts(grid("Programs by transparent_hugepage.enabled, counted"))
        .modelled("tlb_misses", |run| run.tlb_misses)
        .modelled("walk_ns", |run| run.walk_ns)
        .figures(|run| [format!("enabled={}", run.word), run.program.to_owned()]);
    figures.tables.push(modelled.table());
    let plot = |title: &str, unit, figure: fn(&ProgramRun) -> f64| {
        let names = runs.chunks(WORDS.len()).map(|of| of[0].program.trim_start_matches("heap-").to_owned());
        let programs = runs.chunks(WORDS.len()).zip(0..);
        let points = programs.flat_map(|(of, at)| of.iter().map(move |run| (run.word, at, Stats::exact(figure(run)))));
        Plot::of(title, unit, PlotScale::Linear, PlotAxis::Names(names.collect()), points)
    };
    // A drawing needs points.
    if !runs.is_empty() {
        let of_tlb = "TLB misses of a compiler and of four heaps, by transparent_hugepage.enabled, modelled";
        figures.plots = vec![
            plot(of_tlb, "thousands", |run| run.tlb_misses as f64 / 1e3),
            plot("Memory in use at the peak, of the same, counted", "MiB", ProgramRun::peak_mib),
        ];
    }
    figures
}

fn counts(grid: Grid<&ProgramRun>) -> Grid<&ProgramRun> {
    grid.counted("faults", "pgfault", |run| run.faults)
        .counted("of 2 MiB", "thp_fault_alloc", |run| run.huge_faults)
        .only_json("peak_used_bytes", |run| run.peak_bytes)
        .text("peak MiB", |run| format!("{:.1}", run.peak_mib()))
        .counted("thp_split_pmd", "thp_split_pmd", |run| run.split_pmd)
        .counted("thp_split_page", "thp_split_page", |run| run.split_page)
        .counted("thp_deferred_split_page", "thp_deferred_split_page", |run| run.deferred)
}
