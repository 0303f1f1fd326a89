//! The prose of a file: comments, messages, test names, and the text of documents.
//!
//! This module drops fenced code, tables, block quotes and diagrams, and blanks `inline code` and
//! "quotations", so the rules apply to sentences only.

use crate::source::File;
use crate::source::scan::{self, HiddenKind};

/// The place of a passage, which decides the rules that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// `///` or `//!`: its first line stands alone in an index.
    Doc,
    /// `//`.
    Comment,
    /// Markdown.
    Document,
    /// A literal in code; rustfmt decides its width.
    Message,
    /// The name of a function in a test, as words.
    TestName,
}

/// Lines that form one text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) setting: Setting,
    pub(crate) lines: Vec<Line>,
}

/// A line of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The number, from 1.
    pub(crate) number: usize,
    /// The columns of the whole line, with code before the comment.
    pub(crate) columns: usize,
    /// The text without comment marks.
    pub(crate) text: String,
}

/// The passages of a Rust file.
pub(crate) fn of_code(file: &File) -> Vec<Passage> {
    let mut passages = Vec::new();
    for hidden in scan::hidden(&file.text) {
        let number = file.line_of(hidden.range.start);
        let text = &file.text[hidden.range];
        match hidden.kind {
            HiddenKind::LineComment => comment(file, number, text, &mut passages),
            HiddenKind::BlockComment => {}
            HiddenKind::Literal => passages.push(message(number, text)),
        }
    }
    for passage in &mut passages {
        if passage.setting != Setting::Message {
            passage.lines = prose(&passage.lines);
        }
    }
    passages.retain(|passage| !passage.lines.is_empty());
    let tests = scan::functions(&file.code).into_iter().filter(|function| file.in_test(function.range.start));
    passages.extend(tests.map(|function| {
        let number = file.line_of(function.range.start);
        let text = function.name.replace('_', " ");
        Passage { setting: Setting::TestName, lines: vec![Line { number, columns: 0, text }] }
    }));
    passages
}

/// The passages of a Markdown document.
pub(crate) fn of_document(text: &str) -> Vec<Passage> {
    let line =
        |(index, line): (usize, &str)| Line { number: index + 1, columns: line.chars().count(), text: line.to_owned() };
    let lines: Vec<Line> = text.lines().enumerate().map(line).collect();
    vec![Passage { setting: Setting::Document, lines: prose(&lines) }]
}

/// Adds a line comment to the passage that it continues, or starts a new passage.
fn comment(file: &File, number: usize, text: &str, passages: &mut Vec<Passage>) {
    let is_doc = (text.starts_with("///") && !text.starts_with("////")) || text.starts_with("//!");
    let setting = if is_doc { Setting::Doc } else { Setting::Comment };
    let text = text[if is_doc { 3 } else { 2 }..].to_owned();
    let columns = file.text.lines().nth(number - 1).map_or(0, |line| line.chars().count());
    let line = Line { number, columns, text };
    match passages.last_mut() {
        Some(passage)
            if passage.setting == setting && passage.lines.last().is_some_and(|last| last.number + 1 == number) =>
        {
            passage.lines.push(line);
        }
        _ => passages.push(Passage { setting, lines: vec![line] }),
    }
}

fn message(number: usize, text: &str) -> Passage {
    let lines = text.lines().enumerate();
    let line = |(index, line): (usize, &str)| Line { number: number + index, columns: 0, text: line.to_owned() };
    Passage { setting: Setting::Message, lines: lines.map(line).collect() }
}

/// The lines without fenced code, tables, block quotes, link targets and diagrams.
fn prose(lines: &[Line]) -> Vec<Line> {
    let mut fenced = false;
    let mut kept = Vec::new();
    for line in lines {
        let text = line.text.trim();
        if text.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !is_exempt(text) {
            kept.push(line.clone());
        }
    }
    kept
}

fn is_exempt(text: &str) -> bool {
    let is_link_target = text.starts_with('[') && text.contains("]: ");
    text.starts_with(['|', '>']) || is_link_target || text.contains(['│', '├', '└', '┌', '─'])
}

/// `text` with inline code and quotations blanked.
pub(crate) fn without_quotations(text: &str) -> String {
    let mut open = None;
    let blank = |c: char| {
        match open {
            None if matches!(c, '`' | '"' | '“') => open = Some(if c == '“' { '”' } else { c }),
            Some(close) if close == c => open = None,
            None => return c,
            Some(_) => {}
        }
        ' '
    };
    text.chars().map(blank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(passages: &[Passage]) -> Vec<(Setting, Vec<&str>)> {
        passages.iter().map(|p| (p.setting, p.lines.iter().map(|line| line.text.trim()).collect())).collect()
    }

    #[test]
    fn comments_literals_and_test_names_are_passages() {
        let text = "//! A.\n//! B.\n\n/// C.\n#[cfg(test)]\nmod t {\n  // D.\n  fn e_f() { g(\"h\") }\n}\n";
        let passages = of_code(&File::new("crates/x/src/a.rs".into(), text.into()));
        assert_eq!(
            texts(&passages),
            [
                (Setting::Doc, vec!["A.", "B."]),
                (Setting::Doc, vec!["C."]),
                (Setting::Comment, vec!["D."]),
                (Setting::Message, vec!["\"h\""]),
                (Setting::TestName, vec!["e f"]),
            ]
        );
        assert_eq!(passages[3].lines[0].number, 8);
    }

    #[test]
    fn code_tables_quotations_and_diagrams_are_dropped() {
        let text = "Word.\n\n```text\ncode\n```\n| a | b |\n> said\n├── x\n[a]: b\nEnd.";
        assert_eq!(texts(&of_document(text)), [(Setting::Document, vec!["Word.", "", "End."])]);
    }

    #[test]
    fn inline_code_and_quotations_are_blanked() {
        assert_eq!(without_quotations("a `who` \"he\" “his” b"), format!("a {} b", " ".repeat(16)));
    }
}
