//! The copy of the repository in which mutants are built.
//!
//! It is `target/mutate/work`, with build output of its own. A file is written only if it changes,
//! so cargo rebuilds what has changed since the last run and no more.

use super::mutant::{Mutant, stable_hash};
use super::rewrite::{Rewritten, rewrite};
use crate::cargo::{self, Workspace};
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The switch, which the copy of `plant` gets as a module.
const RUNTIME: &str = include_str!("runtime.rs");
const RUNTIME_FILE: &str = "crates/plant/src/mutant.rs";
const PLANT: &str = "crates/plant/src/lib.rs";
const DECLARATION: &str = "\n#[allow(missing_docs)]\npub mod mutant;\n";

/// The copy.
pub(crate) struct Scratch {
    /// The root of the copy.
    pub(crate) root: PathBuf,
    /// The folder of build output.
    build: PathBuf,
    /// The files of the repository, without mutants.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The links of the repository to folders, and where each leads.
    links: BTreeMap<PathBuf, PathBuf>,
    /// The rewritten files.
    rewritten: BTreeMap<String, Rewritten>,
}

impl Scratch {
    /// Reads the repository; nothing is written yet.
    pub(crate) fn new(workspace: &Workspace) -> Result<Self, Error> {
        let folder = workspace.target_directory.join("mutate");
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&workspace.workspace_root);
        let listed = cargo::output(&mut git)?;
        let (mut files, mut links) = (BTreeMap::new(), BTreeMap::new());
        for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let path = PathBuf::from(String::from_utf8_lossy(name).into_owned());
            let from = workspace.workspace_root.join(&path);
            // A file that was removed and not committed is still listed.
            if from.is_symlink() && from.is_dir() {
                let to = fs::read_link(&from).map_err(Error::file(&from))?;
                links.insert(path, to);
            } else if from.is_file() {
                files.insert(path, fs::read(&from).map_err(Error::file(&from))?);
            }
        }
        files.insert(RUNTIME_FILE.into(), RUNTIME.into());
        if let Some(plant) = files.get_mut(Path::new(PLANT)) {
            plant.extend_from_slice(DECLARATION.as_bytes());
        }
        Ok(Self { root: folder.join("work"), build: folder.join("build"), files, links, rewritten: BTreeMap::new() })
    }

    /// A hash of everything that a build or a test of a library may read.
    pub(crate) fn digest(&self) -> u64 {
        let outside = |path: &Path| path.starts_with("xtask") || path.extension().is_some_and(|suffix| suffix == "md");
        let parts: Vec<String> = self
            .files
            .iter()
            .filter(|(path, _)| !outside(path))
            .map(|(path, bytes)| format!("{}\n{}", path.display(), String::from_utf8_lossy(bytes)))
            .collect();
        stable_hash(&parts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Writes the copy with these mutants, each behind the switch with its number.
    pub(crate) fn write(&mut self, mutants: &[(usize, &Mutant)]) -> Result<(), Error> {
        let changed: BTreeSet<&str> = mutants.iter().map(|(_, mutant)| mutant.mutation.file.as_str()).collect();
        self.rewritten.clear();
        for file in changed {
            let source = self.files.get(Path::new(file)).map_or(&[][..], Vec::as_slice);
            let of_file = mutants.iter().filter(|(_, mutant)| mutant.mutation.file == file).copied();
            self.rewritten.insert(file.to_owned(), rewrite(&String::from_utf8_lossy(source), of_file));
        }
        self.remove_others(&self.root)?;
        for (path, bytes) in &self.files {
            let rewritten = path.to_str().and_then(|path| self.rewritten.get(path));
            let bytes = rewritten.map_or(bytes.as_slice(), |rewritten| rewritten.text.as_bytes());
            let to = self.root.join(path);
            if fs::read(&to).is_ok_and(|current| current == bytes) {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(Error::file(folder))?;
            }
            fs::write(&to, bytes).map_err(Error::file(&to))?;
        }
        for (path, leads_to) in &self.links {
            let path = self.root.join(path);
            if fs::read_link(&path).is_err() {
                symlink(leads_to, &path).map_err(Error::file(&path))?;
            }
        }
        Ok(())
    }

    fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path) || self.links.contains_key(path)
    }

    /// Removes files of an older copy that the repository has no more.
    fn remove_others(&self, folder: &Path) -> Result<(), Error> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
        for entry in entries {
            let path = entry.map_err(Error::file(folder))?.path();
            if path.is_dir() && !path.is_symlink() {
                self.remove_others(&path)?;
            } else if path.strip_prefix(&self.root).is_ok_and(|path| !self.has(path)) {
                fs::remove_file(&path).map_err(Error::file(&path))?;
            }
        }
        Ok(())
    }

    /// A call of cargo in the copy.
    ///
    /// It refuses `x >= 0` for an unsigned `x`, as clippy in `.ci/run` does.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        let mut command = cargo::command();
        command.args(words).arg("--message-format=json").current_dir(&self.root);
        // No debugger reads these programs.
        command.env("CARGO_TARGET_DIR", &self.build).env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_PROFILE_TEST_DEBUG", "0").env("CARGO_TERM_QUIET", "true");
        command.env("RUSTFLAGS", "-D unused_comparisons");
        command
    }

    /// The rewritten form of a file, by the path that the compiler prints.
    pub(crate) fn rewritten(&self, file: &str) -> Option<&Rewritten> {
        let path = Path::new(file);
        self.rewritten.get(path.strip_prefix(&self.root).unwrap_or(path).to_str()?)
    }
}
