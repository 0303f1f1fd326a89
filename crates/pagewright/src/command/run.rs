//! `pagewright run`: a built-in workload on a simulated machine.

use super::CommandError;
use super::replay::compare_or_show;
use crate::options::{MachineOptions, OptionError};
use pagewright_workload::generate;
use pagewright_workload::replay::Source;
use std::path::PathBuf;

/// Options of `run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workload: fork-server, map-unmap, protect or sweep
    workload: String,
    #[command(flatten)]
    machine: MachineOptions,
    /// Run twice, with a setting at each of two values, and show both and the change
    #[arg(long, value_name = "K=A,B")]
    compare: Option<String>,
    /// Write every figure to a file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let (isa, config) = args.machine.build(None)?;
    let mut open = || -> Result<Box<dyn Source>, CommandError> {
        let workload = generate::named(&args.workload, args.machine.seed);
        let workload = workload.ok_or_else(|| OptionError::UnknownWorkload(args.workload.clone()))?;
        Ok(Box::new(workload))
    };
    compare_or_show(isa, &config, args.compare.as_deref(), args.json.as_deref(), &mut open)
}
