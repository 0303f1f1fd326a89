//! Every scheduling point of the library and of the doubles of devices is on a page, and exists.
//!
//! A point that is lost makes searches of schedules blind, and no test fails for it.
//!
//! Not guaranteed: that a point is at the right place of its file.

use super::{Breach, Finding};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::File;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/scheduling-points.md";
/// The calls that are scheduling points.
const CALLS: [&str; 2] = ["::point()", " device_step();"];

/// Compares the page with the source.
pub(crate) fn run(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, Error> {
    let path = workspace.workspace_root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(Error::file(&path))?;
    Ok(compare(&page, files))
}

fn compare(page: &str, files: &[File]) -> Vec<Finding> {
    let listed = listed(page);
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

/// The numbers of the page's table, by file.
fn listed(page: &str) -> BTreeMap<String, usize> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let path = cells.next()?.strip_suffix('`')?;
        Some((path.to_owned(), cells.next()?.parse().ok()?))
    };
    page.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| file | points |\n| --- | --- |\n| `crates/a/src/b.rs` | 2 | A switch. |\n";

    fn found(path: &str, text: &str) -> Vec<(usize, usize)> {
        let files = [File::new(path.into(), text.to_owned())];
        let findings = compare(PAGE, &files).into_iter();
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
