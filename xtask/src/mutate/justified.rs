//! The survivors that a person has justified: `docs/mutants.md`.
//!
//! An entry names file, function, original and replacement, and not the line, and gives the reason.
//! Of equal changes of a function it may name one by its number.

use super::mutant::Mutation;
use crate::cargo::Workspace;
use crate::error::Error;
use std::fs;

/// The document.
pub(crate) const PAGE: &str = "docs/mutants.md";

/// A justified survivor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Justified {
    file: String,
    function: String,
    original: String,
    replacement: String,
    /// The number among equal changes of the function, from 1; without it the entry is about each.
    ordinal: Option<usize>,
    /// The reason.
    pub(crate) reason: String,
}

impl Justified {
    /// Whether the entry is about this mutant.
    pub(crate) fn is_about(&self, mutant: &Mutation) -> bool {
        (&self.file, &self.function, &self.original, &self.replacement)
            == (&mutant.file, &mutant.function, &mutant.original, &mutant.replacement)
            && self.ordinal.is_none_or(|ordinal| ordinal == mutant.ordinal)
    }

    /// The entry in short.
    pub(crate) fn shown(&self) -> String {
        let Self { file, function, original, replacement, .. } = self;
        let number = self.ordinal.map_or(String::new(), |ordinal| format!(" #{ordinal}"));
        format!("{file} {function}: `{original}`{number} → `{replacement}`")
    }
}

/// Reads the document.
///
/// # Errors
/// [`Error::File`], if it cannot be read; [`Error::Entry`] for an entry that is malformed.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Justified>, Error> {
    let path = workspace.workspace_root.join(PAGE);
    parse(&fs::read_to_string(&path).map_err(Error::file(&path))?)
}

/// Reads the items of the list.
///
/// An item is `- FILE FUNCTION: ORIGINAL → REPLACEMENT. Reason.`, with the code in backticks. The
/// second of equal changes has ` #2` after ORIGINAL.
pub(crate) fn parse(text: &str) -> Result<Vec<Justified>, Error> {
    let mut items: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("- "), line.strip_prefix("  "), items.last_mut()) {
            (Some(item), _, _) => items.push(item.to_owned()),
            (None, Some(more), Some(item)) => *item = format!("{item} {more}"),
            _ => {}
        }
    }
    items.into_iter().map(|item| entry(&item).ok_or(Error::Entry(item))).collect()
}

fn entry(item: &str) -> Option<Justified> {
    // The reason may contain code, too.
    let parts: Vec<&str> = item.splitn(9, '`').collect();
    let ["", file, " ", function, ": ", original, arrow, replacement, reason] = parts[..] else { return None };
    let ordinal = match arrow.strip_suffix(" → ")? {
        "" => None,
        number => Some(number.strip_prefix(" #")?.parse().ok()?),
    };
    let reason = reason.strip_prefix(". ")?.trim().to_owned();
    let one = str::to_owned;
    Some(Justified {
        file: one(file),
        function: one(function),
        original: one(original),
        replacement: one(replacement),
        ordinal,
        reason,
    })
    .filter(|entry| !entry.reason.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_over_several_lines() {
        let text = "# Title\n\nText - with a dash.\n\n- `a.rs` `A::b`: `x\n  < y` → `x <= y`. The next line\n  handles `it`.\n\nMore.\n";
        let found = parse(text).expect("one entry");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].shown(), "a.rs A::b: `x < y` → `x <= y`");
        assert_eq!(found[0].reason, "The next line handles `it`.");
    }

    #[test]
    fn an_entry_needs_a_reason_and_every_name() {
        let numbered = "- `a.rs` `A::b`: `x` 2 → `y`. Because.\n";
        for bad in ["- `a.rs` `A::b`: `x` → `y`.\n", "- `a.rs`: `x` → `y`. Because.\n", "- anything\n", numbered] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_chooses_one_of_equal_changes() {
        let mutant = |ordinal| Mutation { ordinal, ..Mutation::example() };
        let about = |text: &str| {
            let entry = &parse(text).expect("one entry")[0];
            [1, 2].map(|ordinal| entry.is_about(&mutant(ordinal)))
        };
        assert_eq!(about("- `a.rs` `f`: `a` → `b`. Why.\n"), [true, true]);
        assert_eq!(about("- `a.rs` `f`: `a` #2 → `b`. Why.\n"), [false, true]);
    }
}
