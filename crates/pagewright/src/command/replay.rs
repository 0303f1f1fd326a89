//! `pagewright replay`: replays a capture on a simulated machine.

use super::{CommandError, LabelledRun, OutFile, examples};
use crate::files::CommandFiles;
use crate::made_by::MadeBy;
use crate::options::MachineOptions;
use crate::progress::{ProgressReader, ReplayProgress};
use crate::setting::Comparison;
use crate::show::{self, ComparedColumn, ComparedRows};
use pagewright_capture::replay::{EventSource, ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_types::IsaKind;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Options of `replay`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("replay", &crate::setting::simulated_settings_help()))]
pub(crate) struct Args {
    /// Capture written by `pagewright record` or `pagewright boot --record`.
    trace: PathBuf,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options of `replay` and `run` that say what to print and to write.
#[derive(clap::Args)]
pub(super) struct OutputOptions {
    /// Replay with a setting at each of these values, and print the results and the changes.
    ///
    /// With several settings, every value is combined with every value of the others. Rows that are
    /// equal in all replays are hidden. The replays run on all CPUs of this computer.
    #[arg(long, value_name = "NAME=A,B,…")]
    compare: Vec<String>,
    /// Number of seeds for each value of --compare, 1 to 100, from --seed on.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_seeds, requires = "compare")]
    seeds: u64,
    /// Also print counts of 0, rows that are equal, and every mapping.
    #[arg(long)]
    all: bool,
    /// Let the oracle judge the machine, and print its findings; the replay takes longer.
    #[arg(long)]
    oracle: bool,
    /// Also write all results to a file as JSON (docs/json.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the figures, and what each CPU did over time, to a file as one HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        self.output.files().reads("the capture", &self.trace)
    }
}

impl OutputOptions {
    pub(super) fn files(&self) -> CommandFiles {
        CommandFiles::default().writes("--json", self.json.as_deref()).writes("--html", self.html.as_deref())
    }
}

fn parse_seeds(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|seeds| (1..=100).contains(seeds))
        .ok_or_else(|| "must be a number from 1 to 100".to_owned())
}

/// Opens a source anew for each replay; the argument is the number of all replays, for progress.
pub(super) type OpenSource<'a> = dyn Fn(usize) -> Result<Box<dyn EventSource>, CommandError> + Sync + 'a;

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let footprint = TraceReader::open(&args.trace)?.header().native.as_ref().map(NativeCounts::footprint);
    let (isa, config) = args.machine.build(footprint, None)?;
    let progress = OnceLock::new();
    let open = |replays| -> Result<Box<dyn EventSource>, CommandError> {
        let reader = TraceReader::open(&args.trace)?;
        let progress = progress.get_or_init(|| Arc::new(replay_progress(&args.trace, replays)));
        Ok(Box::new(ProgressReader::new(reader, Arc::clone(progress))))
    };
    replay_and_show(isa, &config, &args.machine, &args.output, &open)
}

/// Replays a source once, or several times for a comparison, and prints the results.
///
/// The exit status is 1 if the oracle has a finding.
pub(super) fn replay_and_show(
    isa: IsaKind,
    config: &ReplayConfig,
    machine: &MachineOptions,
    output: &OutputOptions,
    open: &OpenSource<'_>,
) -> Result<ExitCode, CommandError> {
    let mut out = std::io::stdout().lock();
    let config = ReplayConfig { oracle: output.oracle, ..config.clone() };
    let comparison = Comparison::parse(&output.compare, &machine.settings()?)?;
    let (headings, configs) = (comparison.headings(), comparison.apply(isa, &config)?);
    let json = output.json.as_deref().map(OutFile::create).transpose()?;
    let html = output.html.as_deref().map(OutFile::create).transpose()?;
    let made_by = MadeBy::now();
    let seeds = if comparison.is_empty() { 1 } else { output.seeds };
    let of_seed = |config: &ReplayConfig, seed: u64| {
        let mut config = config.clone();
        config.machine.seed = config.machine.seed.wrapping_add(seed);
        config
    };
    let jobs: Vec<ReplayConfig> =
        configs.iter().flat_map(|config| (0..seeds).map(|seed| of_seed(config, seed))).collect();
    let mut reports = replay_all(isa, &jobs, open)?.into_iter();
    let columns: Vec<ComparedColumn> = headings
        .into_iter()
        .map(|heading| ComparedColumn { heading, reports: reports.by_ref().take(seeds as usize).collect() })
        .collect();
    if let Some(json) = json {
        let run = |column: &'_ ComparedColumn, report| LabelledRun { label: column.heading.clone(), report };
        let runs: Vec<LabelledRun<'_>> =
            columns.iter().flat_map(|column| column.reports.iter().map(|report| run(column, report))).collect();
        json.write_runs(&made_by, &runs)?;
    }
    let shown = if output.all { ComparedRows::All } else { ComparedRows::Different };
    if let Some(html) = html {
        html.write_text(&show::page(&columns, shown, &made_by))?;
    }
    match columns.first().and_then(|column| column.reports.first()) {
        Some(report) if comparison.is_empty() => show::report(&mut out, report, output.all)?,
        _ => show::comparison(&mut out, &columns, shown)?,
    }
    out.flush()?;
    let has_finding = |report: &ReplayReport| report.oracle.as_ref().is_some_and(|oracle| !oracle.findings.is_empty());
    let found = columns.iter().any(|column| column.reports.iter().any(has_finding));
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Replays the source on each machine, several at a time; the reports are in the same order.
pub(super) fn replay_all(
    isa: IsaKind,
    jobs: &[ReplayConfig],
    open: &OpenSource<'_>,
) -> Result<Vec<ReplayReport>, CommandError> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(config) = jobs.get(job) else { return done };
            let replayed = open(jobs.len()).and_then(|mut source| Ok(replay(isa, &mut *source, config)?));
            done.push((job, replayed));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(job, _)| *job);
    done.into_iter().map(|(_, replayed)| replayed).collect()
}

fn replay_progress(path: &Path, replays: usize) -> ReplayProgress {
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    ReplayProgress::start(bytes, replays, name)
}
