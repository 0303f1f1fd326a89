//! Errors of importing logs.
//!
//! The text of an error is one line that names the file and, if there is one, the line of the log.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why logs cannot be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A log cannot be read.
    #[error("{}: {source}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No log is given.
    #[error("no log to import")]
    NoLogs,
    /// The trace cannot be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The trace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A log is empty.
    #[error("{}: empty file, not a lackey log", path.display())]
    Empty {
        /// The log.
        path: PathBuf,
    },
    /// A line is not one that valgrind's lackey writes.
    #[error("{}:{line}: not a line of a lackey log: {text:?}", path.display())]
    Syntax {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The first characters of the line.
        text: String,
    },
    /// The log has accesses but no system calls, so its mappings are unknown.
    #[error(
        "{}:{line}: accesses without system calls: capture with --trace-syscalls=yes --trace-sched=yes, or let the import infer mappings",
        path.display()
    )]
    AccessesAlone {
        /// The log.
        path: PathBuf,
        /// The first line that needs a mapping.
        line: u64,
    },
    /// A log ends before its process exits.
    #[error("{}:{line}: the log ends before process {pid} exits: it is truncated, or the process was killed", path.display())]
    Unfinished {
        /// The log.
        path: PathBuf,
        /// The last line of the log.
        line: u64,
        /// The process, by its number in the log.
        pid: u32,
    },
    /// A forked process has no log.
    #[error("{}:{line}: process {child} has no log: capture with --trace-children=yes and %p in --log-file, and give all logs", path.display())]
    MissingLog {
        /// The log of the parent.
        path: PathBuf,
        /// The line of the fork.
        line: u64,
        /// The child, by its number in the log.
        child: u32,
    },
    /// A line names a thread that no earlier line creates.
    #[error("{}:{line}: thread {slot} of valgrind was not created in this log", path.display())]
    UnknownThread {
        /// The log.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The thread, by valgrind's number.
        slot: u32,
    },
    /// No log forks the process of this log.
    #[error("{}: no log forks process {pid} (a parent that execs overwrites its own log)", path.display())]
    Orphan {
        /// The log.
        path: PathBuf,
        /// The process, by its number in the log.
        pid: u32,
    },
    /// Two logs are of one process.
    #[error("{} and {}: both are logs of process {pid}", first.display(), second.display())]
    TwoLogs {
        /// The first log.
        first: PathBuf,
        /// The second log.
        second: PathBuf,
        /// The process, by its number in the logs.
        pid: u32,
    },
    /// The logs have more than one root process.
    #[error("{} and {}: neither process descends from the other", first.display(), second.display())]
    TwoRoots {
        /// The log of the first root.
        first: PathBuf,
        /// The log of the second root.
        second: PathBuf,
    },
    /// An executable cannot be read, so the mappings of `execve` are unknown.
    #[error("{}:{line}: {}: {why}", path.display(), executable.display())]
    Executable {
        /// The log.
        path: PathBuf,
        /// The line at which the new image starts.
        line: u64,
        /// The executable.
        executable: PathBuf,
        /// The error.
        why: ExecutableError,
    },
}

/// Why an executable cannot be used.
#[derive(Debug, Error)]
pub enum ExecutableError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is neither a 64-bit ELF file nor a script.
    #[error("not a 64-bit little-endian ELF executable")]
    NotElf,
    /// Its interpreter is a script, and so on, beyond Linux's limit.
    #[error("more than {0} levels of interpreters")]
    TooManyInterpreters(usize),
}
