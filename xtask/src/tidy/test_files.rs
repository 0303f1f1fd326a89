//! Every file of tests is part of a test binary; otherwise its tests never run.
//!
//! A crate whose tests are one binary names their files in `tests/main.rs`. Cargo and the compiler
//! ignore a file that is not named there.
//!
//! Not guaranteed: the same of files in the folders below `tests`.

use super::{Breach, Finding};
use crate::cargo::Workspace;
use crate::source::File;
use std::path::Path;

pub(crate) fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    let roots: Vec<&Path> = targets.map(|target| workspace.shown(&target.src_path)).collect();
    let lost = files.iter().filter(|file| !is_compiled(file, files, &roots));
    lost.map(|file| Finding::of_file(file, Breach::NotATest)).collect()
}

/// Whether the file is a root module, one of the modules of `tests/main.rs`, or in another folder.
fn is_compiled(file: &File, files: &[File], roots: &[&Path]) -> bool {
    let Some((folder, name)) = file.path.parent().zip(file.path.file_stem()) else { return true };
    if !folder.ends_with("tests") || roots.contains(&&*file.path) {
        return true;
    }
    let (main, declared) = (folder.join("main.rs"), format!("mod {};", name.display()));
    files.iter().any(|file| file.path == main && file.text.lines().any(|line| line == declared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tests_in_no_binary_is_reported() {
        let main = File::new("crates/a/tests/main.rs".into(), "//! All.\nmod named;\n".into());
        let files = [main, File::new("crates/b/tests/main.rs".into(), "mod other;\n".into())];
        let roots = ["crates/a/tests/main.rs", "crates/a/tests/alone.rs"].map(Path::new);
        let found = |path: &str| !is_compiled(&File::new(path.into(), String::new()), &files, &roots);
        assert!(!found("crates/a/tests/main.rs") && !found("crates/a/tests/alone.rs"));
        assert!(!found("crates/a/tests/named.rs") && !found("crates/a/src/other.rs"));
        assert!(found("crates/a/tests/other.rs"), "only another crate names it");
        assert!(found("crates/b/tests/named.rs"));
    }
}
