//! Each decision in `docs/decisions` says which invariants and files it concerns.
//!
//! A decision is a heading of the second level. It has a line that begins with [`CONCERNS`] and
//! links a file. That the links lead somewhere, and that the ids exist, `links` and `invariants`
//! check for all documents.
//!
//! Not guaranteed: that the decision still holds there.

use super::links::outside_code;
use super::{Breach, Finding};
use crate::source::Document;

const FOLDER: &str = "docs/decisions";
/// The first word of the line.
const CONCERNS: &str = "Concerns: ";

/// Checks every page of decisions.
pub(crate) fn check(documents: &[Document]) -> Vec<Finding> {
    documents.iter().filter(|page| page.path.starts_with(FOLDER)).flat_map(check_page).collect()
}

fn check_page(page: &Document) -> Vec<Finding> {
    let mut without: Vec<usize> = Vec::new();
    let mut open = None;
    // A line of concerns is wrapped: its first link may be below its first word.
    let mut concerns = false;
    for (line, text) in outside_code(&page.text) {
        if text.starts_with("## ") {
            without.extend(open.replace(line));
            concerns = false;
        }
        concerns = text.starts_with(CONCERNS) || concerns && !text.is_empty();
        if concerns && text.contains("](") {
            open = None;
        }
    }
    without.extend(open);
    let finding = |line| Finding { path: page.path.clone(), line, breach: Breach::NoConcerns };
    without.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_without_a_file_is_reported() {
        let text = "# Decisions\n\n## A\n\nText.\n\nConcerns: INV-A,\n[`a`](a.rs).\n\n## B\n\n[b](b.rs)\n\n## C\n\nConcerns: INV-C.\n";
        let page = Document { path: "docs/decisions/a.md".into(), text: text.into() };
        let elsewhere = Document { path: "docs/a.md".into(), text: text.into() };
        let lines: Vec<_> = check(&[page, elsewhere]).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [10, 14]);
    }
}
