//! `pagewright run`: a built-in workload on a simulated machine.

use super::CommandError;
use super::replay::{Told, compare_or_show};
use crate::options::{MachineOptions, OptionError};
use pagewright_capture::generate;
use pagewright_capture::replay::Source;

/// Options of `run`.
#[derive(clap::Args)]
#[command(after_help = crate::options::simulated_settings_help())]
pub(crate) struct Args {
    /// The workload: fork-server, map-unmap, pageout (with --swap), protect or sweep
    workload: String,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    told: Told,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let (isa, config) = args.machine.build(None)?;
    if args.workload == "pageout" && config.swap_slots == 0 {
        eprintln!("pagewright: pageout without --swap: nothing is paged out");
    }
    let mut open = || -> Result<Box<dyn Source>, CommandError> {
        let workload = generate::named(&args.workload, args.machine.seed);
        let workload = workload.ok_or_else(|| OptionError::UnknownWorkload(args.workload.clone()))?;
        Ok(Box::new(workload))
    };
    compare_or_show(isa, &config, &args.told, &mut open)
}
