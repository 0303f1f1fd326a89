//! Why a program can't be recorded.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

use crate::import::ImportError;

/// Why a program can't be recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// There is no valgrind.
    #[error(
        "valgrind is not installed: apt install valgrind (Debian, Ubuntu), dnf install valgrind (Fedora), pacman -S valgrind (Arch)"
    )]
    NoValgrind,
    /// There is no such program.
    #[error("{program}: no such program")]
    NoProgram {
        /// As it was asked for.
        program: String,
    },
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system refuses to have the program followed.
    #[error("can't follow process {pid}: {errno} (ptrace)")]
    Ptrace {
        /// The process.
        pid: i32,
        /// What it said.
        errno: Errno,
    },
    /// Valgrind ended without a log.
    #[error("{program}: valgrind wrote no log and ended with status {status}")]
    NoLog {
        /// The program.
        program: String,
        /// Valgrind's exit status.
        status: i32,
    },
    /// The logs can't be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
}
