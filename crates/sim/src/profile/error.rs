//! Why a profile does not load ([`ProfileError`]).
//!
//! Not guaranteed: that all mistakes of a file are reported; the first one is.

use pagewright_types::IsaKind;
use thiserror::Error;

/// Why a profile does not load.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// No profile has this name.
    #[error("there is no profile '{name}'; the profiles are {known}")]
    Unknown {
        /// The name that was requested.
        name: String,
        /// The names of all profiles.
        known: String,
    },
    /// The text is not TOML, or a table lacks a key or has an unknown one.
    #[error("profile '{name}': {message}")]
    Syntax {
        /// The profile.
        name: String,
        /// The message of the parser, on one line.
        message: String,
    },
    /// A cost of its instruction set is missing.
    #[error("profile '{name}' lacks the cost '{cost}'")]
    MissingCost {
        /// The profile.
        name: String,
        /// The cost.
        cost: &'static str,
    },
    /// A cost is not one of its instruction set.
    #[error("profile '{name}' has the cost '{cost}', which no {isa} machine has")]
    UnknownCost {
        /// The profile.
        name: String,
        /// The key.
        cost: String,
        /// Its instruction set.
        isa: IsaKind,
    },
    /// A cost has no value, or several.
    #[error("profile '{name}': '{cost}' must have one value, in cycles, ns or ps")]
    Unit {
        /// The profile.
        name: String,
        /// The key.
        cost: String,
    },
    /// A band does not contain its value, or its cost [has none](crate::Cost::has_band).
    #[error(
        "profile '{name}': the band of '{cost}' must contain its value, and only costs of flushing, of moving lines and of memory have one"
    )]
    Band {
        /// The profile.
        name: String,
        /// The key.
        cost: String,
    },
    /// A table has an empty source.
    #[error("profile '{name}': '{table}' has no source")]
    NoSource {
        /// The profile.
        name: String,
        /// The table.
        table: String,
    },
    /// The number of sets of an array is not a power of two.
    #[error("profile '{name}': {entries} entries in {ways} ways have a number of sets that is not a power of two")]
    Sets {
        /// The profile.
        name: String,
        /// The number of entries.
        entries: usize,
        /// The number of ways.
        ways: usize,
    },
    /// The clock frequency is 0 MHz.
    #[error("profile '{name}': the clock frequency is 0 MHz")]
    Stopped {
        /// The profile.
        name: String,
    },
}
