//! `pagewright record`: captures a program's accesses and memory calls.

use super::CommandError;
use pagewright_capture::record::{RecordOptions, record};
use std::path::PathBuf;

/// Options of `record`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File to write the capture to.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Program to run, a path or a name in PATH.
    ///
    /// It runs twice: natively for Linux's own counts, then under valgrind for its accesses.
    program: String,
    /// Arguments of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    let recording = record(&args.output, &args.program, &args.args, &RecordOptions::default())?;
    let summary = &recording.summary;
    eprintln!(
        "pagewright: {}: {} accesses in {} events, {} processes, {} threads; the program's exit status was {}",
        args.output.display(),
        summary.accesses,
        summary.events,
        summary.processes,
        summary.threads,
        recording.status
    );
    Ok(())
}
