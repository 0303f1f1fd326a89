//! The commands, one module each.

mod boot;
mod captures;
mod check;
mod evaluate;
pub(crate) mod examples;
mod info;
mod linux_fork;
mod mechanisms;
mod record;
mod replay;
mod run;
mod snapshot;
mod tour;

use crate::files::{CommandFiles, SharedFile};
use crate::made_by::MadeBy;
use clap::Subcommand;
use pagewright_capture::replay::ReplayReport;
use pagewright_capture::trace::TraceFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command line's commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Replay a capture on a simulated machine and count faults, TLB misses and flushes.
    Replay(replay::Args),
    /// Say what a capture holds: processes, calls, mappings, pages.
    Info(info::Args),
    /// Run a built-in workload on a simulated machine.
    Run(run::Args),
    /// Capture a program's accesses and memory calls with QEMU or valgrind.
    Record(record::Args),
    /// Repeat published measurements of a mechanism and compare the figures.
    Evaluate(evaluate::Args),
    /// Run random programs under the oracle, which reports stale translations and wrong values.
    Check(check::Args),
    /// Predict what a fork of a running process costs, and what huge pages would hold.
    Snapshot(snapshot::Args),
    /// Boot the kernel in QEMU and run a static Linux program on it.
    Boot(boot::Args),
}

/// Why a command ends with exit status 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// An option was refused.
    #[error(transparent)]
    Option(#[from] crate::options::OptionError),
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] pagewright_capture::trace::TraceError),
    /// A replay could not finish.
    #[error(transparent)]
    Replay(#[from] pagewright_capture::replay::CaptureReplayError),
    /// A recording could not be made.
    #[error(transparent)]
    Record(#[from] pagewright_capture::record::RecordError),
    /// An option of `check` was refused.
    #[error(transparent)]
    Check(Box<check::CheckError>),
    /// An evaluation could not finish.
    #[error(transparent)]
    Evaluate(#[from] evaluate::EvaluateError),
    /// A program could not be booted.
    #[error(transparent)]
    Boot(#[from] boot::BootError),
    /// A process could not be read, or the costs of forks could not be measured.
    #[error(transparent)]
    Snapshot(#[from] snapshot::SnapshotError),
    /// An output is also another file.
    #[error(transparent)]
    Files(#[from] SharedFile),
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A replay token was refused.
    #[error("{0}")]
    Token(String),
    /// Standard output could not be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl Command {
    /// The files that the command line names.
    fn files(&self) -> CommandFiles {
        match self {
            Self::Replay(args) => args.files(),
            Self::Info(args) => args.files(),
            Self::Run(args) => args.files(),
            Self::Record(args) => args.files(),
            Self::Evaluate(args) => args.files(),
            Self::Snapshot(args) => args.files(),
            Self::Boot(args) => args.files(),
            // Its arguments name no file.
            Self::Check(_) => CommandFiles::default(),
        }
    }
}

/// Runs a command; without one, the tour.
///
/// An output that is also another file is refused before anything is done. A check with a finding
/// returns a failing exit status, not an error.
pub(crate) fn run(command: Option<Command>) -> Result<ExitCode, CommandError> {
    command.as_ref().map_or(Ok(()), |command| command.files().check())?;
    let success = |()| ExitCode::SUCCESS;
    let result = match command {
        None => tour::run(),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Info(args)) => info::run(&args).map(success),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Evaluate(args)) => evaluate::run(&args).map(success),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Snapshot(args)) => snapshot::run(&args).map(success),
        Some(Command::Boot(args)) => boot::run(&args),
    };
    match result {
        // A reader such as `head` may close the pipe early. That is no error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

/// The file that `--json` or `--html` names.
///
/// It is created before the work, so that a bad path is reported at once, and replaced only when
/// the whole text has been written.
struct OutFile {
    path: PathBuf,
    file: TraceFile,
}

/// A JSON document with its schema and what made it.
#[derive(serde::Serialize)]
struct MadeDocument<'a, T> {
    schema: u32,
    made_by: &'a MadeBy,
    #[serde(flatten)]
    members: &'a T,
}

/// The members of the document of `replay` and `run`: a run for each column and seed.
#[derive(serde::Serialize)]
struct Document<'a> {
    runs: &'a [LabelledRun<'a>],
}

/// A run and its label.
#[derive(serde::Serialize)]
struct LabelledRun<'a> {
    label: String,
    #[serde(flatten)]
    report: &'a ReplayReport,
}

impl OutFile {
    fn create(path: &Path) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Write { path: path.to_owned(), source };
        Ok(Self { path: path.to_owned(), file: TraceFile::create(path).map_err(failed)? })
    }

    fn write_runs(self, made_by: &MadeBy, runs: &[LabelledRun<'_>]) -> Result<(), CommandError> {
        self.write_json(made_by, &Document { runs })
    }

    fn write_json(self, made_by: &MadeBy, members: &impl serde::Serialize) -> Result<(), CommandError> {
        let document = MadeDocument { schema: 1, made_by, members };
        let text = serde_json::to_string_pretty(&document).map_err(io::Error::from);
        let text = text.map_err(|source| CommandError::Write { path: self.path.clone(), source })?;
        self.write_text(&format!("{text}\n"))
    }

    fn write_text(mut self, text: &str) -> Result<(), CommandError> {
        let path = self.path;
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.commit());
        written.map_err(|source| CommandError::Write { path, source })
    }
}
