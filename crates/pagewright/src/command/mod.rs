//! The commands.

mod boot;
mod check;
mod evaluate;
mod record;
mod replay;
mod run;
mod tour;

use clap::Subcommand;
use pagewright_capture::replay::Report;
use pagewright_capture::trace::TraceFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to do; without one, the tour.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Replay a capture on a simulated machine.
    Replay(replay::Args),
    /// Run a built-in workload on a simulated machine.
    Run(run::Args),
    /// Capture a real program's accesses and memory calls (needs valgrind).
    Record(record::Args),
    /// Put what was published about a mechanism beside what it comes to here: batch is counted and
    /// modelled, clear measured on this computer.
    Evaluate(evaluate::Args),
    /// Run random programs under the oracle and report who could still use a translation that is
    /// gone.
    Check(check::Args),
    /// Run a static Linux program on the kernel, in QEMU.
    Boot(boot::Args),
}

/// What makes a command end with status 2: one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// An option's value.
    #[error(transparent)]
    Option(#[from] crate::options::OptionError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] pagewright_capture::trace::TraceError),
    /// The replay.
    #[error(transparent)]
    Replay(#[from] pagewright_capture::replay::ReplayError),
    /// Recording.
    #[error(transparent)]
    Record(#[from] pagewright_capture::record::RecordError),
    /// What is to be checked.
    #[error(transparent)]
    Check(Box<check::CheckError>),
    /// An evaluation.
    #[error(transparent)]
    Evaluate(#[from] evaluate::EvaluateError),
    /// Booting.
    #[error(transparent)]
    Boot(#[from] boot::BootError),
    /// A file that can't be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Standard output is gone.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Does what was asked.
///
/// A check that found something fails without an error.
pub(crate) fn run(command: Option<Command>) -> Result<ExitCode, CommandError> {
    let success = |()| ExitCode::SUCCESS;
    let outcome = match command {
        None => tour::run().map(success),
        Some(Command::Replay(args)) => replay::run(&args).map(success),
        Some(Command::Run(args)) => run::run(&args).map(success),
        Some(Command::Record(args)) => record::run(&args).map(success),
        Some(Command::Evaluate(args)) => evaluate::run(&args).map(success),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Boot(args)) => boot::run(&args),
    };
    match outcome {
        // A reader that has seen enough, such as `head`, is no error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

/// Where `--json` or `--html` writes: opened before the work, so that a path that can't be written
/// is known at once, and whole or not at all.
struct OutFile {
    path: PathBuf,
    file: TraceFile,
}

/// What `--json` writes of replays: one run, or two with the heading that tells them apart.
#[derive(serde::Serialize)]
struct Document<'a> {
    schema: u32,
    runs: &'a [Labelled<'a>],
}

/// A run and its label.
#[derive(serde::Serialize)]
struct Labelled<'a> {
    label: String,
    #[serde(flatten)]
    report: &'a Report,
}

impl OutFile {
    fn create(path: &Path) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Write { path: path.to_owned(), source };
        Ok(Self { path: path.to_owned(), file: TraceFile::create(path).map_err(failed)? })
    }

    fn write_runs(self, runs: &[Labelled<'_>]) -> Result<(), CommandError> {
        self.write_json(&Document { schema: 1, runs })
    }

    fn write_json(self, document: &impl serde::Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::from);
        let text = text.map_err(|source| CommandError::Write { path: self.path.clone(), source })?;
        self.write_text(&format!("{text}\n"))
    }

    fn write_text(mut self, text: &str) -> Result<(), CommandError> {
        let path = self.path;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.commit());
        written.map_err(|source| CommandError::Write { path, source })
    }
}
