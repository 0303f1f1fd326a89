//! The commands.

mod record;
mod replay;
mod run;
mod tour;

use clap::Subcommand;
use std::io;
use std::path::PathBuf;

/// What to do; without one, the tour.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Replay a capture on a simulated machine.
    Replay(replay::Args),
    /// Run a built-in workload on a simulated machine.
    Run(run::Args),
    /// Capture a real program's accesses and memory calls (needs valgrind).
    Record(record::Args),
}

/// What makes a command end with status 2: one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// An option's value.
    #[error(transparent)]
    Option(#[from] crate::options::OptionError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] pagewright_workload::trace::TraceError),
    /// The replay.
    #[error(transparent)]
    Replay(#[from] pagewright_workload::replay::ReplayError),
    /// Recording.
    #[error(transparent)]
    Record(#[from] pagewright_workload::record::RecordError),
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
pub(crate) fn run(command: Option<Command>) -> Result<(), CommandError> {
    let outcome = match command {
        None => tour::run(),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Record(args)) => record::run(&args),
    };
    match outcome {
        // A reader that has seen enough, such as `head`, is no error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Writes a report as JSON, whole or not at all.
fn write_json(path: &std::path::Path, value: &impl serde::Serialize) -> Result<(), CommandError> {
    let failed = |source: io::Error| CommandError::Write { path: path.to_owned(), source };
    let mut text = serde_json::to_string_pretty(value).map_err(|error| failed(error.into()))?;
    text.push('\n');
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path)).map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed(error)
    })
}
