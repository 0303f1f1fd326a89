//! Why a task failed.

use crate::toolchain::BareTarget;
use std::io;
use std::path::PathBuf;

/// Why a task failed; one line for the user each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No such command or option.
    #[error("unknown command: {0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// Which.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended badly.
    #[error("{program} failed ({status})")]
    Program {
        /// Which.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// `cargo metadata` printed something else than it should.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
    /// `pagewright replay --json` wrote something else than it should.
    #[error("pagewright replay: {0}")]
    Replay(serde_json::Error),
    /// The handler for Ctrl-C was refused.
    #[error("cannot catch Ctrl-C: {0}")]
    Interrupt(#[from] ctrlc::Error),
    /// A check found something; each finding has been printed.
    #[error("{check}: {count} found")]
    Findings {
        /// Which check.
        check: &'static str,
        /// How many findings.
        count: usize,
    },
    /// Steps failed; each has been printed.
    #[error("{0} of the steps failed")]
    Steps(usize),
    /// No toolchain on this machine builds for a bare-metal target.
    #[error(
        "no toolchain here builds for {0}\n  with rustup:  rustup target add {0}\n  on Debian:    cargo xtask setup   (or apt-get install {packages})",
        packages = crate::setup::BARE_METAL.join(" ")
    )]
    NoBareMetal(BareTarget),
    /// What was linked is no ELF file for 64 bits with something to load.
    #[error("{}: not an image that can be loaded", .0.display())]
    NoImage(PathBuf),
    /// Debian has no such package, or not as it is expected.
    #[error("{0}: no such package")]
    NoPackage(String),
    /// Packages are missing and can't be installed from here.
    #[error("to be installed by hand ({why}): {}", packages.join(" "))]
    InstallByHand {
        /// The packages, by their Debian names.
        packages: Vec<&'static str>,
        /// Why it isn't done here.
        why: crate::setup::Refusal,
    },
}

impl Error {
    /// An error about a file, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
