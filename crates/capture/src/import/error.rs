//! What can be wrong with a log, or with turning it into a trace.
//!
//! Every error is one line and names the file, and the line where there is one.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why logs can't be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A log can't be read.
    #[error("{}: {source}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No log was given.
    #[error("no log to import")]
    NoLogs,
    /// The trace can't be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The trace.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A log without any line.
    #[error("{}: empty file, not a lackey log", path.display())]
    Empty {
        /// The log.
        path: PathBuf,
    },
    /// A line that valgrind's lackey doesn't write.
    #[error("{}:{line}: not a line of a lackey log: {text:?}", path.display())]
    Syntax {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The line's beginning.
        text: String,
    },
    /// Accesses without the system calls that would say what is mapped.
    #[error(
        "{}:{line}: accesses without system calls: capture with --trace-syscalls=yes --trace-sched=yes, or choose how mappings are inferred",
        path.display()
    )]
    AccessesAlone {
        /// The log.
        path: PathBuf,
        /// The first line that can't be placed.
        line: u64,
    },
    /// A log that ends before its process does.
    #[error("{}:{line}: log ends before its process ({pid}) does: truncated, or the process was killed", path.display())]
    Unfinished {
        /// The log.
        path: PathBuf,
        /// Its last line.
        line: u64,
        /// The process, as the log numbers it.
        pid: u32,
    },
    /// A process was forked and has no log.
    #[error("{}:{line}: process {child} has no log: capture with --trace-children=yes and %p in --log-file, and give all logs", path.display())]
    MissingLog {
        /// The parent's log.
        path: PathBuf,
        /// The line of the fork.
        line: u64,
        /// The child.
        child: u32,
    },
    /// Something is said of a thread that was never born.
    #[error("{}:{line}: valgrind's thread {slot} was not created in this log", path.display())]
    UnknownThread {
        /// The log.
        path: PathBuf,
        /// The line.
        line: u64,
        /// Valgrind's number of it.
        slot: u32,
    },
    /// A log that nothing leads to.
    #[error("{}: no log says that process {pid} was forked (a parent that execs overwrites its own log)", path.display())]
    Orphan {
        /// The log.
        path: PathBuf,
        /// Its process.
        pid: u32,
    },
    /// Two logs of one process.
    #[error("{} and {}: both are logs of process {pid}", first.display(), second.display())]
    TwoLogs {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// The process.
        pid: u32,
    },
    /// Logs that are not one family.
    #[error("{} and {}: neither process descends from the other", first.display(), second.display())]
    TwoRoots {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// An executable that the log names can't be read, so what `execve` maps is unknown.
    #[error("{}:{line}: {}: {why}", path.display(), executable.display())]
    Executable {
        /// The log.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The executable.
        executable: PathBuf,
        /// What is wrong with it.
        why: ExecutableError,
    },
}

/// What is wrong with an executable.
#[derive(Debug, Error)]
pub enum ExecutableError {
    /// It can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is neither a 64-bit ELF file nor a script.
    #[error("not a 64-bit little-endian ELF executable")]
    NotElf,
    /// Scripts that are interpreted by scripts, beyond Linux's limit.
    #[error("more than {0} levels of interpreters")]
    TooManyInterpreters(usize),
}
