//! No marks of unfinished work; users read about what is missing in the documentation.

use super::{Breach, Finding};
use crate::source::File;

// Split, so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACROS: [&str; 3] = [concat!("unimplemented", "!"), concat!("todo", "!"), concat!("dbg", "!")];

/// Every mark, also in comments and strings, and every macro in code.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let marks = MARKS.iter().flat_map(|word| found(file, &file.text, word));
    let macros = MACROS.iter().flat_map(|word| found(file, &file.code, word));
    marks.chain(macros).collect()
}

fn found(file: &File, text: &str, word: &'static str) -> Vec<Finding> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .filter(|(at, _)| !text[..*at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
        .map(|(at, _)| Finding::at(file, at, Breach::Leftover { word }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&File::new("a.rs".into(), text.into())).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn marks_are_found_everywhere_and_macros_only_in_code() {
        let text = format!("//! A.\n// {}: later\nfn a() {{ {}() }}\n// {}\n", MARKS[0], MACROS[1], MACROS[1]);
        assert_eq!(lines(&text), [2, 3]);
    }

    #[test]
    fn a_mark_is_a_whole_word() {
        assert!(lines(&format!("//! {0}ES and A{0}, {1}_COUNT.\n", MARKS[0], MARKS[2])).is_empty());
    }
}
