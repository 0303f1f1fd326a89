//! Files have at most 500 lines without tests, functions at most 70.

use super::{Breach, Finding};
use crate::source::{File, scan};

const FILE_LIMIT: usize = 500;
const FUNCTION_LIMIT: usize = 70;

/// The file if it is too long, and its functions that are.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let lines = file.lines_without_tests();
    let long = (lines > FILE_LIMIT).then(|| Finding::of_file(file, Breach::LongFile { lines, limit: FILE_LIMIT }));
    let functions = scan::functions(&file.code).into_iter().filter_map(|function| {
        let lines = file.text[function.range.clone()].lines().count();
        let breach = Breach::LongFunction { name: function.name, lines, limit: FUNCTION_LIMIT };
        (lines > FUNCTION_LIMIT).then(|| Finding::at(file, function.range.start, breach))
    });
    long.into_iter().chain(functions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: String) -> File {
        File::new("a.rs".into(), text)
    }

    fn function_of(lines: usize) -> String {
        format!("//! F.\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn the_limits_are_met_exactly_and_broken_by_one_more() {
        assert_eq!(check(&file("x\n".repeat(500))), []);
        let found = check(&file("x\n".repeat(501)));
        assert_eq!(found[0].breach, Breach::LongFile { lines: 501, limit: 500 });
        assert_eq!(check(&file(function_of(70))), []);
        let found = check(&file(function_of(71)));
        assert_eq!(found[0].breach, Breach::LongFunction { name: "long".into(), lines: 71, limit: 70 });
        assert_eq!(found[0].line, 2);
    }
}
