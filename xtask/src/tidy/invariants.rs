//! Invariants have ids, which connect `docs/invariants.md` with code and tests.
//!
//! Each cited id is in the list. Each listed id is cited by the code that keeps the invariant and
//! by a test, in each file that the entry names as a test of it. So the list stays in step with the
//! code.

use super::{Breach, Finding};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::{Document, File};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const LIST: &str = "docs/invariants.md";
const PREFIX: &str = "INV-";

/// The words before the test files of an entry.
const TESTED: &str = "Tested in";

/// An entry of the list, and where its id is cited.
#[derive(Debug, Default)]
struct Listed<'a> {
    line: usize,
    /// The lines of the entry, the first of which has the id.
    text: Vec<&'a str>,
    in_code: bool,
    /// The files with tests that cite it.
    in_tests: BTreeSet<&'a Path>,
}

impl Listed<'_> {
    /// The test files that the entry names, by the ends of their paths.
    fn tests(&self) -> Vec<String> {
        let text = self.text.join(" ");
        let named = text.split_once(TESTED).map_or("", |(_, named)| named);
        named.split('`').filter(|word| word.ends_with(".rs")).map(str::to_owned).collect()
    }
}

/// Reads the list and checks it against `files`.
pub(crate) fn run(workspace: &Workspace, files: &[File], documents: &[Document]) -> Result<Vec<Finding>, Error> {
    let path = workspace.workspace_root.join(LIST);
    let list = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    let mut findings = check(&list, files);
    findings.extend(documents.iter().flat_map(|page| unknown(&list, page)));
    Ok(findings)
}

/// The ids that a document cites and the list does not have.
fn unknown(list: &str, page: &Document) -> Vec<Finding> {
    let listed: BTreeSet<&str> = list.lines().filter_map(entry).collect();
    let lines = page.text.lines().enumerate().flat_map(|(index, line)| ids(line).map(move |(_, id)| (index + 1, id)));
    let unknown = lines.filter(|(_, id)| !listed.contains(id));
    let finding = |(line, id): (usize, &str)| Finding {
        path: page.path.clone(),
        line,
        breach: Breach::UnknownInvariant { id: id.into() },
    };
    unknown.map(finding).collect()
}

fn check<'a>(list: &'a str, files: &'a [File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed: BTreeMap<&str, Listed<'a>> = BTreeMap::new();
    let mut last = None;
    for (index, line) in list.lines().enumerate() {
        if let Some(id) = entry(line) {
            last = Some(id);
            if listed.insert(id, Listed { line: index + 1, ..Listed::default() }).is_some() {
                findings.push(in_list(index + 1, Breach::RepeatedInvariant { id: id.into() }));
            }
        } else if !line.starts_with(' ') {
            last = None;
        }
        if let Some(entry) = last.and_then(|id| listed.get_mut(id)) {
            entry.text.push(line.trim());
        }
    }
    let mut unknown = BTreeSet::new();
    // Ids in the checks of tidy are examples.
    for file in files.iter().filter(|file| !file.path.starts_with("xtask/src/tidy")) {
        for (offset, id) in ids(&file.text) {
            match listed.get_mut(id) {
                Some(entry) if file.in_test(offset) => _ = entry.in_tests.insert(&file.path),
                Some(entry) => entry.in_code = true,
                // Once per id, because the list is the place to correct.
                None if unknown.insert(id) => {
                    findings.push(Finding::at(file, offset, Breach::UnknownInvariant { id: id.into() }));
                }
                None => {}
            }
        }
    }
    for (id, entry) in listed {
        let mut finds = |breach| findings.push(in_list(entry.line, breach));
        if !entry.in_code {
            finds(Breach::NotInCode { id: id.into() });
        }
        if entry.in_tests.is_empty() {
            finds(Breach::NotInTests { id: id.into() });
        }
        for test in entry.tests() {
            if !entry.in_tests.iter().any(|path| path.ends_with(&test)) {
                finds(Breach::NotTestedThere { id: id.into(), test });
            }
        }
    }
    findings
}

fn in_list(line: usize, breach: Breach) -> Finding {
    Finding { path: PathBuf::from(LIST), line, breach }
}

/// The id of the entry that starts on this line of the list.
fn entry(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("- **")?;
    let (id, _) = rest.split_once("**")?;
    id.starts_with(PREFIX).then_some(id)
}

/// Every id in a text, with its offset.
fn ids(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(PREFIX).filter_map(|(at, _)| {
        let word = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-';
        let rest = &text[at..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let id = rest[..end].trim_end_matches('-');
        (id.len() > PREFIX.len()).then_some((at, id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# List\n- **INV-KEPT** It is kept.\n- **INV-LOOSE** It is not.\n";

    fn file(path: &str, text: &str) -> File {
        File::new(path.into(), text.into())
    }

    fn breaches(list: &str, files: &[File]) -> Vec<Breach> {
        check(list, files).into_iter().map(|finding| finding.breach).collect()
    }

    #[test]
    fn a_listed_id_needs_code_and_a_test() {
        let code = file("crates/a/src/lib.rs", "// INV-KEPT: so.\n// INV-LOOSE");
        let test = file("crates/a/tests/t.rs", "// INV-KEPT.");
        assert_eq!(breaches(TEXT, &[code, test]), [Breach::NotInTests { id: "INV-LOOSE".into() }]);
        let inline = "// INV-KEPT INV-LOOSE\n#[cfg(test)]\nmod tests {\n // INV-KEPT\n}\n";
        let found = breaches(TEXT, &[file("crates/a/src/lib.rs", inline)]);
        assert_eq!(found, [Breach::NotInTests { id: "INV-LOOSE".into() }]);
        let tests_only = file("crates/a/tests/t.rs", "// INV-KEPT, INV-LOOSE");
        assert_eq!(
            breaches(TEXT, &[tests_only]),
            [Breach::NotInCode { id: "INV-KEPT".into() }, Breach::NotInCode { id: "INV-LOOSE".into() }]
        );
    }

    #[test]
    fn an_unlisted_id_is_reported_where_it_is_cited() {
        let found = check("", &[file("crates/a/src/lib.rs", "//! A.\n// INV-GONE-AWAY")]);
        assert_eq!(found[0].line, 2);
        assert_eq!(found[0].breach, Breach::UnknownInvariant { id: "INV-GONE-AWAY".into() });
    }

    #[test]
    fn an_id_listed_twice_is_reported() {
        let twice = "- **INV-A** One.\n- **INV-A** Two.\n";
        assert!(breaches(twice, &[]).contains(&Breach::RepeatedInvariant { id: "INV-A".into() }));
    }

    #[test]
    fn an_entry_names_only_files_whose_tests_cite_it() {
        let list = "- **INV-A** One. Tested in `a/tests/t.rs`,\n  `u.rs` with `this`.\n\nTested in `v.rs`.\n- **INV-B** Two, of `w.rs`.\n";
        let files = [
            file("crates/a/src/lib.rs", "// INV-A INV-B"),
            file("crates/a/tests/t.rs", "// INV-A INV-B"),
            file("crates/b/tests/u.rs", "// INV-B"),
        ];
        assert_eq!(breaches(list, &files), [Breach::NotTestedThere { id: "INV-A".into(), test: "u.rs".into() }]);
    }

    #[test]
    fn an_incomplete_pattern_is_not_an_id() {
        assert_eq!(ids("INV-… INV- INV-A-: INV-B.").map(|(_, id)| id).collect::<Vec<_>>(), ["INV-A", "INV-B"]);
    }
}
