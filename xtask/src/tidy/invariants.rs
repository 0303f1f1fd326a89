//! Each invariant is stated once, in the documentation of the code that keeps it, and is tested.
//!
//! A *statement* is a paragraph or an item of a doc comment that begins with the id in bold:
//! `**INV-…** What holds. Otherwise …`. Every other place *cites* the id: code that depends on the
//! invariant, the tests that could observe a violation, programs of the kernel, documents. A cited
//! id has a statement, and a stated one is cited by a test.
//!
//! [`PAGE`] is made of the statements: each with its place and the tests that cite it. So a test
//! that is lost changes the page.
//!
//! Not guaranteed: that a test which cites an id would notice a violation.

use super::readme::without_links;
use super::{Breach, Finding, Generated};
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::{Document, File};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/invariants.md";
const PREFIX: &str = "INV-";
/// The folder of the programs that test the kernel.
const PROGRAMS: &str = "kernel/programs";
/// Columns of the page.
const COLUMNS: usize = 100;

const HEAD: &str = "\
# Invariants

This page lists the promises on which Pagewright depends. Each has an id, which never gets a new
meaning. Code cites the id of a promise where it depends on it, a test cites it where it could
observe a violation, and the oracle names it in a report.

`cargo xtask tidy --write` makes this page from doc comments that begin with an id in bold, and from
the tests that cite it: edit the comments, not the page.
";

/// The parts of the page in their order: the crates, from the lowest up, and other folders.
const PARTS: [&str; 15] = [
    "arch",
    "sync",
    "btree",
    "frame",
    "tlb",
    "table",
    "mm",
    "sim",
    "model",
    "check",
    "trap",
    "cargo-pagewright",
    "pagewright",
    "kernel",
    "xtask",
];

/// An invariant as the code states it.
#[derive(Debug)]
struct Statement<'a> {
    path: &'a Path,
    line: usize,
    /// What holds, in one line and without links.
    text: String,
    /// The files with tests that cite it.
    tests: BTreeSet<&'a Path>,
}

/// Checks the statements and the citations, and compares the page with them or writes it.
pub(crate) fn run(
    workspace: &Workspace,
    files: &[File],
    documents: &[Document],
    generated: Generated,
) -> Result<Vec<Finding>, Error> {
    let programs = programs(workspace)?;
    let (stated, mut findings) = check(files, &programs);
    findings.extend(documents.iter().flat_map(|page| unknown(&stated, &page.path, &page.text)));
    findings.extend(generated.document(workspace, PAGE, &page(&stated))?);
    Ok(findings)
}

/// The programs that test the kernel, in C.
fn programs(workspace: &Workspace) -> Result<Vec<Document>, Error> {
    let folder = workspace.workspace_root.join(PROGRAMS);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
        let path = entry.map_err(Error::file(&folder))?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            found.push(Document { path: workspace.shown(&path).to_path_buf(), text });
        }
    }
    Ok(found)
}

/// The invariants by id, and the breaches of the rules in code and programs.
fn check<'a>(files: &'a [File], programs: &'a [Document]) -> (BTreeMap<String, Statement<'a>>, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut stated: BTreeMap<String, Statement<'a>> = BTreeMap::new();
    // Ids in the checks of tidy are examples.
    let files = || files.iter().filter(|file| !file.path.starts_with("xtask/src/tidy"));
    for file in files() {
        for (line, paragraph) in paragraphs(file) {
            match paragraph {
                Paragraph::Statement { id, text } => {
                    let statement = Statement { path: &file.path, line, text, tests: BTreeSet::new() };
                    if stated.insert(id.clone(), statement).is_some() {
                        findings.push(at(&file.path, line, Breach::RepeatedInvariant { id }));
                    }
                }
                Paragraph::Unmarked { id } => findings.push(at(&file.path, line, Breach::UnmarkedInvariant { id })),
            }
        }
    }
    for file in files() {
        findings.extend(unknown(&stated, &file.path, &file.text));
        for (_, id) in ids(&file.text).filter(|(offset, _)| file.in_test(*offset)) {
            stated.get_mut(id).into_iter().for_each(|statement| _ = statement.tests.insert(&file.path));
        }
    }
    for program in programs {
        findings.extend(unknown(&stated, &program.path, &program.text));
        for (_, id) in ids(&program.text) {
            stated.get_mut(id).into_iter().for_each(|statement| _ = statement.tests.insert(&program.path));
        }
    }
    for (id, statement) in stated.iter().filter(|(_, statement)| statement.tests.is_empty()) {
        findings.push(at(statement.path, statement.line, Breach::NotInTests { id: id.clone() }));
    }
    (stated, findings)
}

fn at(path: &Path, line: usize, breach: Breach) -> Finding {
    Finding { path: path.to_path_buf(), line, breach }
}

/// The ids that a text cites and no code states, each once.
fn unknown(stated: &BTreeMap<String, Statement<'_>>, path: &Path, text: &str) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let lines = text.lines().enumerate().flat_map(|(index, line)| ids(line).map(move |(_, id)| (index + 1, id)));
    let unknown = lines.filter(|(_, id)| !stated.contains_key(*id) && seen.insert(*id));
    unknown.map(|(line, id)| at(path, line, Breach::UnknownInvariant { id: id.into() })).collect()
}

/// A paragraph or an item of a doc comment that begins with an id.
#[derive(Debug, PartialEq, Eq)]
enum Paragraph {
    /// With the id in bold.
    Statement { id: String, text: String },
    /// With the id and a colon, in the documentation of a module.
    Unmarked { id: String },
}

/// The paragraphs outside tests that begin with an id, each with its line.
fn paragraphs(file: &File) -> Vec<(usize, Paragraph)> {
    let mut found = Vec::new();
    let mut lines = file.text.lines().enumerate().peekable();
    let mut offset = 0;
    let mut begins = true;
    while let Some((index, line)) = lines.next() {
        let here = offset;
        offset += line.len() + 1;
        let Some((mark, content)) = doc_line(line) else {
            begins = true;
            continue;
        };
        let item = content.strip_prefix("- ");
        let first = item.unwrap_or(content);
        let starts = begins || item.is_some();
        begins = content.is_empty();
        if !starts || file.in_test(here) {
            continue;
        }
        let Some((id, rest)) = bold_id(first) else {
            let unmarked = ids(first).next().filter(|(at, id)| *at == 0 && first[id.len()..].starts_with(':'));
            if let Some((_, id)) = unmarked.filter(|_| mark == "//!") {
                found.push((index + 1, Paragraph::Unmarked { id: id.into() }));
            }
            continue;
        };
        let mut text = rest.to_owned();
        while let Some((_, next)) = lines.peek() {
            let Some((_, more)) = doc_line(next).filter(|(next, more)| *next == mark && is_prose(more)) else { break };
            text = format!("{text} {}", more.trim());
            offset += next.len() + 1;
            lines.next();
        }
        found.push((index + 1, Paragraph::Statement { id: id.into(), text: without_links(&text) }));
    }
    found
}

/// The mark of a doc comment, and what follows it.
fn doc_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let mark = ["//!", "///"].into_iter().find(|mark| line.starts_with(mark))?;
    let content = &line[mark.len()..];
    Some((mark, content.strip_prefix(' ').unwrap_or(content)))
}

/// Whether a line goes on with the paragraph before it.
fn is_prose(content: &str) -> bool {
    !content.is_empty() && !["- ", "* ", "|", "```", "#"].iter().any(|mark| content.starts_with(mark))
}

/// The id in bold at the beginning of a text, and the rest.
fn bold_id(text: &str) -> Option<(&str, &str)> {
    let (id, rest) = text.strip_prefix("**")?.split_once("** ")?;
    ids(id).next().filter(|(at, found)| *at == 0 && found.len() == id.len()).map(|(_, id)| (id, rest))
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

fn page(stated: &BTreeMap<String, Statement<'_>>) -> String {
    let mut parts: BTreeMap<(usize, &str), Vec<(&String, &Statement<'_>)>> = BTreeMap::new();
    for entry in stated {
        let part = part_of(entry.1.path);
        let place = PARTS.iter().position(|known| *known == part).unwrap_or(PARTS.len());
        parts.entry((place, part)).or_default().push(entry);
    }
    let mut text = HEAD.to_owned();
    for ((_, part), mut entries) in parts {
        entries.sort_by_key(|(_, statement)| (statement.path, statement.line));
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "\n## {part}\n");
        for (id, statement) in entries {
            text.push_str(&wrapped("-", &format!("**{id}** {}", statement.text)));
            let tests: Vec<String> = statement.tests.iter().map(|path| format!("`{}`", shown(path))).collect();
            let place = format!("[`{}`](../{})", shown(statement.path), statement.path.display());
            text.push_str(&wrapped("  -", &format!("{place}; tests: {}", tests.join(", "))));
        }
    }
    text
}

/// The crate of a file, or its top folder.
fn part_of(path: &Path) -> &str {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        other => other.unwrap_or_default(),
    }
}

/// A path as the page shows it.
fn shown(path: &Path) -> String {
    path.strip_prefix("crates").unwrap_or(path).display().to_string()
}

/// An item of a list, wrapped.
fn wrapped(bullet: &str, text: &str) -> String {
    let indent = " ".repeat(bullet.len());
    let mut out = bullet.to_owned();
    let mut column = out.len();
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(&indent);
            column = indent.len();
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + width;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A.\n//!\n//! **INV-KEPT** It is\n//! kept, by [`X`](y).\n//!\n//! - **INV-ITEM** An item,\n//!   of two lines.\n//! - other\n\n// INV-KEPT\n";

    fn file(path: &str, text: &str) -> File {
        File::new(path.into(), text.into())
    }

    fn breaches(files: &[File]) -> Vec<Breach> {
        check(files, &[]).1.into_iter().map(|finding| finding.breach).collect()
    }

    #[test]
    fn a_statement_is_a_paragraph_or_an_item_with_its_id_in_bold() {
        let files = [file("crates/a/src/lib.rs", CODE), file("crates/a/tests/t.rs", "// INV-KEPT, INV-ITEM.")];
        let (stated, findings) = check(&files, &[]);
        assert_eq!(findings, []);
        let texts: Vec<_> = stated.iter().map(|(id, of)| (id.as_str(), of.line, of.text.as_str())).collect();
        assert_eq!(texts, [("INV-ITEM", 6, "An item, of two lines."), ("INV-KEPT", 3, "It is kept, by `X`.")]);
    }

    #[test]
    fn an_invariant_needs_a_test() {
        let code = file("crates/a/src/lib.rs", CODE);
        let test = file("crates/a/tests/t.rs", "// INV-KEPT.");
        assert_eq!(breaches(&[code, test]), [Breach::NotInTests { id: "INV-ITEM".into() }]);
        let inline = format!("{CODE}#[cfg(test)]\nmod tests {{\n    // INV-KEPT INV-ITEM\n}}\n");
        assert_eq!(breaches(&[file("crates/a/src/lib.rs", &inline)]), []);
        let program = Document { path: "kernel/programs/a.c".into(), text: "/* Tests INV-ITEM, INV-KEPT. */".into() };
        assert_eq!(check(&[file("crates/a/src/lib.rs", CODE)], &[program]).1, []);
    }

    #[test]
    fn an_id_that_no_code_states_is_reported_where_it_is_cited() {
        let stated = "//! A.\n//! INV-WITHIN **INV-WITHIN** a paragraph.\n// INV-GONE\n// INV-GONE";
        let findings = check(&[file("crates/a/src/lib.rs", stated)], &[]).1;
        let unknown = |id: &str| Breach::UnknownInvariant { id: id.into() };
        let found: Vec<_> = findings.into_iter().map(|finding| (finding.line, finding.breach)).collect();
        assert_eq!(found, [(2, unknown("INV-WITHIN")), (3, unknown("INV-GONE"))]);
    }

    #[test]
    fn a_second_statement_is_reported() {
        let files = [
            file("crates/a/src/lib.rs", "//! **INV-A** One.\n"),
            file("crates/a/src/x.rs", "/// **INV-A** Two.\nfn f() {}\n//! X.\n//!\n//! INV-A: three.\n"),
            file("crates/a/tests/t.rs", "//! INV-A: a test.\n"),
        ];
        let id = || "INV-A".to_owned();
        assert_eq!(breaches(&files), [Breach::RepeatedInvariant { id: id() }, Breach::UnmarkedInvariant { id: id() }]);
    }

    #[test]
    fn the_page_has_each_statement_with_its_place_and_tests() {
        let files = [
            file("crates/tlb/src/lib.rs", "//! **INV-B** Two.\n"),
            file("crates/arch/src/lib.rs", "//! **INV-C** Three.\n"),
            file("crates/tlb/tests/t.rs", "// INV-B INV-C"),
        ];
        let page = page(&check(&files, &[]).0);
        let lists = "\n## arch\n\n- **INV-C** Three.\n  - [`arch/src/lib.rs`](../crates/arch/src/lib.rs); tests: \
                     `tlb/tests/t.rs`\n\n## tlb\n\n- **INV-B** Two.\n";
        assert!(page.contains(lists), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= COLUMNS), "{page}");
    }

    #[test]
    fn an_incomplete_pattern_is_not_an_id() {
        assert_eq!(ids("INV-… INV- INV-A-: INV-B.").map(|(_, id)| id).collect::<Vec<_>>(), ["INV-A", "INV-B"]);
    }
}
