//! `pagewright record`: capture a real program.

use super::CommandError;
use pagewright_capture::record::{Options, record};
use std::path::PathBuf;

/// Options of `record`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the capture goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The program
    program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let recording = record(&args.output, &args.program, &args.args, &Options::default())?;
    let summary = &recording.summary;
    eprintln!(
        "pagewright: {}: {} accesses in {} events, {} processes, {} threads; the program's status was {}",
        args.output.display(),
        summary.accesses,
        summary.events,
        summary.processes,
        summary.threads,
        recording.status
    );
    Ok(())
}
