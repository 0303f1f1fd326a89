//! Each row of `docs/huge-pages.md` names a test that exists, or says *not yet*.
//!
//! A test is named by the end of its file's path and its function, as `thp/split.rs::name`.
//!
//! Not guaranteed: that the test shows what the row says.

use super::{Breach, Finding};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::File;
use std::path::PathBuf;

const PAGE: &str = "docs/huge-pages.md";

/// Reads the page and checks it against `files`.
pub(crate) fn run(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, Error> {
    let path = workspace.workspace_root.join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    Ok(check(&page, files))
}

fn check(page: &str, files: &[File]) -> Vec<Finding> {
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    // The first two lines of the table are its head.
    rows.skip(2).flat_map(|(index, row)| breaches(row, files).map(move |breach| in_page(index + 1, breach))).collect()
}

fn in_page(line: usize, breach: Breach) -> Finding {
    Finding { path: PathBuf::from(PAGE), line, breach }
}

fn breaches<'a>(row: &'a str, files: &'a [File]) -> impl Iterator<Item = Breach> + use<'a> {
    let named: Vec<&str> = row.split('`').filter(|word| word.contains(".rs::")).collect();
    let lacks_test = (named.is_empty() && !row.contains("not yet")).then_some(Breach::NoTestNamed);
    let missing = named.into_iter().filter(|test| !exists(test, files));
    lacks_test.into_iter().chain(missing.map(|test| Breach::NoSuchTest { test: test.into() }))
}

/// Whether a file of tests has a function of that name.
fn exists(test: &str, files: &[File]) -> bool {
    let Some((path, name)) = test.split_once("::") else { return false };
    files.iter().filter(|file| file.path.ends_with(path)).any(|file| names_in_test(file, name))
}

/// Whether `name` stands as a whole word in a test of the file.
fn names_in_test(file: &File, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    file.code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&file.code[..at], &file.code[at + name.len()..]);
        file.in_test(at) && !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_a_test_that_exists_or_says_not_yet() {
        let file = File::new("crates/mm/tests/thp/a.rs".into(), "on_both! { kept_whole, }".into());
        let head = "| what | test |\n| --- | --- |\n";
        let found = |row: &str| -> Vec<Breach> {
            let page = format!("{head}{row}\n");
            check(&page, core::slice::from_ref(&file)).into_iter().map(|finding| finding.breach).collect()
        };
        assert_eq!(found("| fork | `thp/a.rs::kept_whole` |"), []);
        assert_eq!(found("| KSM | not yet |"), []);
        assert_eq!(found("| fork | |"), [Breach::NoTestNamed]);
        for test in ["thp/a.rs::kept", "thp/b.rs::kept_whole"] {
            assert_eq!(found(&format!("| fork | `{test}` |")), [Breach::NoSuchTest { test: test.into() }]);
        }
    }
}
