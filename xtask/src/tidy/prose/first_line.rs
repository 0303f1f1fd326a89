//! The first line of a doc comment is one sentence that ends in a full stop: an index shows it
//! alone.

use super::passages::{Passage, Setting, without_quotations};
use crate::tidy::Breach;

/// A finding if the first line goes on, or holds more than a sentence.
pub(super) fn check(passage: &Passage) -> impl Iterator<Item = (usize, Breach)> {
    let first = passage.lines.first().filter(|_| passage.setting == Setting::Doc);
    let breach = first.and_then(|line| {
        let text = line.text.trim();
        let is_sentence = text.ends_with('.') && !text.ends_with("e.g.") && !holds_two(text);
        // A heading or a link is no sentence, and is not asked to be one.
        (!is_sentence && !text.starts_with('#')).then_some((line.number, Breach::FirstLine))
    });
    breach.into_iter()
}

/// Whether a full stop is followed by another sentence.
fn holds_two(text: &str) -> bool {
    let plain = without_quotations(text);
    plain.match_indices(". ").any(|(at, _)| {
        let word = plain[..at].rsplit([' ', '(']).next().unwrap_or_default();
        let is_short = matches!(word, "e.g" | "i.e" | "cf" | "vs" | "vol" | "No" | "p");
        let next = text[at + 2..].trim_start().chars().next();
        !is_short && next.is_some_and(|c| c.is_uppercase() || matches!(c, '`' | '['))
    })
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
    fn a_first_line_is_one_whole_sentence() {
        assert!(lines("//! Frames, e.g. `a. B`, of SDM vol. 3A.\n//!\n//! More. And more.\n").is_empty());
        assert_eq!(lines("//! Frames. And more.\n"), [1]);
        assert_eq!(lines("/// Frames that\n/// go on.\n"), [1]);
        assert_eq!(lines("/// Frames\n"), [1]);
        assert!(lines("// any words\n").is_empty());
    }
}
