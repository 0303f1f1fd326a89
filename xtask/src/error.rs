//! The errors of tasks.

use pagewright_types::IsaKind;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// The error of a task, displayed to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No such command or option.
    #[error("unknown command: {0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status})")]
    Program {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// The output of `cargo metadata` is malformed.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
    /// The output of `pagewright replay --json` is malformed.
    #[error("pagewright replay: {0}")]
    Replay(serde_json::Error),
    /// A file is not Rust.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: syn::Error,
    },
    /// Test programs failed.
    #[error("{0} test programs failed")]
    TestPrograms(usize),
    /// A build with mutants failed, and no mutant is to blame.
    #[error("the build with mutants failed:\n{0}")]
    Build(String),
    /// A ledger of a task is malformed.
    #[error("{ledger}: {source}")]
    Ledger {
        /// The file, from the root of the repository.
        ledger: &'static str,
        /// The error of the parser.
        source: toml::de::Error,
    },
    /// The handler for Ctrl-C could not be installed.
    #[error("cannot catch Ctrl-C: {0}")]
    Interrupt(#[from] ctrlc::Error),
    /// A check has findings, which it has printed.
    #[error("{check}: {count} found")]
    Findings {
        /// The check.
        check: &'static str,
        /// The number of findings.
        count: usize,
    },
    /// Steps failed, and their output has been printed.
    #[error("{0} steps failed")]
    Steps(usize),
    /// No installed toolchain builds for a bare-metal target.
    #[error(
        "no installed toolchain builds for {triple}\n  with rustup:  rustup target add {triple}\n  on Debian:    cargo xtask setup   (or apt-get install {packages})",
        triple = crate::toolchain::bare_triple(*.0),
        packages = crate::setup::BARE_METAL.join(" ")
    )]
    NoBareMetal(IsaKind),
    /// The linked file is not a 64-bit ELF file with a loadable segment.
    #[error("{}: not a loadable image", .0.display())]
    NoImage(PathBuf),
    /// A page lacks the table that a command replaces.
    #[error("{page}: no table with the head `{head}`")]
    NoTable {
        /// The page.
        page: &'static str,
        /// The head of the table's first column.
        head: &'static str,
    },
    /// Debian has no such package, or the package lacks a file.
    #[error("{0}: no such package or file")]
    NoPackage(String),
    /// Packages are missing.
    #[error("install these packages by hand ({why}): {}", packages.join(" "))]
    InstallByHand {
        /// The Debian packages.
        packages: Vec<String>,
        /// Why they are missing.
        why: crate::setup::Refusal,
    },
}

impl Error {
    /// Makes the error of a file, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Prints what a check has found, or `clean` if that is nothing.
pub(crate) fn report<F: Display>(check: &'static str, findings: &[F], clean: impl Display) -> Result<(), Error> {
    findings.iter().for_each(|finding| println!("{finding}"));
    if !findings.is_empty() {
        return Err(Error::Findings { check, count: findings.len() });
    }
    println!("{check}: {clean}");
    Ok(())
}
