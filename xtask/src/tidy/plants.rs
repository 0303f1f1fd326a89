//! Code makes each planted bug, a test names it, and no host has much of it.
//!
//! A bug is a row of `crates/plant/src/lib.rs`. Code makes it with `plant!(Bug …)`. A test names it
//! as `PlantedBug::Bug`, or in the table of a macro as `Bug => …` or `Bug by …`; the boots of
//! `xtask/src/boot/planted.rs` are tests, too. A mistake of more than two lines is a function in
//! `planted!`, so that its host reads as the correct code.
//!
//! Not guaranteed: that the test fails with the bug. `assert_found_by`, `planted_bugs_are_found!`
//! and the boots assert that.

use super::{Breach, Finding};
use crate::source::{File, scan};
use std::collections::BTreeSet;
use std::ops::Range;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Token};

/// The crate of the macros, whose own tests and examples are no plants.
const CRATE: &str = "crates/plant";
/// The table of planted bugs.
const TABLE: &str = "crates/plant/src/lib.rs";
/// The boots that must detect planted bugs.
const BOOTS: &str = "xtask/src/boot/planted.rs";
/// The lines of a mistake in its host.
const LIMIT: usize = 2;

/// Checks the table against `files`, and the length of each mistake.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let users = || files.iter().filter(|file| !file.path.starts_with(CRATE));
    let named: BTreeSet<&str> = users().flat_map(named_by_tests).collect();
    let invocations = users().flat_map(|file| invocations(file).map(move |range| (file, range)));
    let hosted: Vec<(&File, Range<usize>)> = invocations.filter(|(file, range)| !file.in_test(range.start)).collect();
    let made: BTreeSet<&str> = hosted.iter().map(|(file, range)| word(&file.code[range.clone()])).collect();
    let table = files.iter().find(|file| file.path.as_path() == TABLE);
    let rows = table.into_iter().flat_map(|table| rows(&table.text));
    let lacking = rows.flat_map(|(line, bug)| {
        let not_made = (!made.contains(bug)).then(|| Breach::BugNotMade { bug: bug.into() });
        let not_named = (!named.contains(bug)).then(|| Breach::BugNotInTests { bug: bug.into() });
        let finding = move |breach| Finding { path: TABLE.into(), line, breach };
        not_made.into_iter().chain(not_named).map(finding)
    });
    lacking.chain(hosted.iter().filter_map(|(file, range)| long_mistake(file, range.clone()))).collect()
}

/// The rows of the table: their lines, from 1, and the bugs.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let rows =
        text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, line.trim().split_once(" = \"")?.0)));
    rows.filter(|(_, bug)| bug.chars().all(is_word))
}

/// The bugs, and other words, that stand in a test as one names a bug.
fn named_by_tests(file: &File) -> impl Iterator<Item = &str> {
    const TYPE: &str = "PlantedBug::";
    let is_test = |at: usize| file.in_test(at) || file.path.as_path() == BOOTS;
    let of_type = file.code.match_indices(TYPE).map(|(at, _)| at + TYPE.len());
    let of_type = of_type.map(|at| (at, word(&file.code[at..])));
    let in_tables = [" => ", " by "].into_iter().flat_map(|mark| file.code.match_indices(mark));
    let in_tables = in_tables.filter_map(|(end, _)| {
        let before = &file.code[..end];
        let start = before.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
        // A variant of another type stands behind its type.
        (!before[..start].ends_with("::")).then_some((start, &before[start..]))
    });
    of_type.chain(in_tables).filter(move |(at, _)| is_test(*at)).map(|(_, bug)| bug)
}

/// What stands in the parentheses of each `plant!(…)` of the file.
fn invocations(file: &File) -> impl Iterator<Item = Range<usize>> {
    const OPENING: &str = "plant!(";
    let opened = file.code.match_indices(OPENING).map(|(at, _)| at + OPENING.len());
    opened.map(|start| start..scan::closing_bracket(&file.code, start))
}

/// The word with which `code` begins.
fn word(code: &str) -> &str {
    let code = code.trim_start();
    code.split(|c| !is_word(c)).next().unwrap_or_default()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What `plant!` makes: the second expression of `BUG => MISTAKE` or `BUG; MISTAKE, CORRECT`.
struct Mistake(Expr);

impl Parse for Mistake {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<Ident>()?;
        if input.parse::<Option<Token![=>]>>()?.is_none() {
            input.parse::<Token![;]>()?;
        }
        let mistake = input.parse()?;
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(Self(mistake))
    }
}

/// The finding for the mistake of `plant!(…)` if it is too long.
fn long_mistake(file: &File, range: Range<usize>) -> Option<Finding> {
    // The compiler of the planted build reports what does not parse.
    let span = syn::parse_str::<Mistake>(&file.text[range.clone()]).ok()?.0.span();
    let lines = span.end().line - span.start().line + 1;
    (lines > LIMIT).then(|| Finding::at(file, range.start, Breach::LongMistake { lines, limit: LIMIT }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "#[cfg(feature = \"a\")]\nnamed_table! {\n    pub enum PlantedBug {\n        Made = \"made\", \"A.\";\n    }\n}\n";
    const HOST: (&str, &str) = ("crates/mm/src/a.rs", "fn a() {\n    plant!(Made => return);\n}\n");

    fn found(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let files = [(TABLE, ROWS)].iter().chain(files);
        let files: Vec<File> = files.map(|(path, text)| File::new((*path).into(), (*text).into())).collect();
        check(&files).into_iter().map(|finding| (finding.line, finding.breach.to_string())).collect()
    }

    #[test]
    fn a_bug_that_code_makes_and_a_test_names_is_clean() {
        for test in [
            "fn t() { assert_found_by(PlantedBug::Made, a); }",
            "planted_bugs_are_found! {\n    SCHEDULES;\n    Made => race,\n}\n",
            "found! {\n    a_test:\n        Made by RIGHTS;\n}\n",
        ] {
            assert_eq!(found(&[HOST, ("crates/mm/tests/a.rs", test)]), [], "{test}");
        }
        assert_eq!(found(&[HOST, (BOOTS, "const A: PlantedBoot = (PlantedBug::Made, \"cow\");")]), []);
    }

    #[test]
    fn a_bug_without_code_or_test_is_found() {
        let not_named = (4, Breach::BugNotInTests { bug: "Made".into() }.to_string());
        for (path, text) in [
            ("crates/mm/tests/a.rs", "// PlantedBug::Made\nfn a() { b(\"PlantedBug::Made\"); }"),
            ("crates/mm/tests/a.rs", "fn a() { b(PlantedBug::MadeLate); }"),
            ("crates/mm/tests/a.rs", "fn a() { match b { Flushing::Made => {} } }"),
            ("crates/mm/src/b.rs", "fn a() { b(PlantedBug::Made); }"),
            ("crates/plant/tests/a.rs", "fn a() { b(PlantedBug::Made); }"),
        ] {
            assert_eq!(found(&[HOST, (path, text)]), std::slice::from_ref(&not_named), "{text}");
        }
        let not_made = (4, Breach::BugNotMade { bug: "Made".into() }.to_string());
        let test = "fn t() { plant!(Made => return); assert_found_by(PlantedBug::Made, a); }";
        assert_eq!(found(&[("crates/mm/tests/a.rs", test)]), [not_made]);
    }

    #[test]
    fn a_mistake_of_more_than_two_lines_is_found() {
        let test = ("crates/mm/tests/a.rs", "fn t() { assert_found_by(PlantedBug::Made, a); }");
        let lines = |mistake: &str| {
            let host = format!("fn a() {{\n    plant!(Made{mistake});\n}}\n");
            found(&[test, ("crates/mm/src/a.rs", &host)])
        };
        let long = |lines| [(2, Breach::LongMistake { lines, limit: LIMIT }.to_string())];
        assert_eq!(lines(" => {\n        b();\n    }"), long(3));
        assert_eq!(lines(";\n    c::<A, B>(\n        1,\n    ), d()"), long(3));
        assert_eq!(lines(" => { b(\")\"); return }"), []);
        assert_eq!(lines(";\n    (),\n    {\n        b();\n        c()\n    }"), [], "correct code");
    }
}
