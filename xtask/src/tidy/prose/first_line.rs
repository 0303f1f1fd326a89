//! The first line of a doc comment is one sentence with a full stop.
//!
//! An index shows it without the rest.

use super::passages::{Passage, Setting, without_quotations};
use crate::tidy::Breach;

/// A finding, if the first line is not a whole sentence or has more than one.
pub(super) fn check(passage: &Passage) -> impl Iterator<Item = (usize, Breach)> {
    let first = passage.lines.first().filter(|_| passage.setting == Setting::Doc);
    let breach = first.and_then(|line| {
        let text = line.text.trim();
        let is_sentence = text.strip_suffix('.').is_some_and(|text| !ends_in_abbreviation(text)) && !holds_two(text);
        // A heading need not be a sentence.
        (!is_sentence && !text.starts_with('#')).then_some((line.number, Breach::FirstLine))
    });
    breach.into_iter()
}

/// Whether another sentence follows a full stop.
fn holds_two(text: &str) -> bool {
    let plain = without_quotations(text);
    plain.match_indices(". ").any(|(at, _)| {
        let next = plain[at + 2..].trim_start().chars().next();
        !ends_in_abbreviation(&plain[..at]) && next.is_some_and(|c| c.is_uppercase() || matches!(c, '`' | '['))
    })
}

/// Whether a full stop after `text` belongs to its last word.
fn ends_in_abbreviation(text: &str) -> bool {
    let word = text.rsplit([' ', '(']).next().unwrap_or_default();
    matches!(word, "e.g" | "i.e" | "cf" | "vs" | "vol" | "No" | "p")
}

#[cfg(test)]
mod tests {
    use super::super::passages::of_code;
    use super::*;
    use crate::source::File;

    fn lines(text: &str) -> Vec<usize> {
        let file = File::new("crates/x/src/a.rs".into(), text.into());
        of_code(&file).iter().flat_map(|passage| check(passage).collect::<Vec<_>>()).map(|(line, _)| line).collect()
    }

    #[test]
    fn a_first_line_that_is_not_one_sentence_is_reported() {
        assert!(lines("//! Frames, e.g. `a. B`, of SDM vol. 3A.\n//!\n//! More. And more.\n").is_empty());
        assert_eq!(lines("//! Frames. And more.\n"), [1]);
        assert_eq!(lines("//! Frames (SDM vol.\n//!\n//! 3A).\n"), [1]);
        assert_eq!(lines("/// Frames that\n/// go on.\n"), [1]);
        assert_eq!(lines("/// Frames\n"), [1]);
        assert!(lines("// any words\n").is_empty());
    }
}
