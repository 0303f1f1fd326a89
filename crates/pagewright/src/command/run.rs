//! `pagewright run`: runs a built-in workload on a simulated machine.

use super::replay::{OutputOptions, replay_and_show};
use super::{CommandError, examples};
use crate::files::CommandFiles;
use crate::options::{MachineOptions, OptionError};
use pagewright_capture::replay::EventSource;
use pagewright_capture::workload;
use pagewright_types::PAGE_SIZE;
use std::process::ExitCode;

/// Options of `run`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("run", &crate::setting::simulated_settings_help()))]
pub(crate) struct Args {
    /// Workload: cross-section, fork-server, heap-…, map-unmap, pageout, protect or sweep.
    ///
    /// cross-section reads large tables on two memory tiers, fork-server forks a child for each
    /// request. heap-dense, heap-evacuating, heap-purging and heap-sparse are heaps of 256 MiB that
    /// use their pages in four ways. map-unmap maps and unmaps 1 to 64 pages, pageout reads shared
    /// memory and pages it out (needs --swap), protect changes rights that four threads use, sweep
    /// reads 256 MiB at random.
    workload: String,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    output: OutputOptions,
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        self.output.files()
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let (isa, config) = args.machine.build(None, workload::machine_of(&args.workload))?;
    if args.workload == "pageout" && config.swap_slots == 0 {
        eprintln!("pagewright: pageout without --swap pages nothing out");
    }
    let is_replaced = args.machine.nodes.are_given() || args.machine.mem.is_some();
    if let Some(wanted) = workload::machine_of(&args.workload).filter(|_| !is_replaced) {
        let fast = wanted.fast_bytes / PAGE_SIZE;
        if let Some(skew) = workload::skew(&args.workload, args.machine.seed, fast) {
            let share = skew.of_hottest as f64 * 100.0 / skew.loads.max(1) as f64;
            println!(
                "{}: the {fast} pages with the most loads, as many as the fast node has, of {} get {share:.1} % of them.",
                args.workload, skew.pages
            );
        }
    }
    let open = |_| -> Result<Box<dyn EventSource>, CommandError> {
        let workload = workload::named(&args.workload, args.machine.seed);
        let workload = workload.ok_or_else(|| OptionError::UnknownWorkload(args.workload.clone()))?;
        Ok(Box::new(workload))
    };
    replay_and_show(isa, &config, &args.machine, &args.output, &open)
}
