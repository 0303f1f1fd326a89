//! Every scheduling point of the library and of the doubles of devices is in a ledger, and exists.
//!
//! A search of schedules (`pagewright check`, the explored tests) finds a race only if it can
//! switch CPUs between the two steps that race. It can do so before each effect of the machine and
//! each operation of a lock, and at the places of `scheduling_points.toml`: `Backend::point` in the
//! library, where the racing steps are atomic operations, and `device_step` in the doubles of
//! devices, which copy a page. A point that is lost makes searches blind, and no test fails for it;
//! `tlb/tests/scheduling_points.rs` looks for the switch itself at each effect and each lock.
//!
//! Not guaranteed: that a point is at the right place of its file.

use super::{Breach, Finding};
use crate::error::Error;
use crate::source::File;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The ledger, from the root of the repository.
const LEDGER: &str = "xtask/src/tidy/scheduling_points.toml";
/// The calls that are scheduling points.
const CALLS: [&str; 2] = ["::point()", " device_step();"];

/// A file with scheduling points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    path: String,
    points: usize,
    /// What may happen there.
    meanwhile: String,
}

/// Compares the ledger with the source.
pub(crate) fn run(files: &[File]) -> Result<Vec<Finding>, Error> {
    Ok(compare(&parse(include_str!("scheduling_points.toml"))?, files))
}

fn parse(text: &str) -> Result<Vec<Listed>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ledger {
        file: Vec<Listed>,
    }
    let ledger: Ledger = toml::from_str(text).map_err(|source| Error::Ledger { ledger: LEDGER, source })?;
    Ok(ledger.file)
}

fn compare(ledger: &[Listed], files: &[File]) -> Vec<Finding> {
    let said = ledger.iter().filter(|row| !row.meanwhile.is_empty());
    let listed: BTreeMap<String, usize> = said.map(|row| (row.path.clone(), row.points)).collect();
    let in_source = |path: &Path| path.starts_with("crates") && path.components().any(|part| part.as_os_str() == "src");
    let found = files.iter().filter(|file| in_source(&file.path)).map(|file| (shown(&file.path), points(file)));
    let found: BTreeMap<String, usize> = found.filter(|(_, points)| *points > 0).collect();
    let count = |of: &BTreeMap<String, usize>, path: &str| of.get(path).copied().unwrap_or_default();
    let mut paths: Vec<&String> = listed.keys().chain(found.keys()).collect();
    paths.sort();
    paths.dedup();
    let differs = |path: &&String| count(&listed, path) != count(&found, path);
    let finding = |path: &String| {
        let breach = Breach::PointsDiffer { points: count(&found, path), listed: count(&listed, path) };
        Finding { path: path.into(), line: 0, breach }
    };
    paths.into_iter().filter(differs).map(finding).collect()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn points(file: &File) -> usize {
    CALLS.iter().map(|call| file.code.matches(call).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[file]]\npath = 'crates/a/src/b.rs'\npoints = 2\nmeanwhile = 'A switch.'\n";

    fn found(path: &str, text: &str) -> Vec<(usize, usize)> {
        let files = [File::new(path.into(), text.to_owned())];
        let findings = compare(&parse(ONE).expect("a ledger"), &files).into_iter();
        findings
            .map(|finding| match finding.breach {
                Breach::PointsDiffer { points, listed } => (points, listed),
                other => panic!("{other}"),
            })
            .collect()
    }

    #[test]
    fn a_lost_point_and_one_that_is_not_listed_are_reported() {
        let two = "fn f() {\n    B::point();\n    // B::point();\n    device_step();\n}\n";
        assert_eq!(found("crates/a/src/b.rs", two), []);
        assert_eq!(found("crates/a/src/b.rs", "fn f() {\n    B::point();\n}\n"), [(1, 2)]);
        assert_eq!(found("crates/a/src/b.rs", &two.replace("device_step", "L::point(); device_step")), [(3, 2)]);
        assert_eq!(found("crates/a/src/c.rs", two), [(0, 2), (2, 0)], "in another file");
        assert_eq!(found("crates/a/tests/c.rs", two), [(0, 2)], "in a test");
    }
}
