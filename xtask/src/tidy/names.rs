//! Public types have names that survive a search: no two share one, and none is bare.
//!
//! Twins of one type for two instruction sets, in files that differ by the folder `aarch64` or
//! `x86_64` alone, are one type.
//!
//! Not guaranteed: anything about types that macros make from fragments of names.

use super::{Breach, Finding};
use crate::source::File;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Words that say nothing without their module.
const BARE: [&str; 10] = ["Answer", "Did", "Found", "How", "Kind", "Outcome", "Place", "Reach", "Report", "What"];

/// Types that share a name, and bare names.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut types: BTreeMap<&str, Vec<(PathBuf, Finding)>> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.is_test && is_library(&file.path)) {
        for (name, offset) in public_types(&file.code) {
            if file.in_test(offset) {
                continue;
            }
            if BARE.contains(&name) {
                findings.push(Finding::at(file, offset, Breach::BareName { name: name.to_owned() }));
            }
            let shared = Finding::at(file, offset, Breach::SharedName { name: name.to_owned() });
            types.entry(name).or_default().push((without_isa(&file.path), shared));
        }
    }
    for same in types.into_values() {
        if same.iter().any(|(path, _)| *path != same[0].0) {
            findings.extend(same.into_iter().map(|(_, finding)| finding));
        }
    }
    findings
}

/// Examples, programs' own tools and build scripts are nobody's interface.
fn is_library(path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str());
    parts.next().is_some_and(|first| first == "crates" || first == "kernel") && parts.any(|part| part == "src")
}

fn without_isa(path: &Path) -> PathBuf {
    path.components().filter(|part| part.as_os_str() != "aarch64" && part.as_os_str() != "x86_64").collect()
}

/// The name and place of each `pub struct`, `pub enum` and so on in blanked code.
fn public_types(code: &str) -> impl Iterator<Item = (&str, usize)> {
    code.match_indices("pub ").filter_map(|(at, _)| {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = code[at + "pub ".len()..].trim_start();
        let (keyword, rest) = rest.split_once(char::is_whitespace)?;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        // An associated type or a fragment of a macro begins otherwise.
        let name = &rest[..end];
        (!is_word && KEYWORDS.contains(&keyword) && name.starts_with(char::is_uppercase)).then_some((name, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new((*path).into(), (*text).into())).collect();
        let show = |finding: Finding| (finding.path.display().to_string(), finding.breach.to_string());
        check(&files).into_iter().map(show).collect()
    }

    #[test]
    fn two_public_types_of_one_name_are_found_and_twins_are_not() {
        let files = [
            ("crates/a/src/x.rs", "pub struct Slot;\npub(crate) enum Hidden {}\n"),
            ("crates/b/src/x.rs", "    pub trait Slot {}\nenum Hidden {}\n"),
            ("crates/b/tests/x.rs", "pub struct Slot;\n"),
            ("kernel/hal/src/aarch64/context.rs", "pub struct Registers {}\n"),
            ("kernel/hal/src/x86_64/context.rs", "pub struct Registers {}\n"),
        ];
        let paths: Vec<String> = found(&files).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["crates/a/src/x.rs", "crates/b/src/x.rs"]);
    }

    #[test]
    fn a_bare_name_is_found() {
        assert_eq!(found(&[("crates/a/src/x.rs", "pub enum Kind { A }\npub enum FileKind {}\n")]).len(), 1);
        assert!(found(&[("crates/a/examples/x.rs", "pub enum Kind { A }\n")]).is_empty());
    }
}
