//! The Rust files of the repository, the parts of each that are tests, and the Markdown documents.

pub(crate) mod scan;

use crate::cargo::Workspace;
use crate::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders with source.
const FOLDERS: [&str; 7] = ["benches", "crates", "examples", "fuzz", "kernel", "tests", "xtask"];

/// A Rust file.
#[derive(Debug)]
pub(crate) struct File {
    /// The path from the root of the repository.
    pub(crate) path: PathBuf,
    /// The text.
    pub(crate) text: String,
    /// The text with comments and literals blanked ([`scan::code`]).
    pub(crate) code: String,
    /// Whether the whole file is a test or a benchmark.
    pub(crate) is_test: bool,
    /// The byte ranges of items under `#[cfg(test)]`.
    tests: Vec<std::ops::Range<usize>>,
}

impl File {
    /// A file from its path and text.
    pub(crate) fn new(path: PathBuf, text: String) -> Self {
        let is_test_folder = |part: &OsStr| ["tests", "benches", "harness"].iter().any(|folder| part == *folder);
        let is_test = path.components().any(|part| is_test_folder(part.as_os_str()))
            || path.file_name().is_some_and(|name| name == "tests.rs");
        let code = scan::code(&text);
        let tests = scan::test_items(&code);
        Self { path, text, code, is_test, tests }
    }

    /// Whether the byte at `offset` is in a test.
    pub(crate) fn in_test(&self, offset: usize) -> bool {
        self.is_test || self.tests.iter().any(|range| range.contains(&offset))
    }

    /// The number of the line, from 1, that contains the byte at `offset`.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// The number of lines outside tests.
    pub(crate) fn lines_without_tests(&self) -> usize {
        let in_tests: usize = self.tests.iter().map(|range| self.text[range.clone()].lines().count()).sum();
        if self.is_test { 0 } else { self.text.lines().count() - in_tests }
    }
}

/// Every Rust file of the repository, in the order of paths.
pub(crate) fn files(workspace: &Workspace) -> Result<Vec<File>, Error> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        let folder = workspace.workspace_root.join(folder);
        if folder.is_dir() {
            collect(&folder, &mut paths)?;
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        Ok(File::new(workspace.shown(&path).to_path_buf(), text))
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        if path.is_dir() {
            // Not a build directory, such as the kernel's.
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, paths)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// A Markdown document.
#[derive(Debug)]
pub(crate) struct Document {
    /// The path from the root of the repository.
    pub(crate) path: PathBuf,
    /// The text.
    pub(crate) text: String,
}

/// Every Markdown document of the repository, in the order of paths; not links to them.
pub(crate) fn documents(workspace: &Workspace) -> Result<Vec<Document>, Error> {
    let mut paths = Vec::new();
    let mut folders = vec![workspace.workspace_root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            let path = entry.map_err(Error::file(&folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                if !(name == "target" || name.starts_with('.')) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        Ok(Document { path: workspace.shown(&path).to_path_buf(), text })
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_under_cfg_test_are_not_counted() {
        let text = "//! A.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let file = File::new("crates/x/src/lib.rs".into(), text.into());
        assert_eq!(file.lines_without_tests(), 3);
        assert!(file.in_test(text.find("fn t").expect("there")));
        assert!(!file.in_test(text.find("fn a").expect("there")));
        assert_eq!(file.line_of(text.find("fn t").expect("there")), 6);
    }

    #[test]
    fn a_file_in_a_folder_of_tests_is_a_test() {
        assert!(File::new("crates/x/tests/a.rs".into(), String::new()).is_test);
        assert!(File::new("crates/x/src/space/tests.rs".into(), String::new()).is_test);
        assert!(!File::new("crates/x/src/latest.rs".into(), String::new()).is_test);
    }
}
