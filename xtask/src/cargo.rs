//! The workspace as cargo sees it, and cargo called from within cargo.
//!
//! A nested cargo must not inherit what the outer one set for `xtask` itself (`CARGO_PKG_…`,
//! `CARGO_MANIFEST_…`, …): it would rebuild what is built. [`command`] takes that out and keeps
//! what the user set.

use crate::error::Error;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo metadata` says of the workspace, as far as it is used here.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Its packages.
    pub(crate) packages: Vec<Package>,
    /// The directory of the root manifest.
    pub(crate) workspace_root: PathBuf,
    /// Where cargo builds.
    pub(crate) target_directory: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its name in the manifest.
    pub(crate) name: String,
    /// What it depends on.
    pub(crate) dependencies: Vec<Dependency>,
    /// What it builds.
    pub(crate) targets: Vec<Target>,
}

/// One line of a package's dependencies.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) name: String,
    /// For what.
    pub(crate) kind: Option<DependencyKind>,
    /// Set when it lies in this repository.
    pub(crate) path: Option<PathBuf>,
}

/// What a dependency is for; a normal one has none.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    /// Tests, examples and benches.
    Dev,
    /// The build script.
    Build,
}

/// One thing that a package builds.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// `lib`, `bin`, `test`, …
    pub(crate) kind: Vec<String>,
    /// Its root module.
    pub(crate) src_path: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self, Error> {
        let output = output(command().args(["metadata", "--format-version", "1", "--no-deps"]))?;
        Ok(serde_json::from_slice(&output)?)
    }

    /// `path` from the root, for printing.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.workspace_root).unwrap_or(path)
    }
}

/// Whether the outer cargo set this variable for the program it runs.
fn set_for_xtask(variable: &str) -> bool {
    variable == "CARGO"
        || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
            .iter()
            .any(|prefix| variable.starts_with(prefix))
}

/// The cargo that runs this, ready for arguments.
pub(crate) fn command() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(set_for_xtask) {
            command.env_remove(variable);
        }
    }
    command
}

/// Runs `command` and returns what it printed to standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let program = command.get_program().display().to_string();
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|source| Error::Spawn { program: program.clone(), source })?;
    if output.status.success() { Ok(output.stdout) } else { Err(Error::Program { program, status: output.status }) }
}

/// Runs `command` with its output on ours.
pub(crate) fn status(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|source| Error::Spawn { program: program.clone(), source })?;
    if status.success() { Ok(()) } else { Err(Error::Program { program, status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_set_for_xtask_goes_and_what_the_user_set_stays() {
        for gone in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_BIN_NAME"] {
            assert!(set_for_xtask(gone), "{gone}");
        }
        for kept in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR", "CARGO_NET_OFFLINE", "PATH", "RUSTFLAGS"] {
            assert!(!set_for_xtask(kept), "{kept}");
        }
    }

    #[test]
    fn this_workspace_loads_and_has_this_package() {
        let workspace = Workspace::load().expect("cargo metadata");
        assert!(workspace.packages.iter().any(|package| package.name == "xtask"));
        assert!(workspace.workspace_root.join("Cargo.toml").exists());
    }
}
