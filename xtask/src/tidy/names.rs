//! Public types have searchable names: no two types share a name, and no name is bare.
//!
//! Types of one name in files whose paths differ only by the folders `aarch64` and `x86_64` count
//! as one type, with a version for each instruction set.
//!
//! Not guaranteed: anything about types whose names a macro assembles.

use super::{Breach, Finding};
use crate::source::File;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Names that mean nothing without their module.
const BARE: [&str; 10] = ["Answer", "Did", "Found", "How", "Kind", "Outcome", "Place", "Reach", "Report", "What"];

/// The public types that share a name, and those with a bare name.
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

/// Whether the file is part of a crate's source; examples and xtask have no public interface.
fn is_library(path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str());
    parts.next().is_some_and(|first| first == "crates" || first == "kernel") && parts.any(|part| part == "src")
}

fn without_isa(path: &Path) -> PathBuf {
    path.components().filter(|part| part.as_os_str() != "aarch64" && part.as_os_str() != "x86_64").collect()
}

/// The name and offset of each `pub struct`, `pub enum` and so on in blanked code.
fn public_types(code: &str) -> impl Iterator<Item = (&str, usize)> {
    code.match_indices("pub ").filter_map(|(at, _)| {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = code[at + "pub ".len()..].trim_start();
        let (keyword, rest) = rest.split_once(char::is_whitespace)?;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        // Not a macro fragment, such as `$name`.
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
    fn types_that_share_a_name_are_reported_except_versions_per_isa() {
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
    fn a_bare_name_is_reported() {
        assert_eq!(found(&[("crates/a/src/x.rs", "pub enum Kind { A }\npub enum FileKind {}\n")]).len(), 1);
        assert!(found(&[("crates/a/examples/x.rs", "pub enum Kind { A }\n")]).is_empty());
    }
}
