//! Files of at most 500 lines without tests, functions of at most 70, comments of at most 160 columns: the formatter leaves those alone.

use super::exceptions::Exception;
use super::{Breach, Finding};
use crate::source::{File, scan};
use std::path::Path;

const FILE_LIMIT: usize = 500;
const FUNCTION_LIMIT: usize = 70;
const COMMENT_LIMIT: usize = 160;

/// What is too long and not excused, and what is excused and not too long.
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
        findings.extend(wide_comments(file));
        for function in scan::functions(&file.code) {
            let lines = file.text[function.range.clone()].lines().count();
            if lines > FUNCTION_LIMIT && !excuse(Some(&function.name)) {
                let breach = Breach::LongFunction { name: function.name, lines, limit: FUNCTION_LIMIT };
                findings.push(Finding::at(file, function.range.start, breach));
            }
        }
    }
    for (exception, _) in excused.iter().zip(used).filter(|(_, used)| !used) {
        let breach = Breach::StaleException { reason: exception.reason };
        findings.push(Finding { path: exception.path.into(), line: 0, breach });
    }
    findings
}

/// Lines of comments that are too wide. Rows of a table can't be broken.
fn wide_comments(file: &File) -> impl Iterator<Item = Finding> {
    file.text.lines().enumerate().filter_map(|(index, line)| {
        let comment = line.trim_start().strip_prefix("//")?;
        let columns = line.chars().count();
        let is_row = comment.trim_start_matches(['/', '!']).trim_start().starts_with('|');
        let breach = Breach::WideComment { columns, limit: COMMENT_LIMIT };
        (columns > COMMENT_LIMIT && !is_row).then(|| Finding { path: file.path.clone(), line: index + 1, breach })
    })
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
    fn a_comment_is_no_wider_than_the_limit_unless_it_is_a_row() {
        let line = |head: &str, columns: usize| format!("{head}{}\n", "–".repeat(columns - head.len()));
        let lines = [line("//! ", 160), line("    // ", 161), line("//! | ", 161), line("let a = ", 161)];
        let found = check(&[file("a.rs", lines.concat())], &[]);
        let breach = Breach::WideComment { columns: 161, limit: 160 };
        assert_eq!(found, [Finding { path: "a.rs".into(), line: 2, breach }]);
    }

    #[test]
    fn an_exception_excuses_what_it_names_and_no_more() {
        let excused = |path, function| [Exception { path, function, reason: "because" }];
        let files = [file("a.rs", function_of(71))];
        assert_eq!(check(&files, &excused("a.rs", Some("long"))), []);
        for other in [excused("a.rs", Some("other")), excused("b.rs", Some("long")), excused("a.rs", None)] {
            let found = check(&files, &other);
            assert_eq!(found.len(), 2, "the length, and the exception that excuses nothing: {found:?}");
        }
    }
}
