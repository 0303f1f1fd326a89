//! Prints the rows and the details within 80 columns.
//!
//! The first screen of 50 lines has the missing flush and all rows.

use super::gather::Gathered;
use super::mechanisms::DETAIL_LINES;
use std::io::{self, Write};

/// Columns of the screen.
pub(super) const COLUMNS: usize = 80;
/// Columns of a row's labels, with the space after them.
const LABEL: usize = 10;

/// Writes the title of the rows, or of the details.
pub(super) fn title(out: &mut impl Write, text: &str) -> io::Result<()> {
    let rule = "═".repeat(COLUMNS.saturating_sub(text.chars().count() + 1));
    writeln!(out, "{text} {rule}")
}

/// Writes the row of a mechanism.
pub(super) fn row(out: &mut impl Write, of: &Gathered) -> io::Result<()> {
    let mechanism = of.mechanism;
    heading(out, mechanism.words.name, mechanism.words.setting)?;
    cell(out, "is", mechanism.words.is)?;
    cell(out, "for", mechanism.words.suits)?;
    cell(out, "not for", mechanism.words.unsuited)?;
    match &of.headline {
        Ok(headline) => {
            cell(out, "published", headline.published)?;
            headline.ours.iter().try_for_each(|figure| cell(out, figure.kind.name(), &figure.text))?;
        }
        Err(reason) => cell(out, "not here", reason)?,
    }
    cell(out, "judged", &of.judgement.text())
}

/// Writes the details of a mechanism, and its finding.
pub(super) fn details(out: &mut impl Write, of: &Gathered) -> io::Result<()> {
    let mechanism = of.mechanism;
    writeln!(out)?;
    let lines = of.headline.as_ref().map_or(&[][..], |headline| &headline.details);
    debug_assert!(lines.len() + 2 <= *DETAIL_LINES.end(), "{}", mechanism.words.name);
    heading(out, mechanism.words.name, "")?;
    for line in lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "More: pagewright evaluate {}", mechanism.words.evaluation)?;
    match &of.judgement.finding {
        Some(finding) => write!(out, "\nFOUND in {}:\n{finding}", mechanism.words.name),
        None => Ok(()),
    }
}

/// Writes a line that begins a block, filled with a rule.
fn heading(out: &mut impl Write, name: &str, setting: &str) -> io::Result<()> {
    let space = if setting.is_empty() { 1 } else { 2 };
    let rule = "─".repeat(COLUMNS.saturating_sub(name.chars().count() + setting.chars().count() + space));
    writeln!(out, "{}", format!("{name} {rule} {setting}").trim_end())
}

/// Writes a label and its text, wrapped beside it.
fn cell(out: &mut impl Write, label: &str, text: &str) -> io::Result<()> {
    let rows = wrapped(text, COLUMNS - LABEL);
    let mut labels = std::iter::once(label).chain(std::iter::repeat(""));
    rows.iter().zip(&mut labels).try_for_each(|(row, label)| writeln!(out, "{label:<LABEL$}{row}"))
}

/// Wraps `text` to rows of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut().filter(|row| row.chars().count() + 1 + word.chars().count() <= width) {
            Some(row) => {
                row.push(' ');
                row.push_str(word);
            }
            None => rows.push(word.to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::judgement::Judgement;
    use super::super::mechanisms::MECHANISMS;
    use super::*;
    use crate::command::evaluate::Headline;

    fn gathered(headline: Result<Headline, String>, finding: Option<&str>) -> Gathered {
        let finding = finding.map(str::to_owned);
        Gathered {
            mechanism: &MECHANISMS[0],
            headline,
            judgement: Judgement { times: 7, programs: "programs".to_owned(), finding },
        }
    }

    fn written(of: &Gathered) -> String {
        let mut text = Vec::new();
        row(&mut text, of).and_then(|()| details(&mut text, of)).expect("a vector takes all");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_finding_is_printed_with_what_reproduces_it() {
        let text = written(&gathered(Err("too little memory".to_owned()), Some("reproduce with: this")));
        assert!(text.contains("judged    7 times, A FINDING"), "{text}");
        assert!(text.ends_with("reproduce with: this"), "{text}");
    }

    #[test]
    fn a_figure_that_was_not_obtained_is_not_shown_as_counted() {
        let text = written(&gathered(Err("too little memory".to_owned()), None));
        assert!(text.contains("not here  too little memory"), "{text}");
        assert!(!text.contains("counted ") && !text.contains("published "), "{text}");
    }

    #[test]
    fn headings_and_wrapped_cells_are_as_wide_as_the_screen() {
        let mut text = Vec::new();
        heading(&mut text, "A name", "a=setting").expect("a vector takes all");
        cell(&mut text, "is", &"some words ".repeat(20)).expect("a vector takes all");
        let text = String::from_utf8(text).expect("text");
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths[0], COLUMNS);
        assert!(widths.len() > 3 && widths.iter().all(|width| *width <= COLUMNS), "{text}");
        assert!(text.lines().skip(2).all(|line| line.starts_with("          ")), "{text}");
    }
}
