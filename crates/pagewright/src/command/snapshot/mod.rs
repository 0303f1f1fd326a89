//! `pagewright snapshot`: predicts what a fork of a running process would cost.
//!
//! `process` reads `/proc`, `counts` counts tables and pages, `costs` measures what Linux's fork
//! costs on this computer, `shared` forks the same mappings on our memory manager, `report` is what
//! is printed and written. The process itself is only read.
//!
//! Not guaranteed: one moment. The process runs while it is read.

mod costs;
mod counts;
mod process;
mod report;
mod shared;

use super::{CommandError, OutFile, examples};
use crate::files::CommandFiles;
use crate::made_by::MadeBy;
use crate::progress::StepProgress;
use costs::ForkCosts;
use nix::unistd::{SysconfVar, sysconf};
use process::{PAGE, ProcessMemory};
use report::SnapshotReport;
use shared::SharedFork;
use std::io::Write;
use std::path::PathBuf;

/// Options of `snapshot`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("snapshot", ""))]
pub(crate) struct Args {
    /// Process to read, by its number; the right to trace it is needed (ptrace(2)).
    ///
    /// The process is only read, and goes on meanwhile.
    #[arg(value_parser = parse_pid)]
    pid: i32,
    /// Also write everything to a file as JSON (docs/json.md).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Why a process could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// No process has that number.
    #[error("snapshot {pid}: no such process")]
    NoProcess {
        /// The number.
        pid: i32,
    },
    /// The user may not trace the process.
    #[error("snapshot {pid}: no permission to read its memory in /proc (needs the right to trace it, see ptrace(2))")]
    NotPermitted {
        /// The process.
        pid: i32,
    },
    /// A kernel thread, or a process that has ended and was not waited for.
    #[error("snapshot {pid}: has no memory: a kernel thread, or a process that has ended")]
    NoMemory {
        /// The process.
        pid: i32,
    },
    /// The process ended while it was read.
    #[error("snapshot {pid}: the process ended while it was read")]
    Ended {
        /// The process.
        pid: i32,
    },
    /// A file of the process could not be read for another reason.
    #[error("snapshot {pid}: /proc/{pid}: {reason}")]
    Proc {
        /// The process.
        pid: i32,
        /// The error.
        reason: String,
    },
    /// Pages of this computer have another size.
    #[error("snapshot: pages of {bytes} bytes; only 4096 are supported")]
    PageSize {
        /// The size.
        bytes: i64,
    },
    /// The costs could not be measured.
    #[error("snapshot: the costs of a fork cannot be measured: {reason}")]
    Calibration {
        /// The reason.
        reason: String,
    },
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        CommandFiles::default().writes("--json", self.json.as_deref())
    }
}

fn parse_pid(text: &str) -> Result<i32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| format!("must be the number of a process, from 1 to {}", i32::MAX))
}

pub(crate) fn run(args: &Args) -> Result<(), CommandError> {
    match sysconf(SysconfVar::PAGE_SIZE) {
        Ok(Some(bytes)) if bytes as u64 != PAGE => return Err(SnapshotError::PageSize { bytes }.into()),
        Ok(_) | Err(_) => {}
    }
    let json = args.json.as_deref().map(OutFile::create).transpose()?;
    let progress = StepProgress::start("snapshot");
    let process = ProcessMemory::read(args.pid, |step| progress.show(step))?;
    progress.show("forking the same mappings on our memory manager");
    let shared = SharedFork::count(&process)?;
    let costs = ForkCosts::measure(&process, |step| progress.show(step))?;
    drop(progress);
    let report = SnapshotReport::new(&process, costs, shared);
    if let Some(json) = json {
        json.write_json(&MadeBy::now(), &report)?;
    }
    let mut out = std::io::stdout().lock();
    report.write(&mut out)?;
    out.flush()?;
    Ok(())
}
