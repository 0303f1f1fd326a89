//! Errors of recording a program.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

use crate::import::ImportError;

/// Why a program cannot be recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Valgrind is not in `PATH`.
    #[error(
        "valgrind is not installed: apt install valgrind (Debian, Ubuntu), dnf install valgrind (Fedora), pacman -S valgrind (Arch)"
    )]
    NoValgrind,
    /// QEMU was to record the program and cannot.
    #[error("QEMU cannot record the program: {why}")]
    NoQemu {
        /// The reason.
        why: String,
    },
    /// The program does not exist.
    #[error("{program}: no such program")]
    NoProgram {
        /// The path or name given.
        program: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `ptrace(2)` or `waitpid(2)` fails, so the program cannot be followed.
    #[error("cannot trace process {pid} with ptrace: {errno}")]
    Ptrace {
        /// The process.
        pid: i32,
        /// The system's error.
        errno: Errno,
    },
    /// `personality(2)` fails, so address randomisation cannot be switched off.
    #[error("cannot switch off address randomisation with personality: {0}")]
    Personality(Errno),
    /// The tool exits without a log.
    #[error("{program}: {tool} wrote no log and exited with status {status}")]
    NoLog {
        /// The program.
        program: String,
        /// The tool.
        tool: String,
        /// The tool's exit status.
        status: i32,
    },
    /// The logs cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
}
