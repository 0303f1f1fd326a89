//! Wordings that slow a reader down, and what to write instead.

use super::passages::{Passage, Setting, without_quotations};
use crate::tidy::Breach;

/// Refused wordings, word by word, and the advice.
const REFUSED: [(&[&str], &str); 15] = [
    (&["somebody"], "name the CPU, task or caller"),
    (&["nobody"], "say what does not happen, or which part does not"),
    (&["everybody"], "name the CPUs, tasks or callers"),
    (&["whoever"], "make the thing that acts the subject"),
    (&["he"], "code and hardware have no person"),
    (&["him"], "code and hardware have no person"),
    (&["his"], "code and hardware have no person"),
    (&["himself"], "code and hardware have no person"),
    (&["put", "off"], "defer"),
    (&["puts", "off"], "defers"),
    (&["putting", "off"], "deferring"),
    (&["let", "be"], "leave, skip"),
    (&["lets", "be"], "leaves, skips"),
    (&["want", "of"], "lack of, for lack of"),
    (&["wants", "of"], "needs from"),
];

/// Nouns for people, which a relative clause with *who* may describe.
const PEOPLE: [&str; 14] = [
    "anyone",
    "authors",
    "developers",
    "engineers",
    "maintainers",
    "operators",
    "people",
    "person",
    "reader",
    "readers",
    "researchers",
    "those",
    "user",
    "users",
];

/// Every refused wording of a passage; it may cross the end of a line.
pub(super) fn check(passage: &Passage) -> impl Iterator<Item = (usize, Breach)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for line in &passage.lines {
        let inner = line.text.trim_matches('"');
        let text = without_quotations(if passage.setting == Setting::Message { inner } else { &line.text });
        let is_end = |c: char| !(c.is_alphanumeric() || c == '_');
        // A punctuation mark ends a wording: "put. Off" is allowed.
        for piece in text.split_inclusive(is_end) {
            let word = piece.trim_matches(is_end).to_lowercase();
            if !word.is_empty() {
                words.push((line.number, word));
            }
            if piece.ends_with(['.', ':', ';', ',', '(', ')']) {
                words.push((line.number, String::new()));
            }
        }
    }
    refused(&words).into_iter()
}

fn refused(words: &[(usize, String)]) -> Vec<(usize, Breach)> {
    let mut found = Vec::new();
    for (index, (line, word)) in words.iter().enumerate() {
        let starts = |wording: &[&str]| {
            words[index..].len() >= wording.len() && wording.iter().zip(&words[index..]).all(|(a, (_, b))| a == b)
        };
        if let Some((wording, instead)) = REFUSED.iter().find(|(wording, _)| starts(wording)) {
            found.push((*line, Breach::Wording { wording: wording.join(" "), instead }));
        }
        let person = index > 0 && PEOPLE.contains(&words[index - 1].1.as_str());
        if word == "who" && !person {
            found.push((
                *line,
                Breach::Wording { wording: "who".into(), instead: "make the thing that acts the subject" },
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::passages::of_document;
    use super::*;

    fn wordings(text: &str) -> Vec<(usize, String)> {
        let found = of_document(text).iter().flat_map(|passage| check(passage).collect::<Vec<_>>()).collect::<Vec<_>>();
        found
            .into_iter()
            .map(|(line, breach)| match breach {
                Breach::Wording { wording, .. } => (line, wording),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn refused_wordings_are_reported_in_any_case_and_across_lines() {
        let text = "Whoever frees\nit is put\noff by him.\nFor want of memory, nobody waits.";
        let expected = [(1, "whoever"), (2, "put off"), (3, "him"), (4, "want of"), (4, "nobody")];
        assert_eq!(wordings(text), expected.map(|(line, word)| (line, word.to_owned())));
    }

    #[test]
    fn who_may_only_refer_to_people() {
        assert_eq!(wordings("Who frees a table waits."), [(1, "who".into())]);
        assert_eq!(wordings("It is for users who read."), []);
        assert_eq!(wordings("It tells users, who read."), [(1, "who".into())]);
    }

    #[test]
    fn code_quotations_and_longer_words_are_allowed() {
        assert_eq!(wordings("`he` said \"who is nobody\"; the whole, this, put. Off, history"), []);
    }
}
