//! `cargo xtask package`: packs each package as `cargo publish --workspace` would upload it.
//!
//! Each archive must have its README, both licences and a root module. With `build`, cargo also
//! builds each archive by itself, against the archives of the packages below it, which takes
//! minutes. It builds in a folder that is empty at first: cargo takes a package of the same version
//! for the same, and would link what an older archive gave.
//!
//! Not guaranteed: that a registry accepts them. It also wants names that are free, and an owner.

use crate::cargo::{self, Package, Workspace};
use crate::error::{self, Error};
use std::fmt;
use std::fs;
use std::process::Command;

/// What is done with the archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Archives {
    /// Their files are compared with those that each needs.
    List,
    /// The same, and cargo builds each of them.
    Build,
}

/// The files that each archive needs, besides a root module.
const NEEDED: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];
const ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];

/// An archive that lacks a file.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    archive: String,
    file: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: lacks {}", self.archive, self.file)
    }
}

/// Packs all packages that can be published, and checks the archives.
///
/// # Errors
/// [`Error::Findings`], if a file is missing; [`Error::Program`], if cargo cannot pack or build.
pub(crate) fn run(archives: Archives) -> Result<(), Error> {
    let workspace = Workspace::load()?;
    let (published, kept): (Vec<&Package>, Vec<&Package>) =
        workspace.packages.iter().partition(|package| package.is_published());
    let mut pack = cargo::command();
    pack.args(["package", "--workspace", "--quiet", "--locked", "--allow-dirty"]);
    pack.args(kept.iter().flat_map(|package| ["--exclude", package.name.as_str()]));
    let folder = match archives {
        Archives::List => {
            pack.arg("--no-verify");
            workspace.target_directory.clone()
        }
        Archives::Build => {
            let folder = workspace.target_directory.join("packages");
            if folder.exists() {
                fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
            }
            folder
        }
    };
    pack.env("CARGO_TARGET_DIR", &folder);
    cargo::status(pack.current_dir(&workspace.workspace_root))?;
    let mut missing = Vec::new();
    for package in &published {
        let archive = format!("{}-{}", package.name, package.version);
        let path = folder.join("package").join(format!("{archive}.crate"));
        let listed = cargo::output(Command::new("tar").arg("--list").arg("--file").arg(path))?;
        missing.extend(lacks(&archive, &String::from_utf8_lossy(&listed)));
    }
    error::report(
        "package",
        &missing,
        format_args!("{} archives in {}", published.len(), workspace.shown(&folder.join("package")).display()),
    )
}

/// The files that an archive with these paths lacks.
fn lacks(archive: &str, listed: &str) -> Vec<Missing> {
    let has = |file: &&str| listed.lines().any(|path| path.strip_prefix(archive) == Some(&format!("/{file}")));
    let mut missing: Vec<_> = NEEDED.iter().filter(|file| !has(file)).copied().collect();
    if !ROOTS.iter().any(has) {
        missing.push("a root module");
    }
    missing.into_iter().map(|file| Missing { archive: archive.to_owned(), file }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_lacks_a_file_is_found() {
        let files = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "src/main.rs", "doc/README.md"];
        let listed: String = files.iter().map(|file| format!("x-0.1.0/{file}\n")).collect();
        let missing = |file| Missing { archive: "x-0.1.0".to_owned(), file };
        assert_eq!(lacks("x-0.1.0", &listed), [missing("README.md")]);
        let listed = listed.replace("doc/", "").replace("src/", "");
        assert_eq!(lacks("x-0.1.0", &listed), [missing("a root module")]);
    }
}
