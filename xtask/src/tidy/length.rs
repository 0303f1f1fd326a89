//! Files have at most 500 lines without tests, functions at most 70.

use super::exceptions::Exception;
use super::{Breach, Finding};
use crate::source::{File, scan};
use std::path::Path;

const FILE_LIMIT: usize = 500;
const FUNCTION_LIMIT: usize = 70;

/// Files and functions that are too long without an exception, and exceptions without need.
pub(crate) fn check(files: &[File], excused: &[Exception]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; excused.len()];
    for file in files {
        let mut excuse = |function: Option<&str>| {
            let found = excused.iter().position(|e| Path::new(e.path) == file.path && e.function == function);
            found.map(|index| used[index] = true).is_some()
        };
        let lines = file.lines_without_tests();
        if lines > FILE_LIMIT && !excuse(None) {
            findings.push(Finding::of_file(file, Breach::LongFile { lines, limit: FILE_LIMIT }));
        }
        for function in scan::functions(&file.code) {
            let lines = file.text[function.range.clone()].lines().count();
            if lines > FUNCTION_LIMIT && !excuse(Some(&function.name)) {
                let breach = Breach::LongFunction { name: function.name, lines, limit: FUNCTION_LIMIT };
                findings.push(Finding::at(file, function.range.start, breach));
            }
        }
    }
    for (exception, _) in excused.iter().zip(used).filter(|(_, used)| !used) {
        findings.push(Finding::stale(exception.path, exception.reason));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: String) -> File {
        File::new(path.into(), text)
    }

    fn function_of(lines: usize) -> String {
        format!("//! F.\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn the_limits_are_met_exactly_and_broken_by_one_more() {
        assert_eq!(check(&[file("a.rs", "x\n".repeat(500))], &[]), []);
        let found = check(&[file("a.rs", "x\n".repeat(501))], &[]);
        assert_eq!(found[0].breach, Breach::LongFile { lines: 501, limit: 500 });
        assert_eq!(check(&[file("a.rs", function_of(70))], &[]), []);
        let found = check(&[file("a.rs", function_of(71))], &[]);
        assert_eq!(found[0].breach, Breach::LongFunction { name: "long".into(), lines: 71, limit: 70 });
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn an_exception_applies_only_to_what_it_names() {
        let excused = |path, function| [Exception { path, function, reason: "because" }];
        let files = [file("a.rs", function_of(71))];
        assert_eq!(check(&files, &excused("a.rs", Some("long"))), []);
        for other in [excused("a.rs", Some("other")), excused("b.rs", Some("long")), excused("a.rs", None)] {
            let found = check(&files, &other);
            assert_eq!(found.len(), 2, "the length, and the exception without need: {found:?}");
        }
    }
}
