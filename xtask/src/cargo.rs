//! The workspace as cargo describes it, and nested calls of cargo.
//!
//! A nested cargo must not inherit the variables that the outer one sets for `xtask`
//! (`CARGO_PKG_…`, `CARGO_MANIFEST_…`, …), because it would then rebuild everything. [`command`]
//! removes them and keeps those that the user has set.

use crate::error::Error;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace, from `cargo metadata`.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// The packages.
    pub(crate) packages: Vec<Package>,
    /// The directory of the root manifest.
    pub(crate) workspace_root: PathBuf,
    /// The directory of build output.
    pub(crate) target_directory: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    /// The name in the manifest.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: String,
    /// The manifest.
    pub(crate) manifest_path: PathBuf,
    /// The registries to which the package may be published; `None` for all of them.
    pub(crate) publish: Option<Vec<String>>,
    /// The address of the repository.
    pub(crate) repository: Option<String>,
    /// One line about it.
    pub(crate) description: Option<String>,
    /// The licence, as an SPDX expression.
    pub(crate) license: Option<String>,
    /// The words by which a registry finds it.
    #[serde(default)]
    pub(crate) keywords: Vec<String>,
    /// The categories of a registry to which it belongs.
    #[serde(default)]
    pub(crate) categories: Vec<String>,
    /// The oldest Rust that builds it.
    pub(crate) rust_version: Option<String>,
    /// The dependencies.
    pub(crate) dependencies: Vec<Dependency>,
    /// The targets.
    pub(crate) targets: Vec<Target>,
}

/// One line of a package's dependencies.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The package.
    pub(crate) name: String,
    /// The kind; `None` for a normal dependency.
    pub(crate) kind: Option<DependencyKind>,
    /// The path of a package in this repository.
    pub(crate) path: Option<PathBuf>,
}

/// The kind of a dependency that is not a normal one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    /// Tests, examples and benches.
    Dev,
    /// The build script.
    Build,
}

/// A target of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// The kinds, such as `lib`, `bin` and `test`.
    pub(crate) kind: Vec<String>,
    /// The root module.
    pub(crate) src_path: PathBuf,
}

impl Package {
    /// Whether the package may be published.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }
}

impl Workspace {
    /// Loads the metadata from cargo.
    pub(crate) fn load() -> Result<Self, Error> {
        Self::load_at(Path::new("."))
    }

    /// Loads the metadata of the workspace of `folder` from cargo.
    pub(crate) fn load_at(folder: &Path) -> Result<Self, Error> {
        let mut metadata = command();
        metadata.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(folder);
        Ok(serde_json::from_slice(&output(&mut metadata)?)?)
    }

    /// The folder to which programs for the machines are compiled, which this makes.
    pub(crate) fn programs(&self) -> Result<PathBuf, Error> {
        let folder = self.target_directory.join("programs");
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        Ok(folder)
    }

    /// `path` relative to the root, for output.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.workspace_root).unwrap_or(path)
    }
}

/// Whether the outer cargo sets this variable for the program that it runs.
fn set_for_xtask(variable: &str) -> bool {
    variable == "CARGO"
        || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
            .iter()
            .any(|prefix| variable.starts_with(prefix))
}

/// A call of the cargo that runs this program.
pub(crate) fn command() -> Command {
    calling_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A call of a program that calls cargo.
pub(crate) fn calling_cargo(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(set_for_xtask) {
            command.env_remove(variable);
        }
    }
    command
}

/// The triple of this machine.
///
/// # Errors
/// As [`output`].
pub(crate) fn host() -> Result<String, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = output(Command::new(rustc).arg("-vV"))?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Ok(printed.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned())
}

/// The options of a build with planted bugs, which only their own tests choose.
///
/// All steps of the tests share this one build. Bare metal and `clippy` build the code without
/// them.
pub(crate) const WITH_PLANTED_BUGS: [&str; 2] = ["--features", "pagewright/planted"];

/// Runs `command` and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let program = command.get_program().display().to_string();
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|source| Error::Spawn { program: program.clone(), source })?;
    if output.status.success() { Ok(output.stdout) } else { Err(Error::Program { program, status: output.status }) }
}

/// Runs `command`, which inherits standard output and standard error.
pub(crate) fn status(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|source| Error::Spawn { program: program.clone(), source })?;
    if status.success() { Ok(()) } else { Err(Error::Program { program, status }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_cargo_sets_for_xtask_are_removed() {
        for gone in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_BIN_NAME"] {
            assert!(set_for_xtask(gone), "{gone}");
        }
        for kept in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR", "CARGO_NET_OFFLINE", "PATH", "RUSTFLAGS"] {
            assert!(!set_for_xtask(kept), "{kept}");
        }
    }

    #[test]
    fn the_metadata_of_this_workspace_loads() {
        let workspace = Workspace::load().expect("cargo metadata");
        assert!(workspace.packages.iter().any(|package| package.name == "xtask"));
        assert!(workspace.workspace_root.join("Cargo.toml").exists());
    }
}
