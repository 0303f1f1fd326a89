//! `pagewright record`: captures a program's accesses and memory calls.

use super::{CommandError, examples};
use crate::files::CommandFiles;
use crate::progress::{Heartbeat, INTERVAL};
use crate::show::{counted, size};
use pagewright_capture::record::{RecordOptions, RecordProgress, RecordStage, RecordTool, find_program, record};
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
    /// Tool that records: `qemu`, or `valgrind`, which takes 4 to 60 times as long.
    ///
    /// Without the option it is QEMU's user mode if that is installed, else valgrind.
    #[arg(long, value_enum, value_name = "TOOL")]
    with: Option<Tool>,
    /// Ends the recording, and the program, after this many accesses; needs QEMU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_accesses: Option<u64>,
    /// Program to run, a path or a name in PATH.
    ///
    /// It runs twice: natively for Linux's counts, then under QEMU or valgrind for its accesses.
    program: String,
    /// Arguments of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The tools of `--with`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Tool {
    Qemu,
    Valgrind,
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
    let tool = match args.with {
        None => RecordTool::Any,
        Some(Tool::Qemu) => RecordTool::Qemu,
        Some(Tool::Valgrind) => RecordTool::Valgrind,
    };
    let options = RecordOptions { tool, max_accesses: args.max_accesses, ..RecordOptions::default() };
    let progress = Arc::clone(&options.progress);
    let heartbeat = Heartbeat::start(INTERVAL, move || eprintln!("pagewright: {}", progress_text(&progress)));
    let recording = record(&args.output, &args.program, &args.args, &options)?;
    drop(heartbeat);
    if let Some(why) = &recording.without_qemu {
        eprintln!("pagewright: recorded by valgrind, which is slow, because {why}");
    }
    let summary = &recording.summary;
    eprintln!(
        "pagewright: {}: {} accesses in {} events, {}, {}",
        args.output.display(),
        summary.accesses,
        summary.events,
        counted(summary.processes as u64, ["process", "processes"]),
        counted(summary.threads as u64, ["thread", "threads"]),
    );
    if recording.limited {
        eprintln!("pagewright: the recording ended at --max-accesses, and the program with it");
        return Ok(ExitCode::SUCCESS);
    }
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
        RecordStage::Tool => tool_text(progress),
        RecordStage::Import => {
            let (imported, logged) = (progress.imported(), progress.logged());
            format!("converting the log: {} %", imported * 100 / logged.max(1))
        }
    }
}

/// A line about the run under the tool: the accesses so far, their rate, and the time that remains.
fn tool_text(progress: &RecordProgress) -> String {
    let (Some(accesses), Some(time)) = (progress.accesses(), progress.tool_time()) else {
        return format!("the program runs under valgrind: {} of log so far", size(progress.logged()));
    };
    let rate = accesses as f64 / time.as_secs_f64().max(0.001);
    let text = format!(
        "the program runs under QEMU: {:.1} M accesses so far, {:.1} M a second",
        accesses as f64 / 1e6,
        rate / 1e6
    );
    match progress.max_accesses() {
        Some(max) if accesses > 0 => {
            format!("{text}; at most {:.0} s to --max-accesses", max.saturating_sub(accesses) as f64 / rate)
        }
        _ => text,
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
