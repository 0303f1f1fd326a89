//! A captured compiler and generated heaps under `never`, `madvise` and `always`.
//!
//! Key type: [`ProgramRun`], a program with one value of `transparent_hugepage.enabled`.
//!
//! Not guaranteed: real time. Faults, memory and splits are counted; TLB misses and the time of
//! page walks are those of the modelled TLB.

use super::super::{Context, EvaluateError, Plot, PlotAxis, PlotScale, Run, Series, Table, run_parallel};
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

    const fn counters(&self) -> [(&'static str, u64); 6] {
        [
            ("pgfault", self.faults),
            ("thp_fault_alloc", self.huge_faults),
            ("peak_used_bytes", self.peak_bytes),
            ("thp_split_pmd", self.split_pmd),
            ("thp_split_page", self.split_page),
            ("thp_deferred_split_page", self.deferred),
        ]
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
    let named = |run: &ProgramRun| [run.program.to_owned(), run.word.to_owned()];
    let counted = runs.iter().map(|run| {
        let counts = run.counters().map(|(name, count)| match name {
            "peak_used_bytes" => format!("{:.1}", count as f64 / f64::from(1 << 20)),
            _ => count.to_string(),
        });
        named(run).into_iter().chain(counts).collect()
    });
    let modelled = runs.iter().map(|run| {
        let figures = [run.tlb_misses.to_string(), format!("{:.2}", run.walk_ns as f64 / 1e6)];
        named(run).into_iter().chain(figures).collect()
    });
    let head = [
        "program",
        "enabled",
        "faults",
        "of 2 MiB",
        "peak MiB",
        "thp_split_pmd",
        "thp_split_page",
        "thp_deferred_split_page",
    ];
    let of = |title: &str, head: &[&str], rows: Vec<Vec<String>>| Table {
        title: title.to_owned(),
        head: head.iter().map(|name| (*name).to_owned()).collect(),
        rows,
    };
    vec![
        of("Programs by transparent_hugepage.enabled, counted", &head, counted.collect()),
        of("The same, modelled", &["program", "enabled", "TLB misses of data", "ms of page walks"], modelled.collect()),
    ]
}

pub(super) fn runs(runs: &[ProgramRun]) -> impl Iterator<Item = Run> {
    runs.iter().map(|run| {
        let mut written =
            Run::of(format!("enabled={}", run.word), run.program.to_owned()).with_counters(run.counters());
        written.modelled.insert("tlb_misses".to_owned(), run.tlb_misses);
        written.modelled.insert("walk_ns".to_owned(), run.walk_ns);
        written
    })
}
