//! Promises have ids: each that is cited is listed in `docs/invariants.md`, and each that is listed is cited by code that keeps it and by
//! a test that could see it broken. So the list can't drift from the code.

use super::{Breach, Finding};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::File;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const LIST: &str = "docs/invariants.md";
const PREFIX: &str = "INV-";

/// Where an id was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Cited {
    in_code: bool,
    in_tests: bool,
}

/// Reads the list and checks it against `files`.
pub(crate) fn run(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, Error> {
    let path = workspace.workspace_root.join(LIST);
    let list = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    Ok(check(&list, files))
}

fn check(list: &str, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed: BTreeMap<&str, (usize, Cited)> = BTreeMap::new();
    for (index, line) in list.lines().enumerate() {
        let Some(id) = entry(line) else { continue };
        if listed.insert(id, (index + 1, Cited::default())).is_some() {
            findings.push(in_list(index + 1, Breach::RepeatedInvariant { id: id.into() }));
        }
    }
    let mut unknown = BTreeSet::new();
    // What xtask says of ids is about the check, not about memory.
    for file in files.iter().filter(|file| !file.path.starts_with("xtask")) {
        for (offset, id) in ids(&file.text) {
            match listed.get_mut(id) {
                Some((_, cited)) if file.in_test(offset) => cited.in_tests = true,
                Some((_, cited)) => cited.in_code = true,
                // Once each: the place to mend is the list.
                None if unknown.insert(id) => {
                    findings.push(Finding::at(file, offset, Breach::UnknownInvariant { id: id.into() }));
                }
                None => {}
            }
        }
    }
    for (id, (line, cited)) in listed {
        if !cited.in_code {
            findings.push(in_list(line, Breach::NotInCode { id: id.into() }));
        }
        if !cited.in_tests {
            findings.push(in_list(line, Breach::NotInTests { id: id.into() }));
        }
    }
    findings
}

fn in_list(line: usize, breach: Breach) -> Finding {
    Finding { path: PathBuf::from(LIST), line, breach }
}

/// The id that a line of the list is the entry of.
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
    fn an_id_wants_code_and_a_test() {
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
    fn an_id_that_is_not_listed_is_found_where_it_is_cited() {
        let found = check("", &[file("crates/a/src/lib.rs", "//! A.\n// INV-GONE-AWAY")]);
        assert_eq!(found[0].line, 2);
        assert_eq!(found[0].breach, Breach::UnknownInvariant { id: "INV-GONE-AWAY".into() });
    }

    #[test]
    fn an_id_listed_twice_is_found() {
        let twice = "- **INV-A** One.\n- **INV-A** Two.\n";
        assert!(breaches(twice, &[]).contains(&Breach::RepeatedInvariant { id: "INV-A".into() }));
    }

    #[test]
    fn the_pattern_itself_is_no_id() {
        assert_eq!(ids("INV-… INV- INV-A-: INV-B.").map(|(_, id)| id).collect::<Vec<_>>(), ["INV-A", "INV-B"]);
    }
}
