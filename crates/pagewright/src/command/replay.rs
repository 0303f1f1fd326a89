//! `pagewright replay`: replays a capture on a simulated machine.

use super::{CommandError, LabelledRun, OutFile};
use crate::options::MachineOptions;
use crate::progress::ProgressReader;
use crate::setting::Comparison;
use crate::show;
use pagewright_capture::replay::{EventSource, ReplayConfig, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_types::IsaKind;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `replay`.
#[derive(clap::Args)]
#[command(after_help = crate::setting::simulated_settings_help())]
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
    /// Replay with a setting at A, then at B, and print both results and the change.
    #[arg(long, value_name = "NAME=A,B")]
    compare: Option<String>,
    /// Also write all results to a file as JSON (docs/json.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let footprint = TraceReader::open(&args.trace)?.header().native.as_ref().map(NativeCounts::footprint);
    let (isa, config) = args.machine.build(footprint)?;
    let mut open = || -> Result<Box<dyn EventSource>, CommandError> { Ok(Box::new(open_with_progress(&args.trace)?)) };
    replay_and_show(isa, &config, &args.output, &mut open)
}

/// Replays a source once, or twice for a comparison, and prints the result.
pub(super) fn replay_and_show(
    isa: IsaKind,
    config: &ReplayConfig,
    output: &OutputOptions,
    open: &mut dyn FnMut() -> Result<Box<dyn EventSource>, CommandError>,
) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let comparison = output.compare.as_deref().map(Comparison::parse).transpose()?;
    let json = output.json.as_deref().map(OutFile::create).transpose()?;
    match comparison {
        None => {
            let report = replay(isa, &mut *open()?, config)?;
            if let Some(json) = json {
                json.write_runs(&[LabelledRun { label: String::new(), report: &report }])?;
            }
            show::report(&mut out, &report)?;
        }
        Some(comparison) => {
            let [before, after] = comparison.apply(isa, config)?;
            let reports = [replay(isa, &mut *open()?, &before)?, replay(isa, &mut *open()?, &after)?];
            if let Some(json) = json {
                let run = |index: usize| LabelledRun { label: comparison.heading(index), report: &reports[index] };
                json.write_runs(&[run(0), run(1)])?;
            }
            show::comparison(&mut out, &comparison, &reports)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn open_with_progress(path: &Path) -> Result<ProgressReader<impl std::io::Read + use<>>, CommandError> {
    let reader = TraceReader::open(path)?;
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(ProgressReader::new(reader, bytes, &name))
}
