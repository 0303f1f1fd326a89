//! The survivors that a person has justified: `justified.toml`, beside this file.
//!
//! An entry names file, function, original and replacement, and not the line, and gives the reason.
//! Of equal changes of a function it may name one by its number.

use super::mutant::Mutation;
use crate::error::Error;
use serde::Deserialize;

/// The ledger, from the root of the repository.
pub(crate) const LEDGER: &str = "xtask/src/mutate/justified.toml";

/// A justified survivor.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Reads the ledger.
///
/// # Errors
/// [`Error::Ledger`], if it is malformed.
pub(crate) fn read() -> Result<Vec<Justified>, Error> {
    parse(include_str!("justified.toml"))
}

pub(crate) fn parse(text: &str) -> Result<Vec<Justified>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ledger {
        mutant: Vec<Justified>,
    }
    let ledger: Ledger = toml::from_str(text).map_err(|source| Error::Ledger { ledger: LEDGER, source })?;
    Ok(ledger.mutant)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str =
        "[[mutant]]\nfile = 'a.rs'\nfunction = 'f'\noriginal = 'a'\nreplacement = 'b'\nreason = 'Why.'\n";

    #[test]
    fn the_ledger_is_read_and_each_entry_has_a_reason() {
        let entries = read().expect("the ledger is well formed");
        assert!(entries.iter().all(|entry| entry.reason.ends_with('.')));
        assert_eq!(parse(ENTRY).expect("one entry")[0].shown(), "a.rs f: `a` → `b`");
    }

    #[test]
    fn an_entry_needs_a_reason_and_every_name() {
        for line in ENTRY.lines().skip(1) {
            assert!(parse(&ENTRY.replace(line, "")).is_err(), "without {line}");
        }
        assert!(parse(&format!("{ENTRY}ordinal = 'x'\n")).is_err());
        assert!(parse(&format!("{ENTRY}number = 2\n")).is_err());
    }

    #[test]
    fn a_number_chooses_one_of_equal_changes() {
        let mutant = |ordinal| Mutation { ordinal, ..Mutation::example() };
        let about = |text: &str| {
            let entry = &parse(text).expect("one entry")[0];
            [1, 2].map(|ordinal| entry.is_about(&mutant(ordinal)))
        };
        assert_eq!(about(ENTRY), [true, true]);
        assert_eq!(about(&format!("{ENTRY}ordinal = 2\n")), [false, true]);
    }
}
