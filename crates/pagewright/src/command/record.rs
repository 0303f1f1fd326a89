//! `pagewright record`: captures a program's accesses and memory calls.

use super::{CommandError, examples};
use crate::files::CommandFiles;
use crate::progress::{Heartbeat, INTERVAL};
use crate::show::size;
use pagewright_capture::record::{RecordOptions, RecordProgress, RecordStage, find_program, record};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Options of `record`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("record", ""))]
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

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        let program = find_program(&self.program);
        let files =
            CommandFiles::default().writes("--output", Some(&self.output)).reads("standard input,", "/dev/stdin");
        let files = program.into_iter().fold(files, |files, path| files.reads("the program", path));
        // An argument may be any word, so it counts only if there is such a file.
        let arguments = self.args.iter().filter(|argument| Path::new(argument).is_file());
        arguments.fold(files, |files, path| files.reads("an argument of the program,", path))
    }
}

/// Records the program; returns its exit status.
pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let options = RecordOptions::default();
    let progress = Arc::clone(&options.progress);
    let heartbeat = Heartbeat::start(INTERVAL, move || eprintln!("pagewright: {}", progress_text(&progress)));
    let recording = record(&args.output, &args.program, &args.args, &options)?;
    drop(heartbeat);
    let summary = &recording.summary;
    eprintln!(
        "pagewright: {}: {} accesses in {} events, {} processes, {} threads",
        args.output.display(),
        summary.accesses,
        summary.events,
        summary.processes,
        summary.threads,
    );
    let status = recording.status;
    if status != 0 {
        eprintln!("pagewright: {} failed: its exit status was {status}; the capture is kept", args.program);
    }
    if let Some(native) = recording.native_status.filter(|native| *native != status) {
        eprintln!(
            "pagewright: natively its exit status was {native}, so Linux's counts in the capture are of another run"
        );
    }
    Ok(ExitCode::from(status as u8))
}

/// A line about the stage of the recording.
fn progress_text(progress: &RecordProgress) -> String {
    match progress.stage() {
        RecordStage::Native => "the program runs natively, for Linux's counts".to_owned(),
        RecordStage::Valgrind => format!("the program runs under valgrind: {} of log so far", size(progress.logged())),
        RecordStage::Import => {
            let (imported, logged) = (progress.imported(), progress.logged());
            format!("converting the log: {} %", imported * 100 / logged.max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_begins_with_the_native_run() {
        assert_eq!(progress_text(&RecordProgress::default()), "the program runs natively, for Linux's counts");
    }
}
