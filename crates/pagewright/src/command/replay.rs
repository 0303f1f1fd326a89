//! `pagewright replay`: a capture on a simulated machine, once or with a setting before and after.

use super::{CommandError, Labelled, OutFile};
use crate::options::{Comparison, MachineOptions};
use crate::progress::Watched;
use crate::show;
use pagewright_capture::replay::{ReplayConfig, Source, replay};
use pagewright_capture::trace::{Native, Reader};
use pagewright_types::IsaKind;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `replay`.
#[derive(clap::Args)]
#[command(after_help = crate::options::simulated_settings_help())]
pub(crate) struct Args {
    /// The capture, as `pagewright record` made it
    trace: PathBuf,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    told: Told,
}

/// How often it is replayed, and where the figures go.
#[derive(clap::Args)]
pub(super) struct Told {
    /// Replay twice, with a setting at each of two values, and show both and the change
    #[arg(long, value_name = "K=A,B")]
    compare: Option<String>,
    /// Write every figure to a file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let footprint = Reader::open(&args.trace)?.header().native.as_ref().map(Native::footprint);
    let (isa, config) = args.machine.build(footprint)?;
    let mut open = || -> Result<Box<dyn Source>, CommandError> { Ok(Box::new(watch(&args.trace)?)) };
    compare_or_show(isa, &config, &args.told, &mut open)
}

/// Runs a source once or twice and shows what came of it.
pub(super) fn compare_or_show(
    isa: IsaKind,
    config: &ReplayConfig,
    told: &Told,
    open: &mut dyn FnMut() -> Result<Box<dyn Source>, CommandError>,
) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let comparison = told.compare.as_deref().map(Comparison::parse).transpose()?;
    let json = told.json.as_deref().map(OutFile::create).transpose()?;
    match comparison {
        None => {
            let report = replay(isa, &mut *open()?, config)?;
            if let Some(json) = json {
                json.write_runs(&[Labelled { label: String::new(), report: &report }])?;
            }
            show::report(&mut out, &report)?;
        }
        Some(comparison) => {
            let [before, after] = comparison.apply(isa, config)?;
            let reports = [replay(isa, &mut *open()?, &before)?, replay(isa, &mut *open()?, &after)?];
            if let Some(json) = json {
                let run = |index: usize| Labelled { label: comparison.heading(index), report: &reports[index] };
                json.write_runs(&[run(0), run(1)])?;
            }
            show::comparison(&mut out, &comparison, &reports)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn watch(path: &Path) -> Result<Watched<impl std::io::Read + use<>>, CommandError> {
    let reader = Reader::open(path)?;
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(Watched::new(reader, bytes, &name))
}
